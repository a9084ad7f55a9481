"""The broker: configuration, routing, connections, leaf links, JetStream and monitoring.

Entry point: `main.main` (`eyotd`). Imports `eyot_wire`, `eyot_store`, `eyot_sync` and `eyot_serving`.
"""
