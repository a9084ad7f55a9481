"""Conversations about JetStream: random ones, compared with another server's, and fixtures on a real store."""
