"""The leaf protocol in both roles, without I/O."""
