"""Backups of streams in nats-server's own formats: what a snapshot sends and a restore takes, as bytes and values.

    snapshot  = an S2 stream (s2.py) of either
                a tar archive with the store's own message blocks (nats-server up to 2.14, and what Eyot writes), or
                a flat archive that begins with `NATSARC1` (nats-server 2.15; natsarc.py)
    reader.py   takes the bytes of either as they come and gives values (values.py)
    writer.py   makes either of values

Nothing here is held whole: a reader or writer holds one compressed block and one message (tar: one message block) at a time.
The floor's rule holds: no clock, no I/O. `_archive.pyx` and its plain twins (native.py) do what is done for each byte.

Source of the formats: nats-server (filestore.go, stream_backup.go, archive.go) and the S2 and HighwayHash specifications.
"""
