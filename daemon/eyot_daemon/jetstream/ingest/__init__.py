"""Ingest of messages into a stream: checks, staging, batches, schedules, counters, duplicates, and the limit on what is uncommitted.

Entry point: `stream_ingest.StreamIngest`, which a stream's `flush` calls with the messages of one turn. `message_stager.py` says what
happens to one message.
May import `retention/`, `nats_headers.py` and what the parts of a stream share (`stream_core.py`), not the stream.
"""
