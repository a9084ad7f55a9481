/* A client of MQTT 3.1.1 or 5 with Eclipse Paho's C library, which keeps what is not acknowledged in files.

   paho PORT VERSION(4|5) DIRECTORY

   Publishes with each quality to its own subscription, leaves, has messages sent while it is away, and comes back for them. Prints
   a line for each message: topic, quality, payload, and the user property of MQTT 5. Exit status 1: a call failed, said on stderr. */
#include <MQTTClient.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MS 60000

static int version;

static void must(int rc, const char *what)
{
    if (rc != MQTTCLIENT_SUCCESS) {
        fprintf(stderr, "%s: %d\n", what, rc);
        exit(1);
    }
}

static void connect_to(MQTTClient client, int clean, int expiry_s)
{
    if (version == MQTTVERSION_5) {
        MQTTClient_connectOptions options = MQTTClient_connectOptions_initializer5;
        MQTTProperties properties = MQTTProperties_initializer;
        MQTTProperty expiry = {.identifier = MQTTPROPERTY_CODE_SESSION_EXPIRY_INTERVAL};
        options.cleanstart = clean;
        expiry.value.integer4 = (unsigned)expiry_s;
        MQTTProperties_add(&properties, &expiry);
        MQTTResponse response = MQTTClient_connect5(client, &options, &properties, NULL);
        must(response.reasonCode, "connect");
        MQTTResponse_free(response);
        MQTTProperties_free(&properties);
    } else {
        MQTTClient_connectOptions options = MQTTClient_connectOptions_initializer;
        options.MQTTVersion = version;
        options.cleansession = clean;
        must(MQTTClient_connect(client, &options), "connect");
    }
}

static void make(MQTTClient *client, const char *url, const char *id, char *directory)
{
    MQTTClient_createOptions options = MQTTClient_createOptions_initializer;
    options.MQTTVersion = version;
    must(MQTTClient_createWithOptions(client, url, id, MQTTCLIENT_PERSISTENCE_DEFAULT, directory, &options), "create");
}

static void publish(MQTTClient client, const char *topic, const char *payload, int qos)
{
    MQTTClient_deliveryToken token = 0;
    if (version == MQTTVERSION_5) {
        MQTTClient_message message = MQTTClient_message_initializer;
        MQTTProperty unit = {.identifier = MQTTPROPERTY_CODE_USER_PROPERTY};
        unit.value.data = (MQTTLenString){4, (char *)"Unit"};
        unit.value.value = (MQTTLenString){1, (char *)"C"};
        message.payload = (void *)payload;
        message.payloadlen = (int)strlen(payload);
        message.qos = qos;
        MQTTProperties_add(&message.properties, &unit);
        MQTTResponse response = MQTTClient_publishMessage5(client, topic, &message, &token);
        must(response.reasonCode, "publish");
        MQTTResponse_free(response);
        MQTTProperties_free(&message.properties);
    } else {
        must(MQTTClient_publish(client, topic, (int)strlen(payload), payload, qos, 0, &token), "publish");
    }
    if (qos)
        must(MQTTClient_waitForCompletion(client, token, WAIT_MS), "acknowledgement");
}

static void print(MQTTClient client, int count)
{
    while (count--) {
        char *topic = NULL;
        int size = 0;
        MQTTClient_message *message = NULL;
        int rc = MQTTClient_receive(client, &topic, &size, &message, WAIT_MS);
        if (message == NULL)
            must(rc ? rc : -1, "receive");
        MQTTProperty *unit = MQTTProperties_getProperty(&message->properties, MQTTPROPERTY_CODE_USER_PROPERTY);
        printf("%s %d %.*s%s%.*s\n", topic, message->qos, message->payloadlen, (char *)message->payload, unit ? " " : "",
               unit ? unit->value.value.len : 0, unit ? unit->value.value.data : "");
        MQTTClient_freeMessage(&message);
        MQTTClient_free(topic);
    }
}

static void leave(MQTTClient client)
{
    must(MQTTClient_disconnect(client, WAIT_MS), "disconnect");
}

int main(int argc, char **argv)
{
    char url[64];
    MQTTClient client, other;
    if (argc != 4)
        return 2;
    snprintf(url, sizeof url, "tcp://127.0.0.1:%s", argv[1]);
    version = atoi(argv[2]);
    make(&client, url, "paho-c", argv[3]);
    make(&other, url, "paho-c other", argv[3]);
    connect_to(client, 1, 300);
    leave(client);
    connect_to(client, 0, 300);
    if (version == MQTTVERSION_5) {
        MQTTResponse response = MQTTClient_subscribe5(client, "t/#", 2, NULL, NULL);
        must(response.reasonCode == MQTTREASONCODE_GRANTED_QOS_2 ? 0 : response.reasonCode, "subscribe");
        MQTTResponse_free(response);
    } else {
        must(MQTTClient_subscribe(client, "t/#", 2), "subscribe");
    }
    publish(client, "t/0", "m0", 0);
    publish(client, "t/1", "m1", 1);
    publish(client, "t/2", "m2", 2);
    print(client, 3);
    leave(client);
    connect_to(other, 1, 0);
    publish(other, "t/away", "q1", 1);
    publish(other, "t/away", "q2", 2);
    leave(other);
    connect_to(client, 0, 300);
    print(client, 2);
    leave(client);
    MQTTClient_destroy(&client);
    MQTTClient_destroy(&other);
    return 0;
}
