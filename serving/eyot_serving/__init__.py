"""What servers of Eyot share on their sockets: TLS handshakes, HTTP with its streams of events, and sessions of browsers.

Entry points: `http_server.serve`, `tls_alert.handshake`, `sessions.Sessions`, `browsers.foreign_problem`,
`listen_address.listen_address`. Trio and h11; imports nothing of Eyot.
"""
