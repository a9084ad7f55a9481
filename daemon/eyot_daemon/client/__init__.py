"""Connections of clients: what they say, subscribe to and publish."""
