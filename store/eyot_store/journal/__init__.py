"""The journal in front of LMDB: its files, its committer, and how LMDB is brought up to date behind it."""
