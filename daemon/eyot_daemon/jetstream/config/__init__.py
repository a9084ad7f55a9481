"""Configurations of streams and consumers: defaults, checks, error codes, updates.

Entry points: `stream.checked` and `stream.checked_update`, `consumer.complete` and `consumer.check`. Each is a function of
configurations: no stream, no consumer, no clock.
May import nothing else of JetStream.
"""
