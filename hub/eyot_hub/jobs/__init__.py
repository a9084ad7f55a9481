"""The jobs: bronze (`ingest`), silver and gold (`aggregate`), `gaps`, `backfill` and `fleet`, over Delta tables."""
