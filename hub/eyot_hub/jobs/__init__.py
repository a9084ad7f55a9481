"""The jobs: bronze (`ingest`), silver and gold (`aggregate`), `gaps`, `backfill` and `fleet`, over Delta tables.

Entry point: `run.run_jobs`, which runs all of them at intervals; each job's module has its own.
May import the modules of `eyot_hub`, none of which imports this package but `main.py`.
"""
