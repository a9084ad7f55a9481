"""Mirrors and sources at work: the copying side."""
