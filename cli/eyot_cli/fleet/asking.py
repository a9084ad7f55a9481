"""`eyot --group`: a report of many devices at the hub, a bounded number at a time."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any, Final, TypeVar

from eyot_cli.fleet.login import own_login
from eyot_cli.fleet.selection import select_group
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.show import print_json, print_line, print_table
from eyot_cli.trust.directories import Directories, Environment
from eyot_cli.trust.session import Report, Session
from eyot_wire.device_requests import PREFIX
from eyot_wire.quoting import printable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from nats.aio.client import Client

    from eyot_cli.connection.target import Target
    from eyot_cli.terminal.show import Piece

T = TypeVar("T")
#: Exit status: a device did not answer.
UNANSWERED: Final = 3


def ask_group(target: Target, ask: Callable[[Client, str], Awaitable[T]]) -> dict[str, T | Failure]:
    """Ask each device of the target's group, `at_once` at a time; return the answers by name. Raises Failure.

    The group is one of the account in use of `eyot trust`. Without a login of its own, the command logs in as a user that
    exists in its memory alone.
    """
    if target.device:
        raise Failure("--device and --group name the devices twice: leave one out")
    session = Session(Environment(Directories.of(None, None, None, None)), "", Report(target.as_json))
    account = session.account_name(None)
    names = select_group(session, account, target.group)
    target = with_own_login(target, session, account, "*")
    return dict(
        zip(names, dataclasses.replace(target, group="").with_client(asker(names, target.at_once, ask)), strict=True)
    )


def with_own_login(target: Target, session: Session, account: str, report: str) -> Target:
    """Return a target that has a login: its own, or a user that may only ask devices for a report. Raises Failure."""
    if target.creds is not None or target.user is not None or target.nkey is not None:
        return target
    publishes = [f"{PREFIX}.*.{report}"]
    login = own_login(session, account, hears=["_INBOX.>"], publishes=publishes, called="eyot --group")
    return dataclasses.replace(target, login=login)


def asker(
    names: Sequence[str], at_once: int, ask: Callable[[Client, str], Awaitable[T]]
) -> Callable[[Client], Awaitable[list[T | Failure]]]:
    """Return what asks devices over one connection, `at_once` at a time. Answers come in the order of the names."""

    async def all_of_them(client: Client) -> list[T | Failure]:
        free = asyncio.Semaphore(at_once)

        async def one(name: str) -> T | Failure:
            async with free:
                try:
                    return await ask(client, name)
                except Failure as failure:
                    return failure

        return list(await asyncio.gather(*map(one, names)))

    return all_of_them


def show_group(
    target: Target,
    title: str,
    columns: Sequence[str],
    answers: dict[str, T | Failure],
    as_json: Callable[[T], Any],
    as_row: Callable[[T], tuple[Piece, ...]],
) -> int:
    """Print the answers as a table or as JSON; return the exit status: 0, or `UNANSWERED`."""
    unanswered = {name: each for name, each in answers.items() if isinstance(each, Failure)}
    if target.as_json:
        print_json(
            [
                {"device": name} | ({"error": _line(each)} if isinstance(each, Failure) else {"answer": as_json(each)})
                for name, each in answers.items()
            ]
        )
    else:
        empty = ("",) * (len(columns) - 1)
        rows = [
            (name, *((*empty, (_line(each), "yellow")) if isinstance(each, Failure) else (*as_row(each), "")))
            for name, each in answers.items()
        ]
        print_table(title, ("Device", *columns, ""), [(row[0], *row[1:]) for row in rows], "none")
        print_line(f"{len(answers) - len(unanswered)} of {len(answers)} answered")
    return UNANSWERED if unanswered else 0


def _line(failure: Failure) -> str:
    return printable(failure.lines[0])
