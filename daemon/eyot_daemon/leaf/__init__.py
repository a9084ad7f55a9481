"""Leaf connections as the broker sees them, in both roles; the protocol itself is `eyot_sync.leaf`.

Entry points: `service.LeafService` (listener and remotes) and `link.LeafConnection` (one connection).
The helpers of a link are handed its session, timers and callbacks; none knows the link.
May import `config`, `turn`, `router`, `net`, `process` and `auth`; of other floors wire, sync and serving.
"""
