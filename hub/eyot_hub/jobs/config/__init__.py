"""The jobs' configuration file `hub.toml`: its sections as types, and their checks.

Entry point: `config_file.load`. `config.py` has the sections, `rules.py` the rules of data quality in them.
Imports `payloads` and `tables`.
"""
