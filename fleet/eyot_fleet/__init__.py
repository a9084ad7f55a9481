"""`eyot-fleet`: what the hub knows of every device, and what every device should be.

Entry points: `main.main`; `service.Service`, the tasks; `fleet.Fleet`, all of it in memory. Imports wire and
`eyot_serving`; devices and hub are reached over NATS.
"""
