"""What `eyot-check` executes: SIGINT ends it silently while it loads, instead of with a traceback."""

from __future__ import annotations

from eyot_wire.program import ended_by_interrupt


def main() -> int:
    """Run `eyot-check` with the command line; return its exit status."""
    with ended_by_interrupt():
        from eyot_store.check import main as eyot_check
    return eyot_check.main()
