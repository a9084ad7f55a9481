"""Gold: windows by event time for each device and metric, corrected when late data arrives.

Entry point: `gold.Aggregator`. Imports `silver`, `bronze`, `removals`, `lake`, `config` and `tables`.
"""
