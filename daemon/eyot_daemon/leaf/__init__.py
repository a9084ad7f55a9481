"""Leaf links as the broker sees them; the protocol itself is in `eyot_sync.leaf`."""
