"""Removal of messages from a stream: limits, ages and TTLs, interest, purges.

Entry points: `limits.enforce` after messages were staged, `limits.Purge` on request, `expiry.Expiry` by time, `retention.Retention` by
acknowledgements. `retention.Sweep` walks through a whole stream, a slice a transaction.
May import `config/`, `nats_headers.py` and what the parts of a stream share (`stream_core.py`); `ingest/` and `downstream/` for
annotations only.
"""
