"""How Go writes and reads JSON, numbers, durations and times: what clients of nats-server are used to."""
