"""Mirrors and sources elsewhere that replicate from streams here: what each has confirmed, and what it still lacks.

Entry point: `tracker.DownstreamTracker`, one for each stream; `downstream.Downstream` is what it keeps of each, `status.py` what is said of it.
May import `jetstream/stream_core.py`, `turn`, `router` and what is below the daemon.
"""
