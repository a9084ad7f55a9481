"""Policies of links: priorities, bandwidths, windows, budgets.

Entry points: `policy.SyncPolicies`, `stream_gate.StreamGate`, `budget.Budget`. Pure values and decisions without I/O.
Imports nothing else of Eyot.
"""
