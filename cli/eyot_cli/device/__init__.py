"""`eyot status`, `sync`, `doctor` and `support-bundle`: the state of a device, what its hub has of it, and what is wrong.

Entry points: `status.status`, `sync.sync`, `doctor.doctor`, `support_bundle.support_bundle`. With `--group`, `group_reports.py` asks many
devices.
Imports `fleet`, `jetstream`, `connection`, `terminal`, `values` and `eyot_wire`.
"""
