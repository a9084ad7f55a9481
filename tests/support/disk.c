/* A disk that does what a file says: preloaded before libc into a whole daemon.
 *
 * EYOT_DISK names the file. While it holds `hang`, writes to files and flushes wait; while it holds a number, they and allocations
 * fail with that errno; while it is empty or missing all is well.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

/* 0: all is well; else what errno is to be. */
static int trouble(void) {
    const char *path = getenv("EYOT_DISK");
    char word[16];
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

#define REAL(name) static __typeof__(name) *real; if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define FAIL(value) do { int error = trouble(); if (error) { errno = error; return value; } } while (0)

#define PWRITE(name)                                                \
    ssize_t name(int fd, const void *data, size_t size, off_t at) { \
        REAL(name);                                                 \
        FAIL(-1);                                                   \
        return real(fd, data, size, at);                            \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    REAL(pwritev);
    FAIL(-1);
    return real(fd, parts, count, at);
}

#define PWRITEV2(name)                                                                \
    ssize_t name(int fd, const struct iovec *parts, int count, off_t at, int flags) { \
        REAL(name);                                                                   \
        FAIL(-1);                                                                     \
        return real(fd, parts, count, at, flags);                                     \
    }
PWRITEV2(pwritev2)
PWRITEV2(pwritev64v2)

int fdatasync(int fd) {
    REAL(fdatasync);
    FAIL(-1);
    return real(fd);
}

int fsync(int fd) {
    REAL(fsync);
    FAIL(-1);
    return real(fd);
}

int posix_fallocate(int fd, off_t at, off_t size) {
    REAL(posix_fallocate);
    int error = trouble();
    return error ? error : real(fd, at, size);
}
