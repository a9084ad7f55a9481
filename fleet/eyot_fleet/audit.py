"""The audit stream: a line for every action and every refusal, at the hub. Nothing is done without its line.

What a peer can repeat at will is bounded: lines of refusals keep to a pace, and the next one counts what was left out.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from eyot_fleet.errors import ApiFailure, FleetError
from eyot_fleet.jetstream import STREAM_EXISTS
from eyot_wire.go.time import ns_to_rfc3339
from eyot_wire.untrusted import decode_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from eyot_fleet.config import StateConfig
    from eyot_fleet.jetstream import JetStream

#: Between two refusals of one device that are told, seconds; devices whose last refusal is remembered.
REFUSAL_S: Final = 60.0
_REMEMBERED: Final = 10_000
_TEXT_MAX: Final = 1000


class AuditLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line. `at`: RFC 3339, by the service's clock; the stream has the hub's time besides."""

    at: str
    #: what was done, in one word or two: `group`, `device`, `sources`, `released`, `forgotten`, `refused`, `revoked`, `login`
    event: str
    #: who asked: a user of the page, `command line`, `device NAME`, or `eyot-fleet` for what it does by itself
    by: str
    #: what it was done to
    target: str = ""
    #: "" unless it did not succeed
    error: str = ""
    detail: dict[str, str] = {}
    #: lines like this one that were left out before it
    left_out: int = 0


class RefusalPace:
    """Keeps lines of refusals to a pace, for each device."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        #: by device: when a refusal was told, and how many were not since
        self._told: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def take(self, name: str) -> int | None:
        """Return how many lines were left out before this one; None: this one is left out, too."""
        now = self._monotonic()
        at, left_out = self._told.get(name, (-REFUSAL_S, 0))
        if now - at < REFUSAL_S:
            self._told[name] = (at, left_out + 1)
            return None
        self._told[name] = (now, 0)
        self._told.move_to_end(name)
        if len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)
        return left_out


class Audit:
    """The stream at one connection."""

    def __init__(self, jetstream: JetStream, config: StateConfig) -> None:
        self._js = jetstream
        self._config = config
        self.stream = f"{config.name}_AUDIT"

    async def open(self) -> None:
        """Create the stream unless it exists."""
        if await self._js.stream_info(self.stream) is not None:
            return
        try:
            await self._js.api(f"STREAM.CREATE.{self.stream}", self._stream_config())
        except ApiFailure as failure:
            if failure.code != STREAM_EXISTS:
                raise FleetError(f"the audit stream {self.stream} cannot be created: {failure}") from None

    async def note(
        self,
        event: str,
        by: str,
        target: str = "",
        *,
        error: str = "",
        detail: dict[str, str] | None = None,
        left_out: int = 0,
    ) -> AuditLine:
        """Append a line; it is stored when this returns. Raises FleetError, and then nothing may be done."""
        line = AuditLine(
            at=ns_to_rfc3339(time.time_ns()),
            event=event,
            by=by[:_TEXT_MAX],
            target=target[:_TEXT_MAX],
            error=error[:_TEXT_MAX],
            detail={key: value[:_TEXT_MAX] for key, value in (detail or {}).items()},
            left_out=left_out,
        )
        subject = f"{self._config.name}.AUDIT.{event.replace(' ', '-')}"
        await self._js.publish(subject, msgspec.json.encode(line))
        return line

    async def latest(self, count: int = 100) -> list[AuditLine]:
        """Return the last lines, the latest first; at most 1,000."""
        info = await self._js.stream_info(self.stream)
        if info is None or not info["state"]["messages"]:
            return []
        start = max(1, info["state"]["last_seq"] - min(count, 1000) + 1)
        found: list[AuditLine] = []
        config = {"deliver_policy": "by_start_sequence", "opt_start_seq": start}
        async with aclosing(self._js.pull(self.stream, config)) as batches:
            async for batch in batches:
                if not batch:
                    break
                for each in batch:
                    try:
                        found.append(decode_json(each.payload, AuditLine))
                    except msgspec.DecodeError:
                        continue
        return found[::-1]

    def _stream_config(self) -> dict[str, Any]:
        config = self._config
        return {
            "name": self.stream,
            "description": "What eyot-fleet did, for whom",
            "subjects": [f"{config.name}.AUDIT.>"],
            "storage": "file",
            "num_replicas": config.replicas,
            "max_age": int(config.audit_days * 86_400 * 10**9),
            "max_bytes": config.audit_max_bytes,
            "deny_delete": True,
            "deny_purge": True,
        }
