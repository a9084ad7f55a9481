"""The journal in front of LMDB: its files, its committer, and the applier that brings LMDB up to date.

Entry points: `committer.JournalCommitter`, `replay.replay`. Imports `records`, `lmdb` and `environment`, nothing of the
loop's side.
"""
