"""Eyot at the hub: JetStream streams as a Spark data source, and the jobs that build tables from them.

Entry points: `source.JetStreamDataSource` (`format("jetstream")`) and `main.main` (`eyot-hub`).
Imports `eyot_wire`, PySpark and PyArrow; the jobs also delta-rs (`deltalake`). It imports nothing of the broker.
"""
