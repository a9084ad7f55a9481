"""`eyot server`: checks for monitoring systems, and what the system account tells of servers.

Entry point: `group.server`, which lists servers. `checks.py` and `jetstream_checks.py` hold the checks, `result.py` how a check
ends: its lines, measured values and exit status.
Imports `buckets`, `messages`, `jetstream`, `connection`, `terminal` and `values`.
"""
