"""Status pages, metrics, and the system account's events and services."""
