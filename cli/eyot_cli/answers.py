"""The end of a command that changes something: the server's answer, or a line."""

from __future__ import annotations

from typing import Any

import click

from eyot_cli.show import console, print_json
from eyot_cli.target import Target


def tell(target: Target, answer: dict[str, Any], text: str) -> None:
    """Print the answer as JSON where that was asked for, else `text`."""
    if target.as_json:
        print_json(answer)
    else:
        console.print(text)


def show_changes(target: Target, before: dict[str, Any], after: dict[str, Any], *, dry_run: bool) -> bool:
    """Show which members of a configuration change; return whether any does. With `dry_run` the command ends here, with 1 if so."""
    changes = {
        each: (before.get(each), after.get(each)) for each in before | after if before.get(each) != after.get(each)
    }
    if not target.as_json:
        for member, (old, new) in changes.items():
            console.print(f"  {member}: {old} -> ", (str(new), "bold"))
    elif dry_run:
        print_json({member: {"old": old, "new": new} for member, (old, new) in changes.items()})
    if dry_run:
        raise click.exceptions.Exit(1 if changes else 0)
    return bool(changes)
