"""The JetStream API as values: requests, configurations, errors, acknowledgements.

Entry points: `requests` and `model` (structs), `struct.encode` and `struct.decode`, `errors.error`, `ack` for subjects of
acknowledgements. `error_codes.py` is generated from nats-server's `errors.json`.
Imports `go` and single modules of `eyot_wire`.
"""
