/* The floor of the rows of QoS 1: the least that any broker does for the same publishers, with the same system calls.
 *
 * One thread, one epoll. It knows CONNECT and PUBLISH of QoS 1, and trusts what it reads. What all sockets that were readable
 * brought is one write to a file, which flushes it; then each publish has its PUBACK.
 *
 *     mqtt_floor PORT FILE
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { READ = 64 * 1024, BLOCK = 4096, FILE_BYTES = 64 << 20, READY = 1024, STEP = 1 << 20 };

static uint8_t records[READY * READ];
static struct {
    int fd;
    uint8_t puback[4];
} answers[READY * READ / 8];
static size_t recorded;
static int answered;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void watch(int set, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event)) die("epoll_ctl");
}

static void greet(int set, int listener) {
    int fd, one = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        watch(set, fd);
    }
}

/* Whole packets, as the load generator sends them. */
static void take(int fd) {
    uint8_t *at = records + recorded, *packet = at, *end;
    ssize_t got = recv(fd, at, READ, 0);
    if (got <= 0) {
        close(fd);
        return;
    }
    for (end = at + got; packet < end;) {
        size_t left = packet[1] & 0x7f, head = 2;
        if (packet[1] & 0x80) left |= (size_t)packet[2] << 7, head = 3;
        uint8_t *body = packet + head;
        if (packet[0] == 0x10) {
            if (send(fd, "\x20\x02\0\0", 4, 0) != 4) die("send");
        } else if (packet[0] == 0x32) {
            size_t topic = body[0] << 8 | body[1];
            answers[answered].fd = fd;
            memcpy(answers[answered++].puback, (uint8_t[]){0x40, 2, body[2 + topic], body[3 + topic]}, 4);
            recorded = end - records;
        }
        packet = body + left;
    }
}

int main(int count, char **words) {
    struct epoll_event ready[READY];
    struct sockaddr_in at = {.sin_family = AF_INET};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), set = epoll_create1(0), one = 1, file;
    off_t end = 0;
    if (count != 3) return 2;
    signal(SIGPIPE, SIG_IGN);
    file = open(words[2], O_RDWR | O_CREAT, 0600);
    for (off_t each = 0; each < FILE_BYTES; each += STEP)
        if (pwrite(file, records, STEP, each) != STEP) die("write");
    if (fsync(file)) die("fsync");
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    at.sin_port = htons(atoi(words[1]));
    if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 4096)) die("listen");
    watch(set, listener);
    for (;;) {
        int found = epoll_wait(set, ready, READY, -1);
        recorded = 0, answered = 0;
        for (int i = 0; i < found; i++) {
            if (ready[i].data.fd == listener)
                greet(set, listener);
            else
                take(ready[i].data.fd);
        }
        if (!answered) continue;
        struct iovec data = {records, (recorded + BLOCK - 1) / BLOCK * BLOCK};
        if (end + (off_t)data.iov_len > FILE_BYTES) end = 0;
        if (pwritev2(file, &data, 1, end, RWF_DSYNC) != (ssize_t)data.iov_len) die("pwritev2");
        end += data.iov_len;
        for (int i = 0; i < answered; i++)
            if (send(answers[i].fd, answers[i].puback, 4, 0) != 4) die("send");
    }
}
