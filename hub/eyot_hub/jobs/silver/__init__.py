"""Silver: payloads as typed rows, each message once; the rows that do not fit, in quarantine, and their replay.

Entry points: `silver.Refiner`, `replay.Replay`. `silver_task.py` and `silver_input.py` are a task's part of it.
Imports `bronze`, `removals`, `payloads`, `lake`, `config` and `tables`.
"""
