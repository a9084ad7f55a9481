"""Stores for tests, and what may happen to one: failing writes, power cuts, damage, SIGKILL, a bad disk."""
