"""Snapshots and restores in nats-server's format."""
