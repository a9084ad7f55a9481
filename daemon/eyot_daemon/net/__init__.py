"""Listening sockets, transports, TLS and WebSocket."""
