/* A disk that does what a file says: preloaded before libc into a whole daemon.
 *
 * EYOT_DISK names the file. While it holds `hang`, writes to files and flushes wait; while it holds a number, they and allocations
 * fail with that errno; while it is empty or missing all is well. A full disk (ENOSPC) takes what was allocated before, as file
 * systems do: writes into holes and beyond the end, and allocations, fail. `plain` is a file system that knows no flags of pwritev2,
 * `plain unflushed` one whose flushes fail besides.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

/* 0: all is well; else what errno is to be. */
static int trouble(void) {
    const char *path = getenv("EYOT_DISK");
    char word[32];
    for (;;) {
        memset(word, 0, sizeof word);
        int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        if (fd < 0) return 0;
        ssize_t size = read(fd, word, sizeof word - 1);
        close(fd);
        if (size <= 0) return 0;
        if (strncmp(word, "hang", 4)) return atoi(word);
        usleep(5000);
    }
}

/* The files of which a beginning was allocated ahead. */
static struct { dev_t dev; ino_t ino; off_t end; } ahead[512];
static int aheads;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void note_allocated(int fd, off_t end) {
    struct stat file;
    if (fstat(fd, &file)) return;
    pthread_mutex_lock(&lock);
    int at = 0;
    while (at < aheads && (ahead[at].dev != file.st_dev || ahead[at].ino != file.st_ino)) at++;
    if (at < (int)(sizeof ahead / sizeof *ahead)) {
        if (at == aheads) aheads++;
        ahead[at].dev = file.st_dev;
        ahead[at].ino = file.st_ino;
        ahead[at].end = end;
    }
    pthread_mutex_unlock(&lock);
}

static int is_allocated(int fd, off_t from, off_t to) {
    struct stat file;
    char name[64];
    if (fstat(fd, &file) || to > file.st_size) return 0;
    pthread_mutex_lock(&lock);
    for (int at = 0; at < aheads; at++)
        if (ahead[at].dev == file.st_dev && ahead[at].ino == file.st_ino && to <= ahead[at].end) {
            pthread_mutex_unlock(&lock);
            return 1;
        }
    pthread_mutex_unlock(&lock);
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    int own = open(name, O_RDONLY | O_CLOEXEC); /* its own position: that of fd stays */
    if (own < 0) return 0;
    off_t hole = lseek(own, from, SEEK_HOLE);
    close(own);
    return hole >= to;
}

/* What a write of so many bytes fails with. */
static int write_trouble(int fd, off_t at, size_t size) {
    int error = trouble();
    return error == ENOSPC && is_allocated(fd, at, at + (off_t)size) ? 0 : error;
}

static size_t total(const struct iovec *parts, int count) {
    size_t size = 0;
    for (int at = 0; at < count; at++) size += parts[at].iov_len;
    return size;
}

static int file_says(const char *wanted) {
    const char *path = getenv("EYOT_DISK");
    char word[32];
    memset(word, 0, sizeof word);
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return 0;
    ssize_t size = read(fd, word, sizeof word - 1);
    close(fd);
    return size > 0 && !strncmp(word, wanted, strlen(wanted));
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define FAIL(error_of) do { int error = error_of; if (error) { errno = error; return -1; } } while (0)

#define PWRITE(name)                                                \
    ssize_t name(int fd, const void *data, size_t size, off_t at) { \
        REAL(name);                                                 \
        FAIL(write_trouble(fd, at, size));                          \
        return real(fd, data, size, at);                            \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    REAL(pwritev);
    FAIL(write_trouble(fd, at, total(parts, count)));
    return real(fd, parts, count, at);
}

/* LMDB's way to write several pages: at the file's own position. Sockets are no disk. */
ssize_t writev(int fd, const struct iovec *parts, int count) {
    struct stat file;
    REAL(writev);
    if (!fstat(fd, &file) && S_ISREG(file.st_mode))
        FAIL(write_trouble(fd, lseek(fd, 0, SEEK_CUR), total(parts, count)));
    return real(fd, parts, count);
}

#define PWRITEV2(name)                                                                \
    ssize_t name(int fd, const struct iovec *parts, int count, off_t at, int flags) { \
        REAL(name);                                                                   \
        FAIL(flags && file_says("plain") ? EOPNOTSUPP : 0);                           \
        FAIL(write_trouble(fd, at, total(parts, count)));                             \
        return real(fd, parts, count, at, flags);                                     \
    }
PWRITEV2(pwritev2)
PWRITEV2(pwritev64v2)

/* Reads past the system's memory ask the disk; all others do not. */
#define PREADV2(name)                                                                 \
    ssize_t name(int fd, const struct iovec *parts, int count, off_t at, int flags) { \
        REAL(name);                                                                   \
        FAIL(fcntl(fd, F_GETFL) & O_DIRECT ? trouble() : 0);                          \
        return real(fd, parts, count, at, flags);                                     \
    }
PREADV2(preadv2)
PREADV2(preadv64v2)

static int flush_trouble(void) {
    int error = file_says("plain unflushed") ? EIO : trouble();
    return error == ENOSPC ? 0 : error;
}

int fdatasync(int fd) {
    REAL(fdatasync);
    FAIL(flush_trouble());
    return real(fd);
}

int fsync(int fd) {
    REAL(fsync);
    FAIL(flush_trouble());
    return real(fd);
}

int posix_fallocate(int fd, off_t at, off_t size) {
    REAL(posix_fallocate);
    int error = trouble();
    if (!error) error = real(fd, at, size);
    if (!error) note_allocated(fd, at + size);
    return error;
}
