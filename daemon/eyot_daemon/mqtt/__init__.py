"""MQTT 3.1, 3.1.1 and 5.0 for the clients of a gateway: sensors, PLCs, home automation.

Entry point: `service.MqttService`. A connection (`connection.py`) decodes packets and answers; `received_publishes.py` is what its client
publishes; its session (`session.py`) holds subscriptions and the flows of QoS 1 and 2; `store.py` keeps sessions, queued and retained
messages on flash, in streams of the account. Topics become subjects, so that MQTT and NATS clients see each other.
May import `client`, `auth`, `jetstream`, `net`, `process`, `router`, `turn` and `config`; of other floors wire, store and serving.
"""
