"""What `eyot` executes: SIGINT ends it silently while it loads, instead of with a traceback."""

from __future__ import annotations

from eyot_wire.program import ended_by_interrupt


def main() -> int:
    """Run `eyot` with the command line; return its exit status."""
    with ended_by_interrupt():
        from eyot_cli import main as eyot
    return eyot.main()
