/* A disk with unreadable blocks: preloaded before libc. EYOT_UNREADABLE is NAME:FROM:TO, the end of a file's path and the bytes
 * of it, from FROM to before TO, at which every read fails with EIO.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int unreadable(int fd, off_t at, size_t size) {
    char name[256], link[64], path[4096];
    long long from, to;
    const char *order = getenv("EYOT_UNREADABLE");
    if (!order || sscanf(order, "%255[^:]:%lld:%lld", name, &from, &to) != 3) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    size_t wanted = strlen(name);
    if (length < (ssize_t)wanted || memcmp(path + length - wanted, name, wanted)) return 0;
    return at < to && at + (off_t)size > from;
}

#define PREAD(name)                                           \
    ssize_t name(int fd, void *to, size_t size, off_t at) {   \
        static __typeof__(name) *real;                        \
        if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name); \
        if (unreadable(fd, at, size)) {                       \
            errno = EIO;                                      \
            return -1;                                        \
        }                                                     \
        return real(fd, to, size, at);                        \
    }
PREAD(pread)
PREAD(pread64)

ssize_t read(int fd, void *to, size_t size) {
    static __typeof__(read) *real;
    if (!real) real = (__typeof__(read) *)dlsym(RTLD_NEXT, "read");
    off_t at = getenv("EYOT_UNREADABLE") ? lseek(fd, 0, SEEK_CUR) : -1;
    if (at >= 0 && unreadable(fd, at, size)) {
        errno = EIO;
        return -1;
    }
    return real(fd, to, size);
}
