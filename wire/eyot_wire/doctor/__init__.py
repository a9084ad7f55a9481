"""The checks of `eyot doctor` that need only the daemon's own reports: the operator's tool and the local page share them.

Entry point: `report.checks_of`. Imports single modules of `eyot_wire`.
"""
