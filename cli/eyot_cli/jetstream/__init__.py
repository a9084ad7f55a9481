"""`eyot stream`, `consumer`, `report`, `backup` and `restore`: streams and consumers, over the JetStream API.

Entry points: `streams.stream`, `consumers.consumer`, `reports.report`, `backups.backup`. `api.py` sends requests and checks their
answers, `stored.py` and `direct_reading.py` read messages.
Imports `connection`, `terminal`, `values` and `eyot_wire`.
"""
