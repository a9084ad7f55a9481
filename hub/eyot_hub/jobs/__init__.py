"""The jobs: bronze (`ingest`), silver and gold (`aggregate`), `gaps`, `backfill` and `fleet`, over tables of a lake.

Entry points: `run.run_jobs`, which runs all of them at intervals; `aggregate.Aggregate`; each other job's module has its own.
May import the modules of `eyot_hub`, none of which imports this package but `main.py`. Of its packages each imports only those above it:

    payloads     payloads to typed columns
    tables       files and positions of a table, in Delta Lake or Iceberg
    config       `hub.toml`
    lake         opens tables
    spark        the Spark session
    bronze       stored messages, and the gaps between them
    removals     what left the tables
    silver       typed rows, quarantine
    gold         windows
    devices      the state of each device, the fleet
    maintenance  retention, compaction, erasure
    reports      the report, data quality, lineage
"""
