"""Servers as real processes: `eyotd`, nats-server and mosquitto, as they are and as tests want them to be odd."""
