"""`eyot top`: a server's connections and rates in the terminal.

Entry point: `command.top`. `figures.py` holds two pages of monitoring as values and derives rates, `screen.py` lays them out as
lines of text, `sources.py` gets the pages, `host_names.py` the names of their hosts, `terminal.py` reads single keys.
Imports `connection`, `terminal` and `values`.
"""
