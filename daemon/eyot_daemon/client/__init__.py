"""Client connections: nats-server's client protocol, without I/O, and the listeners that feed it.

Entry points: `clients.Clients` (all connections of a server) and `connection.ClientConnection` (one of them).
`context.py` is what connections share, `state.py` what carrying out an operation needs of one.
May import `config`, `turn`, `router`, `net`, `process` and `auth`; of other floors wire and serving.
"""
