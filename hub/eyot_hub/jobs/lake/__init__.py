"""Opens the tables of the configured lake: its folder or bucket, its format, and the catalog of Iceberg.

Entry point: `lake.open_table`. Imports `config` and `tables`.
"""
