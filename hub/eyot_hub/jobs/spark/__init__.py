"""The jobs' Spark session, and how a job that is a streaming query of Spark's runs.

Entry points: `session.session`, `streaming.run_query`. Imports `config`.
"""
