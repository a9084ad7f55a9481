"""JetStream on one server: streams, consumers, their API, mirrors and sources, backups.

Entry point: `service.JetStreamService`; `running.RunningJetStream` opens the store and starts `engine.JetStream`. Below these stand
`account.py`, `api/` and `backup/`, then `consumer/` and `sourcing/`, then `stream/`, then `ingest/`, then `retention/` and `downstream/`;
`stream_core.py` is what the parts of a stream share, `nats_headers.py` the headers of messages.
May import `config`, `process`, `router`, `turn` and, for annotations, `leaf`; of other floors wire, store and sync.
"""
