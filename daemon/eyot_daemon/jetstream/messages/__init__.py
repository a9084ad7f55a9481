"""The headers by which messages control a stream, and the actions after the transaction that stores them.

Entry points: `headers.check` for the `Nats-` headers, `batch.Batch` for answers after a transaction. Windows, counters,
TTLs and patterns of schedules are plain objects with time as an argument.
May import nothing else of JetStream.
"""
