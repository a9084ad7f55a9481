/* Runs a command and copies a folder before everything that the command changes in it: each copy is what a power cut would leave.
 *
 *   power_cut FOLDER COPIES COMMAND...
 *
 * COPIES/0001 and so on are the copies; COPIES/0001.unflushed names the files, by their paths in the copy, with data that nobody has
 * flushed: a power cut may leave them empty. The last copy is the folder at the end. The exit status is the command's.
 * Traces the command and all that it starts (ptrace, seccomp), so that programs of every kind are seen alike.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a call does: to the file of descriptor `at`, or to the path in argument `at` below the folder of the argument before it. */
enum kind { WRITES, FLUSHES, FLUSHES_ALL, CREATES, CHANGES };
static const struct { int number; enum kind kind; int at, at_2; } calls[] = {
    {SYS_write, WRITES, 0, -1}, {SYS_pwrite64, WRITES, 0, -1}, {SYS_writev, WRITES, 0, -1}, {SYS_pwritev, WRITES, 0, -1},
    {SYS_ftruncate, WRITES, 0, -1}, {SYS_fallocate, WRITES, 0, -1}, {SYS_sendfile, WRITES, 0, -1}, {SYS_copy_file_range, WRITES, 2, -1},
    {SYS_splice, WRITES, 2, -1}, {SYS_fsync, FLUSHES, 0, -1}, {SYS_fdatasync, FLUSHES, 0, -1}, {SYS_syncfs, FLUSHES_ALL, -1, -1},
    {SYS_sync, FLUSHES_ALL, -1, -1}, {SYS_openat, CREATES, 1, -1}, {SYS_renameat, CHANGES, 1, 3}, {SYS_renameat2, CHANGES, 1, 3},
    {SYS_linkat, CHANGES, 1, 3}, {SYS_symlinkat, CHANGES, 2, -1}, {SYS_unlinkat, CHANGES, 1, -1}, {SYS_mkdirat, CHANGES, 1, -1},
#ifdef SYS_open
    {SYS_open, CREATES, 0, -1}, {SYS_creat, CHANGES, 0, -1}, {SYS_rename, CHANGES, 0, 1}, {SYS_link, CHANGES, 0, 1},
    {SYS_symlink, CHANGES, 1, -1}, {SYS_unlink, CHANGES, 0, -1}, {SYS_mkdir, CHANGES, 0, -1}, {SYS_rmdir, CHANGES, 0, -1},
#endif
};
#define CALLS ((int)(sizeof calls / sizeof *calls))

static const char *folder, *copies;
static int copied;
static ino_t dirty[4096];
static int dirties;
static FILE *unflushed;

static void fail(const char *what) {
    fprintf(stderr, "power_cut: %s: %s\n", what, strerror(errno));
    exit(125);
}

static int is_dirty(ino_t ino) {
    for (int at = 0; at < dirties; at++)
        if (dirty[at] == ino) return 1;
    return 0;
}

static int name_unflushed(const char *path, const struct stat *file, int type, struct FTW *at) {
    (void)at;
    if (type == FTW_F && is_dirty(file->st_ino)) fprintf(unflushed, "%s\n", path + strlen(folder) + 1);
    return 0;
}

static void copy(void) {
    char to[4096];
    snprintf(to, sizeof to, "%s/%04d", copies, ++copied);
    pid_t pid = fork();
    if (pid < 0) fail("fork");
    if (pid == 0) {
        execlp("cp", "cp", "-a", "--reflink=auto", folder, to, NULL);
        _exit(127);
    }
    int status;
    if (waitpid(pid, &status, 0) != pid || status) fail("cp -a");
    strcat(to, ".unflushed");
    unflushed = fopen(to, "w");
    if (!unflushed) fail(to);
    nftw(folder, name_unflushed, 16, FTW_PHYS);
    fclose(unflushed);
}

/* The path of a link of /proc. */
static int read_link(pid_t pid, const char *name, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/%d/%s", pid, name);
    ssize_t length = readlink(link, path, size - 1);
    path[length < 0 ? 0 : length] = 0;
    return length >= 0;
}

static int is_below(const char *path) {
    size_t length = strlen(folder);
    return !strncmp(path, folder, length) && (path[length] == '/' || !path[length]);
}

/* Whether the path that the call gives lies in the folder. */
static int is_path_below(pid_t pid, const uint64_t *arguments, int at, int has_base) {
    char given[4096], base[4096], name[32];
    struct iovec here = {given, sizeof given - 1}, there = {(void *)arguments[at], sizeof given - 1};
    /* A read that would pass the end of a mapped page gives less. */
    size_t to_end = 4096 - (arguments[at] & 4095);
    struct iovec parts[2] = {{there.iov_base, to_end}, {(char *)there.iov_base + to_end, sizeof given - 1 - to_end}};
    ssize_t length = process_vm_readv(pid, &here, 1, parts, 2, 0);
    given[length < 0 ? 0 : length] = 0;
    if (given[0] == '/') return is_below(given);
    int fd = has_base ? (int)arguments[at - 1] : AT_FDCWD;
    if (fd == AT_FDCWD) strcpy(name, "cwd");
    else snprintf(name, sizeof name, "fd/%d", fd);
    return read_link(pid, name, base, sizeof base) && is_below(base);
}

/* The inode of an open regular file of the folder; 0: it is none. */
static ino_t inode_of(pid_t pid, int fd) {
    char name[32], path[4096], link[64];
    struct stat file;
    snprintf(name, sizeof name, "fd/%d", fd);
    if (!read_link(pid, name, path, sizeof path) || !is_below(path)) return 0;
    snprintf(link, sizeof link, "/proc/%d/fd/%d", pid, fd);
    return stat(link, &file) || !S_ISREG(file.st_mode) ? 0 : file.st_ino;
}

static int has_base(int number) {
    return number == SYS_openat || number == SYS_renameat || number == SYS_renameat2 || number == SYS_linkat || number == SYS_symlinkat ||
           number == SYS_unlinkat || number == SYS_mkdirat;
}

static void before_write(pid_t pid, int fd) {
    ino_t ino = inode_of(pid, fd);
    if (!ino || is_dirty(ino)) return;
    copy();
    if (dirties == (int)(sizeof dirty / sizeof *dirty)) fail("too many files");
    dirty[dirties++] = ino;
}

static void before_flush(pid_t pid, int fd) {
    ino_t ino = inode_of(pid, fd);
    if (!ino || !is_dirty(ino)) return;
    copy();
    for (int at = 0; at < dirties; at++)
        if (dirty[at] == ino) dirty[at] = dirty[--dirties];
}

static void before_call(pid_t pid, int number, const uint64_t *arguments) {
    for (int at = 0; at < CALLS; at++) {
        if (calls[at].number != number) continue;
        int base = has_base(number), first = calls[at].at, second = calls[at].at_2;
        switch (calls[at].kind) {
        case WRITES: before_write(pid, (int)arguments[first]); return;
        case FLUSHES: before_flush(pid, (int)arguments[first]); return;
        case FLUSHES_ALL:
            if (dirties) copy();
            dirties = 0;
            return;
        case CREATES:
            if (!((int)arguments[first + 1] & (O_CREAT | O_TRUNC))) return;
            /* fall through */
        case CHANGES:
            if (is_path_below(pid, arguments, first, base) || (second >= 0 && is_path_below(pid, arguments, second, base))) copy();
            return;
        }
    }
}

/* In the child: stop at each of the calls. */
static void start(char **command) {
    struct sock_filter filter[2 * CALLS + 2];
    int size = 0;
    filter[size++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int at = 0; at < CALLS; at++) {
        filter[size++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[at].number, 0, 1);
        filter[size++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
    }
    filter[size++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {size, filter};
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL)) fail("ptrace");
    raise(SIGSTOP);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) fail("seccomp");
    execvp(*command, command);
    fail(*command);
}

int main(int count, char **words) {
    if (count < 4) return 64;
    folder = words[1];
    copies = words[2];
    pid_t first = fork();
    int status, code = 125;
    if (first < 0) fail("fork");
    if (first == 0) start(words + 3);
    if (waitpid(first, &status, 0) != first) fail("waitpid");
    long options = PTRACE_O_EXITKILL | PTRACE_O_TRACESECCOMP | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE;
    if (ptrace(PTRACE_SETOPTIONS, first, NULL, options)) fail("ptrace");
    ptrace(PTRACE_CONT, first, NULL, 0);
    for (;;) {
        pid_t pid = waitpid(-1, &status, __WALL);
        if (pid < 0) break;
        if (!WIFSTOPPED(status)) {
            if (pid == first) code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            continue;
        }
        int signal = WSTOPSIG(status), event = status >> 16;
        if (event == PTRACE_EVENT_SECCOMP) {
            struct __ptrace_syscall_info info;
            if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info) > 0 && info.op == PTRACE_SYSCALL_INFO_SECCOMP)
                before_call(pid, (int)info.seccomp.nr, (const uint64_t *)info.seccomp.args);
        }
        /* A new process begins with SIGSTOP, which is no signal of anybody's. */
        ptrace(PTRACE_CONT, pid, NULL, event || signal == SIGSTOP || signal == SIGTRAP ? 0 : signal);
    }
    copy();
    return code;
}
