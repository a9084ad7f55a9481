"""`eyot mqtt`: messages over MQTT, sessions and retained messages, and the import of mosquitto's configuration.

Entry point: `commands.mqtt`. `client.py` speaks the protocol with `eyot_wire.mqtt`; `publish.py` and `subscribe.py` use it;
`sessions.py` and `retained.py` ask the daemon over NATS.
Imports `eyot_wire`, and of `eyot_cli` only the modules that all commands share.
"""
