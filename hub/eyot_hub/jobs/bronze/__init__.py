"""Bronze: every stored message as one row; which sequences of which origin it holds, and which are missing.

Entry points: `bronze.Ingest` (the job `ingest`), `gaps.Gaps` (the job `gaps`), `coverage.coverage`, `segments.Segments`.
Imports `lake`, `spark`, `config` and `tables`.
"""
