"""Subjects of streams: the number of messages, the first and the last of each, in memory and on disk.

Entry points: `subjects.Subjects` (in memory), `index_writer.Indexes` and `index_reader.IndexReading` (on disk).
Imports `records`, `pages` and the modules of `eyot_store`; `log` for annotations only.
"""
