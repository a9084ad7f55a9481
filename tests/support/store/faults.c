/* Makes the n-th call that changes a file fail: preloaded before libc, armed through ctypes.
 *
 *   fault_arm(n, error, times, partial): from the n-th call on (1 = the next), `times` calls fail with errno `error`; with
 *   `partial`, the first of them writes half of what it was given and says so.
 *   fault_calls(): calls counted since then.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static long calls, from, times_left;
static int error_number, partial_first;

void fault_arm(long n, int error, long times, int partial) {
    calls = 0;
    from = n;
    error_number = error;
    times_left = n ? times : 0;
    partial_first = partial;
}

long fault_calls(void) { return calls; }

/* 0: go on; 1: fail; 2: write half */
static int strikes(void) {
    calls++;
    if (!times_left || calls < from) return 0;
    times_left--;
    if (partial_first) {
        partial_first = 0;
        return 2;
    }
    errno = error_number;
    return 1;
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

#define PWRITE(name)                                                                  \
    ssize_t name(int fd, const void *data, size_t size, off_t at) {                   \
        REAL(name);                                                                   \
        int strike = strikes();                                                       \
        if (strike == 1) return -1;                                                   \
        return real(fd, data, strike == 2 ? size / 2 : size, at);                     \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    REAL(pwritev);
    int strike = strikes();
    if (strike == 1) return -1;
    return real(fd, parts, strike == 2 && count > 1 ? count / 2 : count, at);
}

#define PWRITEV2(name)                                                                                \
    ssize_t name(int fd, const struct iovec *parts, int count, off_t at, int flags) {                 \
        REAL(name);                                                                                   \
        int strike = strikes();                                                                       \
        if (strike == 1) return -1;                                                                   \
        struct iovec half = {parts->iov_base, parts->iov_len / 2};                                    \
        return strike == 2 ? real(fd, &half, 1, at, flags) : real(fd, parts, count, at, flags);       \
    }
PWRITEV2(pwritev2)
PWRITEV2(pwritev64v2)

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev);
    int strike = strikes();
    if (strike == 1) return -1;
    return real(fd, parts, strike == 2 && count > 1 ? count / 2 : count);
}

int fdatasync(int fd) {
    REAL(fdatasync);
    return strikes() == 1 ? -1 : real(fd);
}

int fsync(int fd) {
    REAL(fsync);
    return strikes() == 1 ? -1 : real(fd);
}

int posix_fallocate(int fd, off_t at, off_t size) {
    REAL(posix_fallocate);
    return strikes() == 1 ? error_number : real(fd, at, size);
}
