"""What streams and consumers may be configured as: defaults, checks, error codes, updates."""
