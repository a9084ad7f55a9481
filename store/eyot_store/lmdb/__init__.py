"""LMDB: one write transaction a group, and short reads."""
