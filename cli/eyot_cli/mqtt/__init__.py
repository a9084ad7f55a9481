"""`eyot mqtt`: messages over MQTT, sessions and retained messages, and the import of mosquitto's configuration.

`client.py` speaks the protocol with `eyot_wire.mqtt`; `messages.py` publishes and subscribes with it; `sessions.py` and
`retained.py` ask the daemon over NATS.
"""
