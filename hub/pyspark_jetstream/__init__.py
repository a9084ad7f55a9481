"""Registers `format("jetstream")`: Spark looks for installed packages named `pyspark_*` that export `DefaultSource`."""

from eyot_hub.source import JetStreamDataSource as DefaultSource

__all__ = ["DefaultSource"]
