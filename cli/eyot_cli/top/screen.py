"""The lines of `eyot top`: plain text, cut to the terminal. Names come from clients: what controls a terminal is escaped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eyot_cli.show import count, size
from eyot_wire.quoting import printable

if TYPE_CHECKING:
    from eyot_cli.top.figures import RatedConnection, Reading

#: Titles of the columns; those with `>` hold numbers and are aligned right.
COLUMNS = (
    ">CID", "HOST", "NAME", "ACCOUNT", "USER", ">SUBS", ">PENDING", ">MSGS TO", ">FROM", ">MSGS/S TO", ">FROM",
    ">BYTES/S TO", ">FROM", ">RTT", ">UPTIME", ">IDLE", "CLIENT",
)  # fmt: skip
HELP = "q quit, space now, d subjects; sort: c cid, s subs, p pending, t/f msgs to/from, T/F bytes, i idle, l last, u uptime, r rtt, b start"
#: Characters of a name that are shown at most.
_NAME = 32


def lines(reading: Reading, sort: str, *, subjects: bool) -> list[str]:
    """Return the head and one line for each connection; with `subjects` its subscriptions below it."""
    table = [[title.lstrip(">") for title in COLUMNS], *map(_row, reading.connections)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    rows = [_aligned(row, widths) for row in table]
    found = [*_head(reading, sort), "", rows[0]]
    for row, each in zip(rows[1:], reading.connections, strict=True):
        found.append(row)
        if subjects:
            found += [f"    {printable(subject)}" for subject in sorted(each.connection.subscriptions_list)]
    left = reading.total - len(reading.connections)
    return [*found, f"{count(left)} more connections: --conns shows more"] if left > 0 else found


def fitted(text: list[str], columns: int, rows: int) -> list[str]:
    """Cut lines to a terminal; the last row says how many are missing."""
    if len(text) > rows:
        text = [*text[: rows - 1], f"{len(text) - rows + 1} more lines"]
    return [line[:columns] for line in text]


def _head(reading: Reading, sort: str) -> list[str]:
    server, rates = reading.server, reading.per_second
    return [
        f"{printable(server.server_name)}  version {printable(server.version)}  up {printable(server.uptime)}  "
        f"processor {server.cpu:.1f} %  memory {size(server.mem)}",
        f"in:  {count(server.in_msgs)} messages, {size(server.in_bytes)}; {_rate(rates.in_msgs)} msgs/s, {_bytes(rates.in_bytes)}/s",
        f"out: {count(server.out_msgs)} messages, {size(server.out_bytes)}; {_rate(rates.out_msgs)} msgs/s, {_bytes(rates.out_bytes)}/s",
        f"{count(server.connections)} clients ({count(server.total_connections)} since the start), {count(server.leafnodes)} leaf links, "
        f"{count(server.subscriptions)} subscriptions, {count(server.slow_consumers)} slow consumers; sorted by {sort}",
    ]


def _row(rated: RatedConnection) -> list[str]:
    each, rates = rated.connection, rated.per_second
    client = " ".join(filter(None, (each.kind if each.kind != "Client" else "", each.lang, each.version)))
    texts = (
        str(each.cid), f"{each.ip}:{each.port}", each.name, each.account, each.authorized_user, count(each.subscriptions),
        size(each.pending_bytes), count(each.out_msgs), count(each.in_msgs), _rate(rates.out_msgs), _rate(rates.in_msgs),
        _bytes(rates.out_bytes), _bytes(rates.in_bytes), each.rtt, each.uptime, each.idle, client,
    )  # fmt: skip
    return [_short(printable(text)) for text in texts]


def _short(text: str) -> str:
    return text if len(text) <= _NAME else text[: _NAME - 1] + "…"


def _aligned(row: list[str], widths: list[int]) -> str:
    cells = (
        text.rjust(width) if title.startswith(">") else text.ljust(width)
        for text, width, title in zip(row, widths, COLUMNS, strict=True)
    )
    return "  ".join(cells).rstrip()


def _rate(value: float | None) -> str:
    return "?" if value is None else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _bytes(value: float | None) -> str:
    return size(None if value is None else round(value))
