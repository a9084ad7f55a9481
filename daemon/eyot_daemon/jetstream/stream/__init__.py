"""A stream: its configuration, its log, and those who read it."""
