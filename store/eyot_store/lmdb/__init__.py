"""LMDB: one write transaction a group, and short reads.

Entry points: `committer.LmdbCommitter` (the committing thread) and `reader.LmdbReader` (the event loop's thread).
Imports `records`, `subjects`, `pages` and the modules of `eyot_store`, nothing of the log or the journal.
"""
