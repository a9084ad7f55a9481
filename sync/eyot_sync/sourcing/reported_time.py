"""The present time, sent with each consumer request: an extension of Eyot in its metadata (RFC 3339).

A device whose clock leapt while it was off compares its clock with it (`eyot_daemon.jetstream.wall_clock`). A server that does
not trust its own clock does not send it. In the other direction, the `ts` of the answer carries the time, also nats-server's.
"""

KEY = "eyot.now"
