"""`eyot`, the operator's tool: status, synchronization, streams, backups, checks and simple messaging.

Entry point: `main.main`. Imports `eyot_wire` only; the daemon is reached over its network interfaces.
"""
