"""`eyot enrol`: a device makes its own key, gets its token from the hub with a one-time token, and links.

Entry point: `command.enrol`. Runs on the device, as root. Imports `connection`, `terminal`, `values` and `eyot_wire`.
"""
