"""Rates of a benchmark as a table or JSON."""

from __future__ import annotations

from msgspec import Struct

from eyot_cli.connection.target import Target
from eyot_cli.terminal.show import console, count, print_json, print_table, size

#: Share of a processor core above which the tool itself limits the rate.
BUSY = 0.9


class Result(Struct):
    """What one client did. `bytes` counts payloads; `seconds` of wall time."""

    messages: int
    bytes: int
    seconds: float

    def per_second(self, amount: int) -> float | None:
        """Return an amount for each second; None when it took no measurable time."""
        return amount / self.seconds if self.seconds > 0 else None


def print_results(target: Target, what: str, results: list[Result], processor_s: float) -> None:
    """Print the clients' rates and those of all together. `processor_s`: processor time of the tool meanwhile."""
    # The clients begin together: all of them took as long as the last one.
    longest = max(each.seconds for each in results)
    total = Result(sum(each.messages for each in results), sum(each.bytes for each in results), longest)
    if target.as_json:
        clients = [_members(each) for each in results]
        print_json({"what": what, "clients": clients, "total": _members(total), "processor_seconds": processor_s})
        return
    rows = [(str(number), *_cells(each)) for number, each in enumerate(results, 1)] if len(results) > 1 else []
    columns = ("Client", ">Messages", ">Payload", ">Seconds", ">Msgs/s", ">Payload/s")
    print_table(what, columns, [*rows, ("all" if rows else "1", *_cells(total))], "")
    busy = ": the tool was the limit, the server may do more" if processor_s > BUSY * longest else ""
    console.print(f"This tool used {processor_s:.2f} s of processor time{busy}")


def _members(result: Result) -> dict[str, float | None]:
    return {
        "messages": result.messages,
        "bytes": result.bytes,
        "seconds": result.seconds,
        "messages_per_second": result.per_second(result.messages),
        "bytes_per_second": result.per_second(result.bytes),
    }


def _cells(result: Result) -> tuple[str, ...]:
    messages, payload = result.per_second(result.messages), result.per_second(result.bytes)
    return (
        count(result.messages),
        size(result.bytes),
        f"{result.seconds:.3f}",
        count(None if messages is None else round(messages)),
        size(None if payload is None else round(payload)),
    )
