"""The end of a command that changes something: the server's answer, or a line."""

from __future__ import annotations

from typing import Any, Final

import click

from eyot_cli.connection.target import Target
from eyot_cli.terminal.show import console, print_json

#: What a server fills in for members of streams and consumers; all others are empty, false, or without a limit.
DEFAULTS: Final = {
    "ack_policy": "none",
    "ack_wait": 30 * 10**9,
    "compression": "none",
    "deliver_policy": "all",
    "discard": "old",
    "duplicate_window": 120 * 10**9,
    "max_ack_pending": 1000,
    "max_waiting": 512,
    "num_replicas": 1,
    "replay_policy": "instant",
    "retention": "limits",
    "storage": "file",
}


def tell(target: Target, answer: dict[str, Any], text: str) -> None:
    """Print the answer as JSON where that was asked for, else `text`."""
    if target.as_json:
        print_json(answer)
    else:
        console.print(text)


def _filled_in(member: str, value: Any) -> Any:
    """Return a member of a configuration as a server has it: a member that is left out has a default."""
    if member == "metadata" and isinstance(value, dict):
        return {name: text for name, text in value.items() if not name.startswith("_nats.")}  # the server's own notes
    if value in (None, "", 0, {}, []):
        return DEFAULTS.get(member) or ({} if member == "metadata" else None)
    return None if value == -1 and member not in DEFAULTS else value


def show_changes(target: Target, before: dict[str, Any], after: dict[str, Any], *, dry_run: bool) -> bool:
    """Show which members of a configuration change; return whether any does. With `dry_run` the command ends here, with 1 if so."""
    changes = {
        each: (before.get(each), after.get(each))
        for each in before | after
        if _filled_in(each, before.get(each)) != _filled_in(each, after.get(each))
    }
    if not target.as_json:
        for member, (old, new) in changes.items():
            texts = ("not set" if value is None else str(value) for value in (old, new))
            console.print(f"  {member}: {next(texts)} -> ", (next(texts), "bold"))
    elif dry_run:
        print_json({member: {"old": old, "new": new} for member, (old, new) in changes.items()})
    if dry_run:
        raise click.exceptions.Exit(1 if changes else 0)
    return bool(changes)
