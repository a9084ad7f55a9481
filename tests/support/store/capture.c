/* Notes every change of a file below a directory: preloaded before libc, started through ctypes.
 *
 *   capture_start(directory, trace): from now on, append to the file `trace`, for each change of a file in `directory`, a
 *   record: kind, flags, length of the path, length of the data (u32 each), offset (u64), path, data.
 *   capture_mark(number): append a record of kind MARK with `number` as its offset.
 *
 * Kinds: 1 WRITE (flag 1: it is durable when it returns), 2 FLUSH, 3 ALLOCATE (offset: the size that the file has from now
 * on at least), 4 TRUNCATE (offset: the size), 5 UNLINK, 6 MARK.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE = 1, FLUSH, ALLOCATE, TRUNCATE, UNLINK, MARK };

static int trace = -1;
static char root[PATH_MAX];

#define REAL(type, name, ...) static type (*real)(__VA_ARGS__); if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

static ssize_t put(const void *data, size_t size) {
    REAL(ssize_t, write, int, const void *, size_t);
    return real(trace, data, size);
}

void capture_start(const char *directory, const char *file) {
    snprintf(root, sizeof root, "%s/", directory);
    trace = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static void note(uint32_t kind, uint32_t flags, const char *path, uint64_t at, const struct iovec *parts, int count,
                 size_t size) {
    uint32_t head[4] = {kind, flags, (uint32_t)strlen(path), (uint32_t)size};
    put(head, sizeof head);
    put(&at, sizeof at);
    put(path, head[2]);
    for (int i = 0; i < count && size; i++) {
        size_t part = parts[i].iov_len < size ? parts[i].iov_len : size;
        put(parts[i].iov_base, part);
        size -= part;
    }
}

void capture_mark(uint64_t number) { note(MARK, 0, "", number, 0, 0, 0); }

/* The path below the directory, or NULL. */
static const char *path_of(int fd, char *buffer) {
    char link[64];
    if (trace < 0 || fd == trace) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, buffer, PATH_MAX - 1);
    if (size <= 0) return 0;
    buffer[size] = 0;
    return strncmp(buffer, root, strlen(root)) ? 0 : buffer + strlen(root);
}

static void wrote(int fd, const struct iovec *parts, int count, off_t at, ssize_t size, int flags) {
    char buffer[PATH_MAX];
    const char *path = size > 0 ? path_of(fd, buffer) : 0;
    if (!path) return;
    int durable = (flags & RWF_DSYNC) || (fcntl(fd, F_GETFL) & O_DSYNC);
    note(WRITE, durable ? 1 : 0, path, at, parts, count, size);
}

#define PWRITE(name)                                                                      \
    ssize_t name(int fd, const void *data, size_t size, off_t at) {                       \
        REAL(ssize_t, name, int, const void *, size_t, off_t);                            \
        ssize_t done = real(fd, data, size, at);                                          \
        struct iovec part = {(void *)data, size};                                         \
        wrote(fd, &part, 1, at, done, 0);                                                 \
        return done;                                                                      \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

#define PWRITEV(name)                                                                     \
    ssize_t name(int fd, const struct iovec *parts, int count, off_t at) {                \
        REAL(ssize_t, name, int, const struct iovec *, int, off_t);                       \
        ssize_t done = real(fd, parts, count, at);                                        \
        wrote(fd, parts, count, at, done, 0);                                             \
        return done;                                                                      \
    }
PWRITEV(pwritev)
PWRITEV(pwritev64)

#define PWRITEV2(name)                                                                    \
    ssize_t name(int fd, const struct iovec *parts, int count, off_t at, int flags) {     \
        REAL(ssize_t, name, int, const struct iovec *, int, off_t, int);                  \
        ssize_t done = real(fd, parts, count, at, flags);                                 \
        wrote(fd, parts, count, at, done, flags);                                         \
        return done;                                                                      \
    }
PWRITEV2(pwritev2)
PWRITEV2(pwritev64v2)

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(ssize_t, writev, int, const struct iovec *, int);
    off_t at = trace < 0 ? 0 : lseek(fd, 0, SEEK_CUR);
    ssize_t done = real(fd, parts, count);
    wrote(fd, parts, count, at, done, 0);
    return done;
}

ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, write, int, const void *, size_t);
    off_t at = trace < 0 ? 0 : lseek(fd, 0, SEEK_CUR);
    ssize_t done = real(fd, data, size);
    struct iovec part = {(void *)data, size};
    if (at >= 0) wrote(fd, &part, 1, at, done, 0);
    return done;
}

#define OF_FILE(name, kind)                                                               \
    int name(int fd) {                                                                    \
        REAL(int, name, int);                                                             \
        int done = real(fd);                                                              \
        char buffer[PATH_MAX];                                                            \
        const char *path = path_of(fd, buffer);                                           \
        if (path && !done) note(kind, 0, path, 0, 0, 0, 0);                               \
        return done;                                                                      \
    }
OF_FILE(fdatasync, FLUSH)
OF_FILE(fsync, FLUSH)

#define SIZED(name, kind, ...)                                                            \
    {                                                                                     \
        char buffer[PATH_MAX];                                                            \
        const char *path = path_of(fd, buffer);                                           \
        if (path && !done) note(kind, 0, path, size, 0, 0, 0);                            \
        return done;                                                                      \
    }

int posix_fallocate(int fd, off_t at, off_t more) {
    REAL(int, posix_fallocate, int, off_t, off_t);
    int done = real(fd, at, more);
    uint64_t size = at + more;
    SIZED(posix_fallocate, ALLOCATE)
}
int posix_fallocate64(int fd, off_t at, off_t more) { return posix_fallocate(fd, at, more); }

int ftruncate(int fd, off_t size) {
    REAL(int, ftruncate, int, off_t);
    int done = real(fd, size);
    SIZED(ftruncate, TRUNCATE)
}
int ftruncate64(int fd, off_t size) { return ftruncate(fd, size); }

int unlink(const char *name) {
    REAL(int, unlink, const char *);
    int done = real(name);
    if (trace >= 0 && !done && !strncmp(name, root, strlen(root))) note(UNLINK, 0, name + strlen(root), 0, 0, 0, 0);
    return done;
}
