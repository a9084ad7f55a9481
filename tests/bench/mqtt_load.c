/* Load of MQTT 3.1.1 clients on one epoll, so that the generator costs little beside the server it measures.
 *
 *   mqtt_load fan-out PORT SUBSCRIBERS PAYLOAD COUNT TOPICS  QoS 0 from one publisher, topics in turn; prints seconds
 *   mqtt_load publish PORT CONNECTIONS PAYLOAD COUNT TOPIC   QoS 1, one in flight each; prints seconds
 *   mqtt_load connect PORT CONNECTIONS clean|kept|again  prints seconds; holds the connections until its input ends
 *   mqtt_load queue PORT CLIENT TOPIC                    leaves a persistent session behind, subscribed with QoS 1
 *   mqtt_load kill PORT CONNECTIONS PAYLOAD MILLISECONDS PID TOPIC CLIENT
 *       QoS 1, one in flight each, then SIGKILL for PID; prints how many were acknowledged. A line of input says that the
 *       server runs again: the session CLIENT takes its queue; prints how many of the acknowledged messages came.
 *
 * Whatever a server does against the protocol ends the program with a message.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 120000, WINDOW = 2048, CONNECTING = 256, BUFFER = 1 << 18, QUIET_MS = 3000 };

static int port;
static uint8_t buffer[BUFFER];

static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    exit(1);
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

/* -- packets ---------------------------------------------------------------------------------------------------------- */

static uint8_t *put16(uint8_t *to, unsigned value) {
    *to++ = value >> 8;
    *to++ = value;
    return to;
}

static uint8_t *put_text(uint8_t *to, const char *text) {
    size_t size = strlen(text);
    to = put16(to, size);
    memcpy(to, text, size);
    return to + size;
}

static uint8_t *put_head(uint8_t *to, int first, size_t left) {
    *to++ = first;
    do {
        *to = left & 0x7f;
        left >>= 7;
        *to++ |= left ? 0x80 : 0;
    } while (left);
    return to;
}

static size_t connect_packet(uint8_t *to, const char *client, int clean) {
    uint8_t *at = put_head(to, 0x10, 12 + strlen(client));
    at = put_text(at, "MQTT");
    *at++ = 4;
    *at++ = clean ? 2 : 0;
    return put_text(put16(at, 0), client) - to;
}

static size_t subscribe_packet(uint8_t *to, const char *topic, int qos) {
    uint8_t *at = put_head(to, 0x82, 5 + strlen(topic));
    at = put_text(put16(at, 1), topic);
    *at++ = qos;
    return at - to;
}

static size_t publish_packet(uint8_t *to, const char *topic, int qos, unsigned id, const void *payload, size_t size) {
    uint8_t *at = put_head(to, 0x30 | qos << 1, 2 + strlen(topic) + (qos ? 2 : 0) + size);
    at = put_text(at, topic);
    if (qos) at = put16(at, id);
    memcpy(at, payload, size);
    return at + size - to;
}

/* -- connections ------------------------------------------------------------------------------------------------------ */

static void send_all(int fd, const void *data, size_t size) {
    const uint8_t *at = data;
    while (size) {
        ssize_t sent = send(fd, at, size, MSG_NOSIGNAL);
        if (sent < 0) fail("send: %s", strerror(errno));
        at += sent;
        size -= sent;
    }
}

static void receive(int fd, void *to, size_t size) {
    uint8_t *at = to;
    while (size) {
        ssize_t got = recv(fd, at, size, 0);
        if (got <= 0) fail("the server closed the connection");
        at += got;
        size -= got;
    }
}

static int dial(int number, int flags) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0), one = 1;
    if (fd < 0) fail("socket: %s", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    /* 127.0.0.x: more connections than one address has ports */
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(0x7f000001 + number % 4)};
    if (connect(fd, (struct sockaddr *)&to, sizeof to) && errno != EINPROGRESS) fail("connect: %s", strerror(errno));
    return fd;
}

static void expect(int fd, int first, int size, int last) {
    uint8_t answer[8];
    receive(fd, answer, size);
    if (answer[0] != first || answer[size - 1] != last) fail("answer %02x ... %02x", answer[0], answer[size - 1]);
}

static int client(const char *name, int clean) {
    uint8_t packet[512];
    int fd = dial(0, 0);
    send_all(fd, packet, connect_packet(packet, name, clean));
    expect(fd, 0x20, 4, 0);
    return fd;
}

static void subscribe(int fd, const char *topic, int qos) {
    uint8_t packet[512];
    send_all(fd, packet, subscribe_packet(packet, topic, qos));
    expect(fd, 0x90, 5, qos);
}

static void watch(int set, int fd, uint32_t events, uint32_t tag, int how) {
    struct epoll_event event = {.events = events, .data.u32 = tag};
    if (epoll_ctl(set, how, fd, &event)) fail("epoll: %s", strerror(errno));
}

static int ready(int set, struct epoll_event *events, int most, int patience) {
    int found = epoll_wait(set, events, most, patience);
    if (found < 0) fail("epoll: %s", strerror(errno));
    if (!found && patience == PATIENCE_MS) fail("nothing came for %d s", PATIENCE_MS / 1000);
    return found;
}

/* -- fan-out ---------------------------------------------------------------------------------------------------------- */

static void fan_out(int subscribers, size_t payload, long count, int topics) {
    char name[32];
    char topic[32];
    int set = epoll_create1(0), fds[64];
    long got[64] = {0}; /* bytes */
    uint8_t one[70000];
    void *zeros = calloc(1, payload);
    size_t size = publish_packet(one, "bench/fan/000", 0, 0, zeros, payload);
    const int messages = WINDOW / 4 / topics * topics;
    uint8_t *chunk = malloc(messages * size);
    for (int i = 0; i < messages; i++) {
        snprintf(topic, sizeof topic, "bench/fan/%03d", i % topics);
        publish_packet(chunk + i * size, topic, 0, 0, zeros, payload);
    }
    for (int i = 0; i < subscribers; i++) {
        snprintf(name, sizeof name, "subscriber-%d", i);
        fds[i] = client(name, 1);
        subscribe(fds[i], "bench/fan/+", 0);
        watch(set, fds[i], EPOLLIN, i, EPOLL_CTL_ADD);
    }
    int publisher = client("publisher", 1);
    fcntl(publisher, F_SETFL, O_NONBLOCK);
    watch(set, publisher, EPOLLOUT, 64, EPOLL_CTL_ADD);
    long sent = 0, allowed = 0; /* bytes of the publisher: sent, and allowed by the slowest subscriber */
    const long total = count * size;
    int writing = 1;
    double begun = now();
    for (;;) {
        long slowest = total;
        for (int i = 0; i < subscribers; i++) slowest = got[i] < slowest ? got[i] : slowest;
        if (slowest >= total) break;
        allowed = slowest - slowest % (long)size + WINDOW * (long)size;
        allowed = allowed < total ? allowed : total;
        int full = 0;
        while (sent < allowed && !full) {
            long within = sent % (messages * (long)size), most = messages * (long)size - within;
            ssize_t put = send(publisher, chunk + within, allowed - sent < most ? allowed - sent : most, MSG_NOSIGNAL);
            if (put < 0 && errno != EAGAIN) fail("send: %s", strerror(errno));
            full = put < 0;
            sent += put > 0 ? put : 0;
        }
        if (writing != full) watch(set, publisher, (writing = full) ? EPOLLOUT : 0, 64, EPOLL_CTL_MOD);
        struct epoll_event events[80];
        int found = ready(set, events, 80, PATIENCE_MS);
        for (int i = 0; i < found; i++) {
            int at = events[i].data.u32;
            if (at == 64) continue;
            ssize_t read = recv(fds[at], buffer, BUFFER, MSG_DONTWAIT);
            if (read <= 0) fail("the server closed the connection of a subscriber");
            if (!got[at] && (read < (ssize_t)size || memcmp(buffer, one, size))) fail("not the message that was published");
            got[at] += read;
            if (got[at] > total) fail("more than was published");
        }
    }
    printf("%.6f\n", now() - begun);
}

/* -- publish ---------------------------------------------------------------------------------------------------------- */

struct publisher {
    int fd, part; /* part: bytes of a PUBACK that came */
    unsigned id;
    uint8_t ack[4];
    uint64_t number; /* of the message in flight */
};

static struct publisher *publishers(int set, int connections) {
    struct publisher *all = calloc(connections, sizeof *all);
    for (int i = 0; i < connections; i++) {
        char name[32];
        snprintf(name, sizeof name, "publisher-%d", i);
        all[i].fd = client(name, 1);
        watch(set, all[i].fd, EPOLLIN, i, EPOLL_CTL_ADD);
    }
    return all;
}

static int publish_next(struct publisher *each, const char *topic, uint64_t number, uint8_t *payload, size_t size) {
    uint8_t packet[70000];
    each->id = each->id % 65000 + 1;
    each->number = number;
    memcpy(payload, &number, sizeof number);
    size = publish_packet(packet, topic, 1, each->id, payload, size);
    return send(each->fd, packet, size, MSG_NOSIGNAL) == (ssize_t)size;
}

/* 1: the message in flight is acknowledged; 0: not yet; -1: the connection is over */
static int acknowledged(struct publisher *each) {
    ssize_t got = recv(each->fd, each->ack + each->part, 4 - each->part, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return 0;
    if (got <= 0) return -1;
    each->part += got;
    if (each->part < 4) return 0;
    each->part = 0;
    if (each->ack[0] != 0x40 || (unsigned)(each->ack[2] << 8 | each->ack[3]) != each->id) fail("not the PUBACK of the message");
    return 1;
}

static void publish(int connections, size_t payload_size, long count, const char *topic) {
    int set = epoll_create1(0);
    struct publisher *all = publishers(set, connections);
    uint8_t *payload = calloc(1, payload_size);
    struct epoll_event events[1024];
    long sent = 0, acked = 0;
    double begun = now();
    for (int i = 0; i < connections && sent < count; i++) publish_next(&all[i], topic, sent++, payload, payload_size);
    while (acked < count) {
        int found = ready(set, events, 1024, PATIENCE_MS);
        for (int i = 0; i < found; i++) {
            struct publisher *each = &all[events[i].data.u32];
            int answer = acknowledged(each);
            if (answer < 0) fail("the server closed the connection");
            acked += answer;
            if (answer && sent < count && !publish_next(each, topic, sent++, payload, payload_size)) fail("send: %s", strerror(errno));
        }
    }
    printf("%.6f\n", now() - begun);
}

/* -- connect ---------------------------------------------------------------------------------------------------------- */

struct connection {
    int fd, got, wanted; /* bytes of answers */
    uint8_t answer[16];
};

static void connect_all(int connections, const char *how) {
    int again = !strcmp(how, "again"), clean = !strcmp(how, "clean"), set = epoll_create1(0), begun = 0, served = 0;
    struct connection *all = calloc(connections, sizeof *all);
    struct epoll_event events[1024];
    double from = now();
    while (served < connections) {
        for (; begun < connections && begun - served < CONNECTING; begun++) {
            all[begun].fd = dial(begun, SOCK_NONBLOCK);
            watch(set, all[begun].fd, EPOLLOUT, begun, EPOLL_CTL_ADD);
        }
        int found = ready(set, events, 1024, PATIENCE_MS);
        for (int i = 0; i < found; i++) {
            uint32_t at = events[i].data.u32;
            struct connection *each = &all[at];
            if (!each->wanted) { /* CONNECT, and what proves that the session is served: SUBSCRIBE or PINGREQ */
                uint8_t packets[512];
                char name[32], topic[64];
                snprintf(name, sizeof name, "device-%u", at);
                snprintf(topic, sizeof topic, "device/%u/commands", at);
                size_t size = connect_packet(packets, name, clean);
                if (again)
                    packets[size++] = 0xc0, packets[size++] = 0;
                else
                    size += subscribe_packet(packets + size, topic, clean ? 0 : 1);
                each->wanted = again ? 6 : 9;
                if (send(each->fd, packets, size, MSG_NOSIGNAL) != (ssize_t)size) fail("send: %s", strerror(errno));
                watch(set, each->fd, EPOLLIN, at, EPOLL_CTL_MOD);
                continue;
            }
            ssize_t got = recv(each->fd, each->answer + each->got, sizeof each->answer - each->got, 0);
            if (got <= 0) fail("the server closed connection %u", at);
            each->got += got;
            if (each->got < each->wanted) continue;
            if (each->answer[0] != 0x20 || each->answer[2] != again || each->answer[3] || each->answer[4] != (again ? 0xd0 : 0x90))
                fail("CONNACK of connection %u: %02x %02x", at, each->answer[2], each->answer[3]);
            served++;
            watch(set, each->fd, 0, at, EPOLL_CTL_DEL);
        }
    }
    printf("%.6f\n", now() - from);
    fflush(stdout);
    while (read(0, buffer, sizeof buffer) > 0) continue;
}

/* -- kill ------------------------------------------------------------------------------------------------------------- */

static void count_queue(const char *name, uint8_t *acked, uint64_t most) {
    uint8_t packet[512];
    int fd = dial(0, 0);
    send_all(fd, packet, connect_packet(packet, name, 0));
    receive(fd, packet, 4); /* whether there is a session shows in what comes */
    size_t held = 0;
    long came = 0;
    for (;;) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (!poll(&wait, 1, QUIET_MS)) break;
        ssize_t got = recv(fd, buffer + held, BUFFER - held, 0);
        if (got <= 0) fail("the server closed the connection");
        held += got;
        size_t at = 0;
        while (held - at > 2) {
            size_t left = buffer[at + 1] & 0x7f, head = 2;
            if (buffer[at + 1] & 0x80) left |= buffer[at + 2] << 7, head = 3;
            if (held - at < head + left) break;
            uint8_t *body = buffer + at + head;
            size_t topic = body[0] << 8 | body[1];
            uint64_t number;
            memcpy(&number, body + 4 + topic, sizeof number);
            uint8_t puback[4] = {0x40, 2, body[2 + topic], body[3 + topic]};
            send_all(fd, puback, 4);
            if (number < most && acked[number]) came++, acked[number] = 0;
            at += head + left;
        }
        memmove(buffer, buffer + at, held -= at);
    }
    printf("%ld\n", came);
}

static void kill_server(int connections, size_t payload_size, int milliseconds, pid_t pid, const char *topic, const char *name) {
    int set = epoll_create1(0), living = connections;
    struct publisher *all = publishers(set, connections);
    struct epoll_event events[1024];
    uint8_t *payload = calloc(1, payload_size);
    const uint64_t most = 4000000;
    uint8_t *acked = calloc(1, most);
    uint64_t sent = 0;
    long count = 0;
    double until = now() + milliseconds / 1e3;
    int killed = 0;
    for (int i = 0; i < connections; i++) publish_next(&all[i], topic, sent++, payload, payload_size);
    while (living) {
        if (!killed && now() >= until) {
            if (kill(pid, SIGKILL)) fail("kill: %s", strerror(errno));
            killed = 1;
        }
        int found = ready(set, events, 1024, killed ? PATIENCE_MS : 10);
        for (int i = 0; i < found; i++) {
            struct publisher *each = &all[events[i].data.u32];
            int answer = acknowledged(each);
            if (answer < 0) {
                if (!killed) fail("the server closed the connection");
                watch(set, each->fd, 0, 0, EPOLL_CTL_DEL);
                living--;
            } else if (answer) {
                acked[each->number] = 1;
                count++;
                if (sent >= most) fail("more messages than expected");
                publish_next(each, topic, sent++, payload, payload_size); /* fails once the server is gone */
            }
        }
    }
    printf("%ld\n", count);
    fflush(stdout);
    if (!fgets((char *)buffer, BUFFER, stdin)) fail("the server did not come back");
    count_queue(name, acked, most);
}

int main(int count, char **words) {
    if (count < 4) fail("usage: see the source");
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    port = atoi(words[2]);
    if (!strcmp(words[1], "fan-out") && count == 7)
        fan_out(atoi(words[3]), atol(words[4]), atol(words[5]), atoi(words[6]));
    else if (!strcmp(words[1], "publish") && count == 7)
        publish(atoi(words[3]), atol(words[4]), atol(words[5]), words[6]);
    else if (!strcmp(words[1], "connect") && count == 5)
        connect_all(atoi(words[3]), words[4]);
    else if (!strcmp(words[1], "queue") && count == 5)
        subscribe(client(words[3], 0), words[4], 1);
    else if (!strcmp(words[1], "kill") && count == 9)
        kill_server(atoi(words[3]), atol(words[4]), atoi(words[5]), atoi(words[6]), words[7], words[8]);
    else
        fail("usage: see the source");
    return 0;
}
