"""Snapshots and restores in nats-server's format.

Entry points: `snapshot.Snapshot` sends a stream as chunks of an archive, `restore.Restore` makes a stream of such chunks. The format itself
is `eyot_wire.archive`.
May import `consumer/`, `stream/`, `ingest/`, `sourcing/`, `retention/` and `config/`, and accounts. Only the API and the engine import this package.
"""
