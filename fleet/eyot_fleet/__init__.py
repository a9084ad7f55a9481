"""`eyot-fleet`: what the hub knows of every device, and what every device should be.

Entry point: `device_index.DeviceIndex`; the records are in `device_record.py`. Imports `eyot_wire` only; devices and hub are
reached over NATS.
"""
