"""The root part of upgrades over the air: install a signed package by dpkg, watch the daemon's health, and go back if it is worse.

Entry points: `begin.begin`, which takes a fetched package, and `machine.Machine`, which goes on from a state file after every cut.
`rules.py` verifies, `repack.py` keeps the present package, `health.py` compares, `dpkg.py` runs dpkg, `unit.py` writes the unit.
Imports the standard library alone: dpkg replaces the package's own modules meanwhile, so that these run from a private folder.
"""
