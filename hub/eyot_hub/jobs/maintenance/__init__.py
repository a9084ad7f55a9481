"""What keeps tables small and lawful: retention, compaction, removal of old files, erasure of one device.

Entry points: `maintenance.Maintenance` (the job `maintain`), `expiry.Expiry`, `erasure.Eraser` (the command `erase`).
Imports `silver`, `bronze`, `removals`, `payloads`, `lake`, `config` and `tables`.
"""
