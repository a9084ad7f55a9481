"""Eyot at the hub: JetStream streams as a Spark data source, and the jobs that keep tables true to them.

It needs PySpark, PyArrow and `eyot_wire`; the jobs need delta-rs (`deltalake`) as well. Nothing of the broker is imported.
"""
