"""Lakes, tables, Spark's processes and clusters, catalogs, object storage; kills of all of them."""
