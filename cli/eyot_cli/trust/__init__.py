"""`eyot trust`: operators, accounts and users of decentralized authentication, in nsc's own store.

Commands, flags and files are nsc's: either tool goes on where the other stopped. Entry point: `group.trust`.
"""
