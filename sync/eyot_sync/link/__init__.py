"""Keeping links up: addresses, attempts, backoff, and the state of each link.

Entry point: `supervisor.LinkSupervisor`. Imports `leaf`, `policy` and `eyot_wire`.
"""
