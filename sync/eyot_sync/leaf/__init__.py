"""The leaf protocol in both roles, without I/O.

Entry point: `session.LeafSession`: bytes and the current time go in, events (`events.py`) and bytes come out. The states are
those of `state.py`.
Imports `policy` and `eyot_wire`.
"""
