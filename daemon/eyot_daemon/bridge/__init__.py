"""Bridges: streams forwarded to MQTT brokers, and their topics taken in (the protocol: `eyot_sync.bridge`).

Entry point: `service.BridgeService`. May import `mqtt`, `jetstream`, `leaf/sockets.py`, `net`, `process`, `router`, `turn` and
`config`.
"""
