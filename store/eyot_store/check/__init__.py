"""Verifying a store at rest (`eyot-check`)."""
