"""The types of control packets (MQTT 5.0, 2.1.2), and the flags that each must have."""

from enum import IntEnum
from typing import Final

#: The protocol level of MQTT 3.1.
V31: Final = 3
V311: Final = 4
#: The protocol level of MQTT 5.0, the only one with properties and reason codes.
V5: Final = 5


#: Eyot's authentication method of MQTT 5: the client signs a nonce with its nkey.
NKEY_METHOD: Final = "nats-nkey"


class PacketType(IntEnum):
    RESERVED = 0
    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


#: Packets whose low four bits are 0010 [MQTT-2.1.3-1]; those of PUBLISH vary, all others are 0000.
FLAGS_2: Final = frozenset({PacketType.PUBREL, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE})
