"""Clients of the client protocol: by hand, over WebSocket, with nats-py; and conversations that they have with a server."""
