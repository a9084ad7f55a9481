"""The way of messages into a stream: checks, staging, batches, and the limit on what is not committed yet.

Entry point: `stream_ingest.StreamIngest`, which a stream's `flush` calls with the messages of one turn.
"""
