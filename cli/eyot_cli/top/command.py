"""The command `eyot top`."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from eyot_cli.connection.target import Target
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.private_files import write_private
from eyot_cli.terminal.show import print_json, print_line, print_raw
from eyot_cli.top.figures import SORT_KEYS, Connz, Reading, Varz, reading
from eyot_cli.top.host_names import HostNames
from eyot_cli.top.screen import HELP, Form, lines
from eyot_cli.top.sources import Source, over_http, over_link, over_system_account
from eyot_cli.top.terminal import is_terminal, screen
from eyot_cli.values.numbers import at_least
from eyot_cli.values.paths import FilePath
from eyot_cli.values.seconds import seconds

if TYPE_CHECKING:
    from nats.aio.client import Client

#: Readings of a device come at most this often, seconds: they go over its link.
DEVICE_DELAY_S = 1.0


class Top:
    """One run: the source, the chosen order, and the reading before, which the rates need."""

    def __init__(self, source: Source, sort: str, *, subjects: bool, form: Form, names: HostNames | None) -> None:
        self._source = source
        self._sort = sort
        self._subjects = subjects
        self._form = form
        self._names = names
        self._before: tuple[Varz, Connz] | None = None

    async def read(self) -> Reading:
        """Read the server. Raises Failure."""
        pages = await self._source(self._sort, self._subjects)
        try:
            found = reading(*pages, self._before)
        except ValueError as error:
            raise Failure(f"the server's time is malformed: {error}") from error
        self._before = pages
        if self._names is not None:
            await self._names.put_in(found)
        return found

    def _lines(self, found: Reading) -> list[str]:
        return lines(found, self._sort, subjects=self._subjects, form=self._form)

    async def save(self, path: Path, delay_s: float, *, as_json: bool) -> None:
        """Write one reading into a file; `-` is standard output."""
        await self.read()
        await asyncio.sleep(delay_s)
        found = await self.read()
        data = (
            msgspec.json.format(msgspec.json.encode(found), indent=2)
            if as_json
            else "\n".join(self._lines(found)).encode()
        )
        if path == Path("-"):
            print_raw(data)
        else:
            write_private(path, data + b"\n")

    async def print(self, delay_s: float, rounds: int | None, *, as_json: bool) -> None:
        """Print readings one below the other. The first, which has no rates, is not printed."""
        await self.read()
        while rounds != 0:
            await asyncio.sleep(delay_s)
            found = await self.read()
            if as_json:
                print_json(found)
            else:
                for line in self._lines(found):
                    print_line(line)
                print_line("")
            sys.stdout.flush()
            rounds = None if rounds is None else rounds - 1

    async def show(self, delay_s: float, rounds: int | None) -> None:
        """Show readings in the terminal until `q`, or so many of them."""
        with screen() as terminal:
            while rounds != 0:
                found = await self.read()
                terminal.draw(self._lines(found), HELP)
                rounds = None if rounds is None else rounds - 1
                key = await terminal.key(delay_s)
                if key in ("q", "Q", "\x04"):
                    return
                if key == "d":
                    self._subjects = not self._subjects
                self._sort = SORT_KEYS.get(key, self._sort)


@click.command("top")
@click.argument("server", required=False)
@click.option("--sort", type=click.Choice(list(SORT_KEYS.values())), default="cid", help="order of the connections")
@click.option("--conns", "-n", type=at_least(1), default=1024, metavar="NUMBER", help="connections at most")
@click.option(
    "--delay",
    "--interval",
    "-d",
    "delay_s",
    callback=seconds,
    default="1s",
    metavar="TIME",
    help="time between readings",
)
@click.option("--subjects", "--subs", is_flag=True, help="list the subscriptions of each connection")
@click.option("--raw", "-b", is_flag=True, help="plain numbers, without units")
@click.option("--lookup", is_flag=True, help="names of hosts from the DNS, instead of addresses")
@click.option(
    "--output",
    "-o",
    type=FilePath(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="write one reading there, and end",
)
@click.option("--delimiter", default="", metavar="TEXT", help="put this between columns instead of aligning them")
@click.option("--max-refresh", "-r", "rounds", type=at_least(1), metavar="NUMBER", help="end after so many readings")
@click.option("--once", is_flag=True, help="print one reading, and end")
@click.pass_obj
def top(
    target: Target,
    server: str | None,
    sort: str,
    conns: int,
    delay_s: float,
    subjects: bool,
    raw: bool,
    lookup: bool,
    output: Path | None,
    delimiter: str,
    rounds: int | None,
    once: bool,
) -> None:
    """Show connections and rates in the terminal.

    The control socket or monitoring port (--control) is asked, or with SERVER, a name, that server through the system
    account, or with --device that device over its link. In a terminal q ends it and other keys sort; the last line names them. Elsewhere, and with --once or --json,
    readings are printed one below the other.
    """
    rounds = 1 if once else rounds
    delay_s = max(delay_s, 0.01)

    async def run(source: Source) -> None:
        view = Top(source, sort, subjects=subjects, form=Form(raw, delimiter), names=HostNames() if lookup else None)
        if output is not None:
            await view.save(output, delay_s, as_json=target.as_json)
        elif is_terminal() and not once and not target.as_json:
            await view.show(delay_s, rounds)
        else:
            await view.print(delay_s, rounds, as_json=target.as_json)

    async def run_connected(client: Client) -> None:
        assert server is not None
        await run(over_system_account(client, server, conns))

    async def run_linked(client: Client) -> None:
        await run(over_link(client, target.device, conns))

    if target.device:
        if server is not None:
            raise click.UsageError("--device and SERVER name two servers: leave one out")
        delay_s = max(delay_s, DEVICE_DELAY_S)
        dataclasses.replace(target, device="").with_client(run_linked)
    elif server is None:
        asyncio.run(run(over_http(target, conns)))
    else:
        target.with_client(run_connected)
