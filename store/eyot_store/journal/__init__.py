"""The journal in front of LMDB: its files, its committer, and the applier that brings LMDB up to date.

Entry points: `committer.JournalCommitter`, `replay.replay`, and `overlay.OverlayReader`, which reads what LMDB does not have yet.
Imports `records`, `subjects`, `lmdb` and the modules of `eyot_store`, nothing of the loop's side.
"""
