"""Removal of messages from a stream: limits, ages and TTLs, interest, purges.

Entry points: `limits.enforce` after messages were staged, `expiry.Expiry` by time, `retention.Retention` by acknowledgements,
`purging.Purge` on request. `sweep.Sweep` walks through a whole stream, a slice a transaction.
May import `messages/`, `downstream/` and what the parts of a stream share (`stream_core.py`), not the stream.
"""
