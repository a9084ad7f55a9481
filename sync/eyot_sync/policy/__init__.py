"""What may leave over a link, how much of it, and when: priorities, bandwidths, windows, budgets."""
