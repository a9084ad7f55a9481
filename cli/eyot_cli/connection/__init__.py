"""The daemon or server that a command addresses: who logs in, by which context, and the connection.

Entry point: `target.Target`, which every command gets. `anywhere.py` lets its options stand after a command.
Imports `terminal`, `values` and `eyot_wire`.
"""
