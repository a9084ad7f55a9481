"""A mirror or source as a state machine without I/O: what it requests of its origin, takes, and verifies.

Entry point: `source_consumer.SourceConsumer`. Events and the current time go in, actions come out (`actions.py`).
"""
