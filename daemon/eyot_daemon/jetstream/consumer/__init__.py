"""Consumers: what they have delivered, to whom, and what has been acknowledged.

Entry points: `consumers.Consumers`, which makes, changes and restores them, and `api.endpoints`, their API. `core.ConsumerCore` is what the
parts of one consumer share; `state.ConsumerState` decides without I/O.
May import `stream/`, `sourcing/` (its `positions.py`), `downstream/` and `config/`. Streams do not know this package: they use
`stream_core.ConsumerPort`.
"""
