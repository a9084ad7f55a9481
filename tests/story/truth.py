"""The line of truth: compares message ids end to end, from the client's acknowledgements to the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nats.aio.client import Client
from nats.errors import TimeoutError as NatsTimeout
from readings import id_in

READ_TIMEOUT_S = 15


def ledger_ids(ledger: Path) -> list[str]:
    """Ids that the client was acknowledged, in the order in which the acknowledgements came."""
    return [line.split("\t", 1)[0] for line in ledger.read_text().splitlines()]


async def stream_ids(client: Client, stream: str, count: int) -> list[str]:
    """Ids (`Nats-Msg-Id`, or in the payload) of all `count` messages of the stream, in stream order, through an ordered consumer."""
    ids: list[str] = []
    subscription = await client.jetstream().subscribe(">", stream=stream, ordered_consumer=True)
    try:
        while len(ids) < count:
            message = await subscription.next_msg(timeout=READ_TIMEOUT_S)
            ids.append((message.headers or {}).get("Nats-Msg-Id") or id_in(message.data))
    except NatsTimeout as error:
        raise RuntimeError(f"stream {stream} gave {len(ids)} of {count} messages, then nothing") from error
    finally:
        await subscription.unsubscribe()
    return ids


@dataclass
class Truth:
    """What each place holds, compared with what was acknowledged."""

    acked: list[str]
    places: dict[str, Sequence[str]] = field(default_factory=dict)

    def lost(self, place: str) -> set[str]:
        return set(self.acked) - set(self.places[place])

    def duplicated(self, place: str) -> list[str]:
        return [found for found, times in Counter(self.places[place]).items() if times > 1]

    def disordered(self, place: str, reference: str) -> bool:
        """Whether `place` has the ids it holds in another order than `reference`."""
        return list(self.places[place]) != list(self.places[reference])

    def holds(self, ordered: Iterable[tuple[str, str]] = ()) -> bool:
        whole = all(
            not self.lost(place) and not self.duplicated(place) and len(self.places[place]) == len(set(self.acked))
            for place in self.places
        )
        return whole and not any(self.disordered(place, reference) for place, reference in ordered)

    def line(self) -> str:
        counts = ", ".join(f"{place} {len(ids)}" for place, ids in self.places.items())
        lost = len(set().union(*(self.lost(place) for place in self.places)))
        duplicated = sum(len(self.duplicated(place)) for place in self.places)
        return f"acked {len(set(self.acked))}, {counts}, lost {lost}, duplicated {duplicated}"
