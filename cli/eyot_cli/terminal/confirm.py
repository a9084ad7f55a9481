"""Questions before something is deleted."""

from __future__ import annotations

import sys

import click

from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.show import line

force = click.option("--force", "-f", is_flag=True, help="do not ask")


def confirm(question: str, *, forced: bool) -> None:
    """Return if the operator agrees. Raises Failure where nobody can be asked, Abort if the answer is no."""
    if forced:
        return
    if not sys.stdin.isatty():
        raise Failure("standard input is no terminal, so nobody can be asked: --force goes on without a question")
    click.confirm(line(question).plain, abort=True)
