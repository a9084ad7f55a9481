"""`eyot trust`: operators, accounts and users of decentralized authentication, in nsc's own store.

Entry point: `group.trust`. Commands, flags and files are nsc's: either tool goes on where the other stopped.
Imports `connection`, `terminal`, `values` and `eyot_wire`.
"""
