"""Verifying and repairing a store at rest (`eyot-check`).

Entry points: `main.main` (the command), `check.check` (verification), `repair.repair` (salvage of damaged streams).
May import `journal`, `pages`, `records`, `subjects` and the modules of `eyot_store`; no other package imports this one.
"""
