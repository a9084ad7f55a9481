"""Consumers: what they have delivered, to whom, and what has been acknowledged."""
