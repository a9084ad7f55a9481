/* The floor of `make bench`: the least that any broker does for the same clients, with the same system calls.
 *
 * One thread, one epoll. It knows no permissions, limits, patterns or accounts, and trusts what it reads. A publish goes to
 * the subscriptions of its very subject (or of `<prefix>.*` for inboxes) by scatter-gather writes, without a copy. Publishes to
 * `bench.durable` and below are appended to a file, the file is flushed once for all that was readable, and then they are
 * acknowledged as JetStream does.
 *
 *     floor -c CONFIG     the port is that of `listen: "127.0.0.1:PORT"`; the file lies beside CONFIG
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CONNECTIONS = 4096, SUBSCRIPTIONS = 4096, READ = 256 * 1024, FRAME = 2 * 1024 * 1024, VECTORS = 512, TEXT = 160, ACKS = 64 * 1024 };

struct connection {
    char *in;
    size_t kept;
    struct iovec out[VECTORS];
    char heads[VECTORS / 2][TEXT];
    int vectors, headed;
    char *acks; /* acknowledgements that wait for the flush */
    size_t acks_size, acks_room;
};

struct subscription {
    int fd;
    int size, is_inbox;
    char subject[TEXT], sid[16];
};

static struct connection *connections[CONNECTIONS];
static struct subscription subscriptions[SUBSCRIPTIONS];
static int subscribed, file;
static int waiting[CONNECTIONS], waits; /* whose acknowledgements wait */
static struct iovec records[VECTORS];
static int recorded;
static unsigned long sequence;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void write_all(int fd, struct iovec *vector, int count, int is_file) {
    while (count > 0) {
        ssize_t sent = writev(fd, vector, count);
        if (sent < 0) {
            struct pollfd wait = {fd, POLLOUT, 0};
            if (is_file || (errno != EAGAIN && errno != EINTR)) {
                if (is_file)
                    die("write");
                return;
            }
            poll(&wait, 1, -1);
            continue;
        }
        while (count > 0 && (size_t)sent >= vector->iov_len) {
            sent -= vector->iov_len;
            vector++, count--;
        }
        if (count > 0) {
            vector->iov_base = (char *)vector->iov_base + sent;
            vector->iov_len -= sent;
        }
    }
}

static void flush_out(int fd) {
    struct connection *to = connections[fd];
    if (to && to->vectors)
        write_all(fd, to->out, to->vectors, 0);
    if (to)
        to->vectors = to->headed = 0;
}

static void flush_all(void) {
    for (int index = 0; index < subscribed; index++)
        flush_out(subscriptions[index].fd);
}

static void flush_records(void) {
    if (recorded)
        write_all(file, records, recorded, 1);
    recorded = 0;
}

static void say(int fd, const char *text, size_t size) {
    struct iovec one = {(void *)text, size};
    write_all(fd, &one, 1, 0);
}

static int is_for(struct subscription *sub, const char *subject, int size) {
    if (!sub->is_inbox)
        return sub->size == size && !memcmp(sub->subject, subject, size);
    return size > sub->size && !memcmp(sub->subject, subject, sub->size) && !memchr(subject + sub->size, '.', size - sub->size);
}

/* Deliver a payload, its line end included. */
static void deliver(const char *subject, int size, const char *reply, int reply_size, char *payload, size_t length, const char *digits, int digits_size) {
    for (int index = 0; index < subscribed; index++) {
        struct subscription *sub = subscriptions + index;
        if (!is_for(sub, subject, size))
            continue;
        struct connection *to = connections[sub->fd];
        if (to->vectors + 2 > VECTORS)
            flush_out(sub->fd);
        char *head = to->heads[to->headed++], *end = mempcpy(head, "MSG ", 4);
        end = mempcpy(end, subject, size);
        *end++ = ' ';
        end = mempcpy(end, sub->sid, strlen(sub->sid));
        *end++ = ' ';
        if (reply_size) {
            end = mempcpy(end, reply, reply_size);
            *end++ = ' ';
        }
        end = mempcpy(end, digits, digits_size);
        end = mempcpy(end, "\r\n", 2);
        to->out[to->vectors++] = (struct iovec){head, end - head};
        to->out[to->vectors++] = (struct iovec){payload, length};
    }
}

static void acknowledge(int fd, const char *reply, int reply_size) {
    struct connection *from = connections[fd];
    char body[64];
    const char *sid = "1";
    int size = snprintf(body, sizeof body, "{\"stream\":\"BENCH\",\"seq\":%lu}", ++sequence);
    if (from->acks_size + reply_size + 128 > from->acks_room)
        from->acks = realloc(from->acks, from->acks_room += ACKS);
    if (!from->acks_size)
        waiting[waits++] = fd;
    from->acks_size += sprintf(from->acks + from->acks_size, "MSG %.*s %s %d\r\n%s\r\n", reply_size, reply, sid, size, body);
}

static void store(int fd, const char *reply, int reply_size, char *payload, size_t length) {
    if (recorded == VECTORS)
        flush_records();
    records[recorded++] = (struct iovec){payload, length};
    acknowledge(fd, reply, reply_size);
}

static void subscribe(int fd, char *arguments) {
    struct subscription *sub = subscriptions + subscribed;
    char *subject = strtok(arguments, " "), *sid = strtok(NULL, " \r");
    if (!subject || !sid || subscribed == SUBSCRIPTIONS || strlen(subject) >= TEXT || strlen(sid) >= sizeof sub->sid)
        return;
    sub->fd = fd;
    sub->size = strlen(subject);
    sub->is_inbox = sub->size > 2 && !strcmp(subject + sub->size - 2, ".*");
    sub->size -= sub->is_inbox;
    memcpy(sub->subject, subject, sub->size);
    strcpy(sub->sid, sid);
    subscribed++;
}

/* Handle the whole frames in [data, data + size); return how many bytes they are. */
static size_t frames(int fd, char *data, size_t size) {
    char *at = data, *end = data + size;
    while (at < end) {
        char *line_end = memchr(at, '\n', end - at);
        if (!line_end)
            break;
        if (at[0] == 'P' && at[1] == 'U') {
            char *fields[3], *field = at + 4;
            int sizes[3], count = 0;
            while (count < 3) {
                char *stop = field;
                while (*stop != ' ' && *stop != '\r')
                    stop++;
                fields[count] = field;
                sizes[count++] = stop - field;
                if (*stop == '\r')
                    break;
                field = stop + 1;
            }
            size_t length = strtoul(fields[count - 1], NULL, 10);
            char *payload = line_end + 1;
            if (payload + length + 2 > end)
                break;
            char *reply = count == 3 ? fields[1] : "";
            int reply_size = count == 3 ? sizes[1] : 0;
            if (sizes[0] >= 13 && !memcmp(fields[0], "bench.durable", 13))
                store(fd, reply, reply_size, payload, length);
            else if (sizes[0] > 4 && !memcmp(fields[0], "$JS.", 4))
                deliver(reply, reply_size, "", 0, "{}\r\n", 4, "2", 1);
            else
                deliver(fields[0], sizes[0], reply, reply_size, payload, length + 2, fields[count - 1], sizes[count - 1]);
            at = payload + length + 2;
            continue;
        }
        if (at[0] == 'P' && at[1] == 'I') {
            flush_out(fd);
            say(fd, "PONG\r\n", 6);
        } else if (at[0] == 'S') {
            *line_end = 0;
            subscribe(fd, at + 4);
        }
        at = line_end + 1;
    }
    return at - data;
}

static void forget(int fd) {
    int kept = 0;
    for (int index = 0; index < subscribed; index++)
        if (subscriptions[index].fd != fd)
            subscriptions[kept++] = subscriptions[index];
    subscribed = kept;
    close(fd);
    free(connections[fd]->in);
    free(connections[fd]->acks);
    free(connections[fd]);
    connections[fd] = NULL;
}

static void readable(int fd) {
    struct connection *from = connections[fd];
    ssize_t size = recv(fd, from->in + from->kept, READ, 0);
    if (size <= 0) {
        if (size == 0 || (errno != EAGAIN && errno != EINTR))
            forget(fd);
        return;
    }
    size_t held = from->kept + size, used = frames(fd, from->in, held);
    flush_all(); /* before the buffer is used again */
    flush_records();
    from->kept = held - used;
    memmove(from->in, from->in + used, from->kept);
}

static void greet(int listener, int epoll) {
    static const char info[] = "INFO {\"server_id\":\"FLOOR\",\"version\":\"0\",\"max_payload\":1048576,\"headers\":true}\r\n";
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK), on = 1;
    if (fd < 0 || fd >= CONNECTIONS)
        return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    connections[fd] = calloc(1, sizeof *connections[fd]);
    connections[fd]->in = malloc(FRAME + READ);
    struct epoll_event event = {EPOLLIN, {.fd = fd}};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    say(fd, info, sizeof info - 1);
}

static int port_in(const char *path) {
    char line[512];
    int port = 0;
    FILE *config = fopen(path, "r");
    if (!config)
        die(path);
    while (!port && fgets(line, sizeof line, config))
        sscanf(line, "listen: \"127.0.0.1:%d", &port);
    fclose(config);
    return port;
}

int main(int count, char **arguments) {
    char path[4096];
    if (count != 3 || strcmp(arguments[1], "-c"))
        return 2;
    snprintf(path, sizeof path, "%s.floor", arguments[2]);
    file = open(path, O_CREAT | O_WRONLY | O_APPEND, 0600);
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1, epoll = epoll_create1(0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port_in(arguments[2])), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (file < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 1024))
        die("floor");
    struct epoll_event event = {EPOLLIN, {.fd = listener}}, found[64];
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int ready = epoll_wait(epoll, found, 64, -1);
        for (int index = 0; index < ready; index++) {
            if (found[index].data.fd == listener)
                greet(listener, epoll);
            else if (connections[found[index].data.fd])
                readable(found[index].data.fd);
        }
        if (waits && fdatasync(file))
            die("fdatasync");
        for (int index = 0; index < waits; index++) {
            struct connection *to = connections[waiting[index]];
            if (to && to->acks_size) {
                say(waiting[index], to->acks, to->acks_size);
                to->acks_size = 0;
            }
        }
        waits = 0;
    }
}
