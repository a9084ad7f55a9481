// A driver of the C client (libnats): reads one command a line on stdin, answers with one line each.
#include <nats/nats.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MOST 16
#define WORDS 8

typedef struct { char name[32]; natsConnection *nc; natsOptions *opts; } Connection;
typedef struct { char name[32]; natsConnection *nc; natsSubscription *sub; natsMsg *last; char answer[64]; } Subscription;

static Connection connections[MOST];
static Subscription subscriptions[MOST];
static char url[128];

static Connection *connection(const char *name) {
    for (int i = 0; i < MOST; i++) if (strcmp(connections[i].name, name) == 0) return &connections[i];
    for (int i = 0; i < MOST; i++) if (!connections[i].name[0]) { snprintf(connections[i].name, 32, "%s", name); return &connections[i]; }
    abort();
}

static Subscription *subscription(const char *name) {
    for (int i = 0; i < MOST; i++) if (strcmp(subscriptions[i].name, name) == 0) return &subscriptions[i];
    for (int i = 0; i < MOST; i++) if (!subscriptions[i].name[0]) { snprintf(subscriptions[i].name, 32, "%s", name); return &subscriptions[i]; }
    abort();
}

static const char *or_null(const char *word) { return strcmp(word, "-") == 0 ? NULL : word; }

static void shown(natsMsg *msg, char *out, size_t size) {
    const char **keys = NULL;
    int count = 0;
    size_t used = (size_t)snprintf(out, size, "%s %s ", natsMsg_GetSubject(msg), natsMsg_GetReply(msg) ? natsMsg_GetReply(msg) : "-");
    int length = natsMsg_GetDataLength(msg);
    used += (size_t)snprintf(out + used, size - used, "%.*s ", length ? length : 1, length ? natsMsg_GetData(msg) : "-");
    if (natsMsgHeader_Keys(msg, &keys, &count) != NATS_OK || count == 0) { snprintf(out + used, size - used, "-"); return; }
    for (int i = 0; i < count; i++)
        for (int j = i + 1; j < count; j++)
            if (strcmp(keys[i], keys[j]) > 0) { const char *swap = keys[i]; keys[i] = keys[j]; keys[j] = swap; }
    for (int i = 0; i < count; i++) {
        const char *value = "";
        natsMsgHeader_Get(msg, keys[i], &value);
        used += (size_t)snprintf(out + used, size - used, "%s%s=%s", i ? ";" : "", keys[i], value);
    }
    free((void *)keys);
}

static void serve(natsConnection *nc, natsSubscription *sub, natsMsg *msg, void *closure) {
    Subscription *own = closure;
    char data[256];
    (void)sub;
    snprintf(data, sizeof data, "%.*s%s", natsMsg_GetDataLength(msg), natsMsg_GetData(msg), own->answer);
    if (natsMsg_GetReply(msg)) natsConnection_PublishString(nc, natsMsg_GetReply(msg), data);
    natsMsg_Destroy(msg);
}

static void quiet(natsConnection *nc, natsSubscription *sub, natsStatus err, void *closure) { (void)nc; (void)sub; (void)err; (void)closure; }

static const char *connect_to(char **word) {
    Connection *own = connection(word[1]);
    char user[64];
    natsOptions_Create(&own->opts);
    natsOptions_SetURL(own->opts, url);
    natsOptions_SetAllowReconnect(own->opts, false);
    natsOptions_SetTimeout(own->opts, 5000);
    natsOptions_SetName(own->opts, "scenario");
    natsOptions_SetErrorHandler(own->opts, quiet, NULL);
    if (strncmp(word[2], "token:", 6) == 0) natsOptions_SetToken(own->opts, word[2] + 6);
    else if (or_null(word[2])) {
        snprintf(user, sizeof user, "%s", word[2]);
        char *password = strchr(user, ':');
        if (password) *password++ = 0;
        natsOptions_SetUserInfo(own->opts, user, password ? password : "");
    }
    natsOptions_SetNoEcho(own->opts, strstr(word[3], "no_echo") != NULL);
    natsOptions_SetVerbose(own->opts, strstr(word[3], "verbose") != NULL);
    natsOptions_SetPedantic(own->opts, strstr(word[3], "pedantic") != NULL);
    natsStatus status = natsConnection_Connect(&own->nc, own->opts);
    if (status == NATS_OK) return "ok";
    natsOptions_Destroy(own->opts);
    memset(own, 0, sizeof *own);
    return status == NATS_CONNECTION_AUTH_FAILED ? "authorization" : natsStatus_GetText(status);
}

static const char *publish(char **word, bool big) {
    natsMsg *msg = NULL;
    char *data = NULL;
    const char *payload = or_null(word[4]);
    int length = payload ? (int)strlen(payload) : 0;
    if (big) { length = atoi(word[4]); data = malloc((size_t)length); memset(data, 'x', (size_t)length); payload = data; }
    natsMsg_Create(&msg, word[2], or_null(word[3]), payload, length);
    if (or_null(word[5])) {
        char *rest = NULL;
        for (char *pair = strtok_r(word[5], ";", &rest); pair; pair = strtok_r(NULL, ";", &rest)) {
            char *value = strchr(pair, '=');
            *value++ = 0;
            natsMsgHeader_Set(msg, pair, value);
        }
    }
    natsStatus status = natsConnection_PublishMsg(connection(word[1])->nc, msg);
    natsMsg_Destroy(msg);
    free(data);
    return status == NATS_OK ? "ok" : status == NATS_MAX_PAYLOAD ? "max_payload" : natsStatus_GetText(status);
}

static void violation(Connection *own, char *out, size_t size) {
    for (int i = 0; i < 50; i++) {
        const char *text = NULL;
        natsConnection_GetLastError(own->nc, &text);
        const char *found = text ? strcasestr(text, "permissions violation for ") : NULL;
        if (found) {
            char what[32], subject[128];
            if (sscanf(found + 26, "%31s to \"%127[^\"]", what, subject) == 2) {
                for (char *c = what; *c; c++) *c |= 32;
                for (char *c = subject; *c; c++) if (*c >= 'A' && *c <= 'Z') *c |= 32;
                snprintf(out, size, "%s %s", what, subject);
                return;
            }
        }
        nats_Sleep(20);
    }
    snprintf(out, size, "none");
}

static void reset(void) {
    for (int i = 0; i < MOST; i++) {
        natsSubscription_Destroy(subscriptions[i].sub);
        natsMsg_Destroy(subscriptions[i].last);
        memset(&subscriptions[i], 0, sizeof subscriptions[i]);
    }
    for (int i = 0; i < MOST; i++) {
        if (connections[i].nc) natsConnection_Close(connections[i].nc);
        natsConnection_Destroy(connections[i].nc);
        natsOptions_Destroy(connections[i].opts);
        memset(&connections[i], 0, sizeof connections[i]);
    }
}

static const char *run(char **word, char *out, size_t size) {
    const char *command = word[0];
    if (!strcmp(command, "connect")) return connect_to(word);
    if (!strcmp(command, "sub")) {
        Subscription *own = subscription(word[1]);
        natsConnection *nc = own->nc = connection(word[2])->nc;
        natsStatus status = or_null(word[4]) ? natsConnection_QueueSubscribeSync(&own->sub, nc, word[3], word[4])
                                             : natsConnection_SubscribeSync(&own->sub, nc, word[3]);
        return status == NATS_OK ? "ok" : natsStatus_GetText(status);
    }
    if (!strcmp(command, "unsub")) {
        natsSubscription *sub = subscription(word[1])->sub;
        natsStatus status = atoi(word[2]) ? natsSubscription_AutoUnsubscribe(sub, atoi(word[2])) : natsSubscription_Unsubscribe(sub);
        return status == NATS_OK ? "ok" : natsStatus_GetText(status);
    }
    if (!strcmp(command, "pub")) return publish(word, false);
    if (!strcmp(command, "big")) return publish(word, true);
    if (!strcmp(command, "flush")) return natsConnection_FlushTimeout(connection(word[1])->nc, 5000) == NATS_OK ? "ok" : "error";
    if (!strcmp(command, "next")) {
        Subscription *own = subscription(word[1]);
        natsMsg *msg = NULL;
        if (natsSubscription_NextMsg(&msg, own->sub, atoi(word[2])) != NATS_OK) return "none";
        natsMsg_Destroy(own->last);
        own->last = msg;
        shown(msg, out, size);
        return out;
    }
    if (!strcmp(command, "size")) {
        natsMsg *msg = NULL;
        if (natsSubscription_NextMsg(&msg, subscription(word[1])->sub, atoi(word[2])) != NATS_OK) return "none";
        snprintf(out, size, "%d", natsMsg_GetDataLength(msg));
        natsMsg_Destroy(msg);
        return out;
    }
    if (!strcmp(command, "respond")) {
        Subscription *own = subscription(word[1]);
        return natsConnection_PublishString(own->nc, natsMsg_GetReply(own->last), word[2]) == NATS_OK ? "ok" : "error";
    }
    if (!strcmp(command, "request")) {
        natsMsg *msg = NULL;
        natsStatus status = natsConnection_RequestString(&msg, connection(word[1])->nc, word[2], word[3], atoi(word[4]));
        if (status == NATS_NO_RESPONDERS) return "no_responders";
        if (status == NATS_TIMEOUT) return "timeout";
        if (status != NATS_OK) return natsStatus_GetText(status);
        snprintf(out, size, "%.*s", natsMsg_GetDataLength(msg), natsMsg_GetData(msg));
        natsMsg_Destroy(msg);
        return out[0] ? out : "-";
    }
    if (!strcmp(command, "serve")) {
        Subscription *own = subscription(word[1]);
        natsConnection *nc = connection(word[2])->nc;
        snprintf(own->answer, sizeof own->answer, "%s", word[5]);
        natsStatus status = or_null(word[4]) ? natsConnection_QueueSubscribe(&own->sub, nc, word[3], word[4], serve, own)
                                             : natsConnection_Subscribe(&own->sub, nc, word[3], serve, own);
        return status == NATS_OK ? "ok" : natsStatus_GetText(status);
    }
    if (!strcmp(command, "violation")) { violation(connection(word[1]), out, size); return out; }
    if (!strcmp(command, "max_payload")) { snprintf(out, size, "%lld", (long long)natsConnection_GetMaxPayload(connection(word[1])->nc)); return out; }
    if (!strcmp(command, "close")) { natsConnection_Close(connection(word[1])->nc); return "ok"; }
    if (!strcmp(command, "reset")) { reset(); return "ok"; }
    return "unknown";
}

int main(int argc, char **argv) {
    char line[4096], out[65536];
    if (argc < 2) return 2;
    snprintf(url, sizeof url, "nats://%s", argv[1]);
    while (fgets(line, sizeof line, stdin)) {
        char *word[WORDS] = {0}, *rest = NULL;
        int count = 0;
        for (char *part = strtok_r(line, " \n", &rest); part && count < WORDS; part = strtok_r(NULL, " \n", &rest)) word[count++] = part;
        if (!count) continue;
        printf("%s\n", run(word, out, sizeof out));
        fflush(stdout);
    }
    return 0;
}
