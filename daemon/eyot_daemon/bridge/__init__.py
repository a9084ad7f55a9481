"""Bridges: streams forwarded to MQTT brokers, and their topics taken in (the protocol: `eyot_sync.bridge`).

Entry point: `service.BridgeService`. May import `mqtt`, `jetstream`, `net`, `process`, `router`, `turn` and `config`; of other
floors wire, store, sync and serving.
"""
