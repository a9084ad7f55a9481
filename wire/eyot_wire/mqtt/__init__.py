"""MQTT 3.1, 3.1.1 and 5.0 on the wire: packets, their encoding, and topics as subjects.

Entry points: `reader.PacketReader` for bytes of a peer, `encoder` for what is sent, `topics` for names and filters.
Pure: no tasks, no sockets, no clock. May import the rest of `eyot_wire`.
"""
