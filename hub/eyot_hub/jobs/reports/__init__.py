"""What people read: the report's page, the rules of data quality and their results, the origin of a window.

Entry points: `report.write_report`, `quality.Quality` (the job `quality`), `explain.explain`.
Imports `maintenance`, `devices`, `gold`, `silver`, `bronze`, `removals`, `lake`, `config` and `tables`.
"""
