"""A mirror or source as a state machine without I/O: its requests to the origin, received messages, and verification.

Entry point: `source_consumer.SourceConsumer`. Events and the current time go in, actions come out (`actions.py`).
Imports `policy` and `eyot_wire`.
"""
