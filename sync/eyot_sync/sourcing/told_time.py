"""What time it is, told along with each request for a consumer: Eyot's own addition to its metadata (RFC 3339).

A device whose clock leapt while it was off learns from it that the clock is right (`eyot_daemon.jetstream.clock_trust`). A server whose own
clock is in doubt does not tell. The other way the `ts` of the answer says the same, nats-server's too.
"""

KEY = "eyot.now"
