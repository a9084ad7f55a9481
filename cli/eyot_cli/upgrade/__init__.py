"""`eyot upgrade`: packages in an object bucket, and the signed manifests that open them to devices.

Entry point: `commands.upgrade`. `manifest.py` decides what a device may install, `signing.py` signs and verifies,
`versions.py` and `package.py` know Debian's formats, `bucket.py` reads a bucket or a mirror of one, `leftovers.py` clears it.
Imports `buckets`, `jetstream`, `connection`, `terminal`, `values` and `eyot_wire`.
"""
