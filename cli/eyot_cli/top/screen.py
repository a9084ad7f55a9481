"""The lines of `eyot top`: plain text, cut to the terminal. Names come from clients: what controls a terminal is escaped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from eyot_cli.terminal.show import count, size
from eyot_wire.quantities import counted
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


class Form(NamedTuple):
    """How figures and columns are written."""

    #: plain numbers, without units and commas
    raw: bool = False
    #: stands between columns, which are not aligned then
    delimiter: str = ""

    def number(self, value: int) -> str:
        return str(value) if self.raw else count(value)

    def size(self, value: int) -> str:
        return str(value) if self.raw else size(value)

    def rate(self, value: float | None) -> str:
        if self.raw:
            return "" if value is None else f"{value:.1f}"
        return "?" if value is None else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"

    def bytes_rate(self, value: float | None) -> str:
        return self.rate(value) if self.raw else size(None if value is None else round(value))


PLAIN: Final = Form()


def lines(reading: Reading, sort: str, *, subjects: bool, form: Form = PLAIN) -> list[str]:
    """Return the head and one line for each connection; with `subjects` its subscriptions below it."""
    table = [[title.lstrip(">") for title in COLUMNS], *(_row(each, form) for each in reading.connections)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    rows = [form.delimiter.join(row) if form.delimiter else _aligned(row, widths) for row in table]
    found = [*_head(reading, sort, form), "", rows[0]]
    for row, each in zip(rows[1:], reading.connections, strict=True):
        found.append(row)
        if subjects:
            found += [f"    {printable(subject)}" for subject in sorted(each.connection.subscriptions_list)]
    left = reading.total - len(reading.connections)
    return [*found, f"{counted(left, 'more connection')}: --conns shows more"] if left > 0 else found


def fitted(text: list[str], columns: int, rows: int) -> list[str]:
    """Cut lines to a terminal; the last row says how many are missing."""
    if len(text) > rows:
        text = [*text[: rows - 1], f"{counted(len(text) - rows + 1, 'more line')}"]
    return [line[:columns] for line in text]


def _head(reading: Reading, sort: str, form: Form) -> list[str]:
    server, rates = reading.server, reading.per_second
    return [
        f"{printable(server.server_name)}  version {printable(server.version)}  up {printable(server.uptime)}  "
        f"processor {server.cpu:.1f} %  memory {size(server.mem)}",
        f"messages in:  {form.number(server.in_msgs)}, {form.size(server.in_bytes)}; {form.rate(rates.in_msgs)} msgs/s, {form.bytes_rate(rates.in_bytes)}/s",
        f"messages out: {form.number(server.out_msgs)}, {form.size(server.out_bytes)}; {form.rate(rates.out_msgs)} msgs/s, {form.bytes_rate(rates.out_bytes)}/s",
        f"{counted(server.connections, 'client')} ({count(server.total_connections)} since the start), {counted(server.leafnodes, 'leaf link')}, "
        f"{counted(server.subscriptions, 'subscription')}, {counted(server.slow_consumers, 'slow consumer')}; sorted by {sort}",
    ]


def _row(rated: RatedConnection, form: Form) -> list[str]:
    each, rates = rated.connection, rated.per_second
    client = " ".join(filter(None, (each.kind if each.kind != "Client" else "", each.lang, each.version)))
    texts = (
        str(each.cid), f"{each.ip}:{each.port}", each.name, each.account, each.authorized_user,
        form.number(each.subscriptions), form.size(each.pending_bytes), form.number(each.out_msgs), form.number(each.in_msgs),
        form.rate(rates.out_msgs), form.rate(rates.in_msgs), form.bytes_rate(rates.out_bytes), form.bytes_rate(rates.in_bytes), each.rtt, each.uptime, each.idle, client,
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
