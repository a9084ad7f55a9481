"""Synchronization: leaf sessions for both roles, the link supervisor, and the state machine of mirrors and sources.

Entry points: `leaf.session`, `link.supervisor`, `sourcing.source_consumer`. Of other floors they import `eyot_wire` only.
"""
