"""JetStream on one server: streams, consumers, their API, mirrors and sources, backups."""
