"""`eyot mqtt`: messages over MQTT, sessions and retained messages, and the import of mosquitto's configuration.

Entry point: `commands.mqtt`. `client.py` speaks the protocol with `eyot_wire.mqtt`; `publish.py` and `subscribe.py` use it;
`sessions.py` and `retained.py` ask the daemon over NATS.
Imports `jetstream`, `connection`, `terminal`, `values` and `eyot_wire`.
"""
