"""Backups of streams in nats-server's own formats: what a snapshot sends and a restore reads, as bytes and values.

    snapshot  = an S2 stream (s2.py) of either
                a tar archive with the store's own message blocks (nats-server up to 2.14, and what Eyot writes), or
                a flat archive that begins with `NATSARC1` (nats-server 2.15; natsarc.py)
    reader.py   parses either archive as its bytes arrive, and returns values (values.py)
    writer.py   encodes values as either archive

Entry points: `reader.py` and `writer.py`. Imports `go` and single modules of `eyot_wire`.
A reader or writer holds at most one compressed block and one message (tar: one message block) in memory. As everywhere
in `eyot_wire`, there is no clock and no I/O. `_archive.pyx` and its plain twins (native.py) do the work on every byte.

Source of the formats: nats-server (filestore.go, stream_backup.go, archive.go) and the S2 and HighwayHash
specifications.
"""
