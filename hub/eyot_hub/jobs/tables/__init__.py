"""Tables as lists of Parquet files with positions, committed together, in Delta Lake or Apache Iceberg.

Entry point: `table.LakeTable`. `table_format.py` says what a format provides, `delta_log.py` and `iceberg_log.py` provide it; `files.py` writes
files in tasks, `file_rows.py` reads them; `increments.py` tells which rows of a table are new to another.
Imports nothing of the other packages.
"""
