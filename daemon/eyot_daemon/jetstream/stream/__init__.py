"""A stream: its configuration, its log, and its consumers.

Entry point: `stream.Stream`, which an account makes (`account.JetStreamAccount`). `Stream` composes the other packages, ingests what a turn published,
and answers publishers and wakes consumers when a transaction is committed. `info.py` shows it to the API.
May import `ingest/`, `retention/`, `downstream/`, `config/`, of `sourcing/` its ports and deregistrations, and `stream_core.py`. It knows
consumers by `stream_core.ConsumerPort` only.
"""
