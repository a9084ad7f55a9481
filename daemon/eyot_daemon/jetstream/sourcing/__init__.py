"""Mirrors and sources of streams here.

Entry point: `sourcing.Sourcing`, which starts a `SourceTask` for each. The decisions are those of `eyot_sync.sourcing`, a state machine
without I/O; this package connects it with the account, the stream and the clock.
May import `stream/`, `ingest/`, `router` and what is below them; accounts know it by `port.SourcingPort` only. Consumers at an origin use
`positions.py` alone.
"""
