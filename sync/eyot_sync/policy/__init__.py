"""Policies of links: priorities, bandwidths, windows, budgets.

Entry points: `policy.SyncPolicies`, `stream_gate.StreamGate`, `budget.Meter`. Pure values and decisions without I/O.
"""
