"""Networking: listening sockets, transports, TLS and WebSocket.

Entry points: `listener.TcpListener` accepts, `socket_transport.SocketTransport` and `stream_transport.StreamTransport` serve one connection.
A transport knows its session as `transport.Session` and the broker as `transport.TurnEnd`.
May import `config` and `turn`; of other floors only wire and serving.
"""
