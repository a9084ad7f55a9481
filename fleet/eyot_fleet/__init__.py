"""`eyot-fleet`: what the hub knows of every device, and what every device should be.

Entry point: `fleet.Fleet`, all of it in memory; `device_index.py` answers questions. Imports `eyot_wire` only; devices and hub are
reached over NATS.
"""
