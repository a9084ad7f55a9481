"""Bridges to MQTT brokers: the client's end of a connection, what is on its way, and which topic a subject has there.

Entry points: `connection.BridgeConnection`, one for each connection; `window.Window`, which outlives connections;
`topic_rules`. Plain objects without I/O, time as an argument. Imports `eyot_wire` only.
"""
