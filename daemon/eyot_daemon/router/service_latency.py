"""Service latency: metrics for an exporting account about requests to a service with `latency` configured.

Each sampled request gives one message on the configured subject: `io.nats.server.metric.v1.service_latency`, with
status 200 for an answer, 400 for a request without reply, 503 without a responder, 504 after a timeout. All requests
are sampled, or a percentage, or those with tracing headers: Zipkin (B3), Jaeger (Uber) and W3C (traceparent).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from eyot_daemon.config.accounts import LatencyOptions
from eyot_daemon.router.known_client import KnownClient
from eyot_daemon.router.providers import Json
from eyot_daemon.router.subscription import IMPORTED, Kind, Origin
from eyot_wire.go.time import ns_to_rfc3339
from eyot_wire.headers import HeaderError, parse
from eyot_wire.nuid import nuid

if TYPE_CHECKING:
    from eyot_daemon.router.account import Account

TYPE = "io.nats.server.metric.v1.service_latency"
OK = 200
BAD_REQUEST = 400
UNAVAILABLE = 503
TIMEOUT = 504
_WORDS = {BAD_REQUEST: "Bad Request", UNAVAILABLE: "Service Unavailable", TIMEOUT: "Service Timeout"}
_B3 = ("X-B3-Traceid", "X-B3-Spanid", "X-B3-Parentspanid", "X-B3-Sampled")

Fields = dict[str, list[str]]


class Responder(NamedTuple):
    """Who answered a request, and the account that the answer was published in."""

    origin: Origin | None
    account: Account


class SampledRequest:
    """One request that is measured, from its arrival on. Published in `exporter`.

    `described`: the requester, where it is a client of another account than `importer` (the request came through its import).
    """

    __slots__ = ("described", "exporter", "fields", "importer", "options", "requestor", "share", "started_ns")

    def __init__(
        self,
        exporter: Account,
        importer: Account,
        options: LatencyOptions,
        requestor: Origin | None,
        fields: Fields,
        *,
        share: bool,
        described: Json | None = None,
    ) -> None:
        self.described = described
        self.exporter = exporter
        self.importer = importer
        self.options = options
        self.requestor = requestor
        self.fields = fields
        self.share = share
        self.started_ns = exporter.broker.clock.now_ns()

    def ended(self, status: int, responder: Responder | None = None) -> None:
        """Publish the result. `responder`: who answered, in which account."""
        broker = self.exporter.broker
        if not self.exporter.has_interest(self.options.subject):
            return
        now_ns = broker.clock.now_ns()
        requestor = self.described or _describe(self.requestor, self.importer, detailed=self.share)
        asked_ns = int(requestor.get("rtt", 0))
        metric: Json = {
            "type": TYPE,
            "id": nuid(broker.ids),
            "timestamp": ns_to_rfc3339(now_ns),
            "status": status,
            "requestor": requestor,
            "start": ns_to_rfc3339(self.started_ns - asked_ns),
            "service": 0,
            "system": 0,
            "total": 0,
        }
        if status == OK and responder is not None:
            taken_ns = now_ns - self.started_ns
            metric["responder"] = _describe(*responder, detailed=True)
            metric["service"] = max(0, taken_ns - _rtt_ns(responder.origin))
            metric["total"] = max(0, taken_ns + asked_ns)
        else:
            metric["description"] = _WORDS[status]
        if self.fields:
            metric["header"] = self.fields
        self.exporter.publish(self.options.subject, payload=msgspec.json.encode(metric))


def sampled(options: LatencyOptions, header: bytes, random: Callable[[], float]) -> Fields | None:
    """Return the header fields that request a measurement (empty for a random sample), None if there is none."""
    if options.sampling and random() * 100 < options.sampling:
        return {}
    if not header:
        return None
    try:
        pairs = parse(header).fields
    except HeaderError:
        return None
    fields: Fields = {}
    for name, value in pairs:
        fields.setdefault(_canonical(name), []).append(value.decode("utf-8", "replace"))
    return _asked_for(fields)


def _asked_for(fields: Fields) -> Fields | None:
    """Return the fields of the first kind of tracing that is present."""
    if "Uber-Trace-Id" in fields:
        parts = fields["Uber-Trace-Id"][0].split(":")
        asked = len(parts) == 4 and len(parts[3]) <= 2 and _is_odd(parts[3])
        return _only(fields, "Uber-Trace-Id", prefix="Uberctx-") if asked else None
    decision = fields.get("X-B3-Sampled", [""])[0]
    if decision == "0":
        return None
    if decision == "1" or "X-B3-Traceid" in fields:
        return _only(fields, *_B3)
    if "B3" in fields:
        parts = fields["B3"][0].split("-")
        return None if (parts[2:3] or parts)[0] == "0" else _only(fields, "B3")
    if "Traceparent" in fields:
        parts = fields["Traceparent"][0].split("-")
        asked = len(parts) == 4 and len(parts[3]) == 2 and _is_odd(parts[3])
        return _only(fields, "Traceparent", "Tracestate") if asked else None
    return None


def _only(fields: Fields, *names: str, prefix: str = "\n") -> Fields:
    return {name: values for name, values in fields.items() if name in names or name.startswith(prefix)}


def _is_odd(digits: str) -> bool:
    try:
        return bool(int(digits, 16) & 1)
    except ValueError:
        return False


def _canonical(name: bytes) -> str:
    """As Go writes a MIME header's name: `X-B3-TraceId` is `X-B3-Traceid`."""
    return "-".join(part.capitalize() for part in name.decode("utf-8", "replace").split("-"))


def _rtt_ns(origin: Origin | None) -> int:
    return int(origin.rtt_s * 1e9) if isinstance(origin, KnownClient) else 0


def _describe(origin: Origin | None, account: Account, *, detailed: bool) -> Json:
    """Account and round trip; the rest where the importer shares it (and always of responders)."""
    told: Json = {"acc": account.name}
    if isinstance(origin, KnownClient):
        told["rtt"] = _rtt_ns(origin)
        if detailed:
            told |= {
                "start": ns_to_rfc3339(origin.started_ns),
                "host": origin.peer.host,
                "id": origin.cid,
                "user": origin.user,
                "name": origin.name,
                "lang": origin.lang,
                "ver": origin.version,
                "kind": "Client",
                "client_type": origin.peer.client_type,
            } | origin.token_members()
    elif detailed and origin is not None and origin is not IMPORTED:
        told["kind"] = "Leafnode" if origin.kind is Kind.LEAF else "Account"
    if detailed:
        told["server"] = account.broker.server_name
    return {name: value for name, value in told.items() if value}
