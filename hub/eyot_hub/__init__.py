"""Eyot at the hub: JetStream streams as a Spark data source, and the jobs that build tables from them.

The package needs PySpark, PyArrow and `eyot_wire`; the jobs also need delta-rs (`deltalake`). It imports nothing of the
broker.
"""
