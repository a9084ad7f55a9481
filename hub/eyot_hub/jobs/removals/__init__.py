"""What tables record of rows that left them: by age, by lists of devices, by the erasure of a device.

Entry points: `retention.removed_until`, `device_lists.device_days`, `erasures.noted`. Imports `lake`, `config` and `tables`.
"""
