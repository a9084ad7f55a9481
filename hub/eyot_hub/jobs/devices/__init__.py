"""The state of each device, and the fleet's figures.

Entry points: `devices.Devices` (the job `devices`), `fleet.Fleet` (the job `fleet`).
Imports `silver`, `bronze`, `removals`, `lake`, `spark`, `config` and `tables`.
"""
