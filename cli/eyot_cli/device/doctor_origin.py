"""Finds which of the five subjects between a mirror or source (or a pull consumer's client) and its origin is missing.

A mirror, source or pull consumer across accounts or domains needs five subjects in its own account: the origin's API
under the configured prefix, the consumer requests of that API, the delivery subject, and the subjects of flow control
(`$JS.FC`) and of acknowledgements (`$JS.ACK`). The probe uses each one as sourcing does: it creates a consumer at the
origin, which expires a few seconds later.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from typing import Any

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeout

from eyot_wire.doctor.check import Check, failure, ok, skipped

#: Heartbeat interval of the probe's consumer, and its inactivity threshold, in nanoseconds.
_HEARTBEAT_NS = 500_000_000
_THRESHOLD_NS = 5_000_000_000
_ANSWER_S = 3.0
_HEARTBEAT_WITHIN_S = 4.0
_INTEREST_S = 0.7
#: Error codes for consumers that a work-queue stream does not allow.
_OF_WORK_QUEUES = (10098, 10099, 10100, 10101)


@dataclass(frozen=True)
class Origin:
    """A stream in another account or domain.

    `account` and `api` are those of its home, for suggested configuration lines. `consumer`: an existing pull consumer
    there, "" for a mirror or source. `kinds`: which of mirror and source to probe.
    """

    stream: str
    prefix: str
    deliver: str = ""
    consumer: str = ""
    account: str = "ORIGIN"
    api: str = "$JS.API"
    kinds: tuple[str, ...] = ("mirror", "source")

    @property
    def crosses_accounts(self) -> bool:
        return not self.prefix.startswith("$JS.")


async def probe(client: Client, origin: Origin, mine: str) -> list[Check]:
    """Probe the five subjects; `mine`: the client's account."""
    name = f"origin {origin.prefix} {origin.stream}"
    reached = await _has_interest(client, f"{origin.prefix}.STREAM.INFO.{origin.stream}")
    if origin.consumer:
        return await _probe_pull(client, origin, mine, name, reached)
    checks: list[Check] = []
    for kind in origin.kinds:
        found = await _probe_sourcing(client, origin, mine, name, kind, reached)
        checks += [each for each in found if each not in checks]
        if any(each.state == "failure" for each in found):
            break  # both kinds have the same missing subject
    return checks


async def _probe_sourcing(
    client: Client, origin: Origin, mine: str, name: str, kind: str, reached: bool
) -> list[Check]:
    """Probe as a mirror or source does; each has delivery subjects of its own."""
    subject = f"{origin.prefix}.CONSUMER.CREATE.{origin.stream}"
    deliver = f"{origin.deliver or '$JS'}.{kind[0].upper()}.{secrets.token_hex(4)}"
    heard = asyncio.Event()

    async def note(message: Msg) -> None:
        heard.set()

    subscription = await client.subscribe(deliver, cb=note)
    await client.flush()
    try:
        answer = await _ask(client, subject, _consumer(origin, deliver))
    except NoRespondersError:
        return [_no_api(name, origin, mine, reached)]
    except NatsTimeout:
        return [
            failure(
                f"{name}: consumer API",
                f"no answer on {subject}, although it has a subscriber",
                "check that the link to the origin is up and that its account may answer (allow_responses, response_type)",
                _service_lines(origin, mine, "CONSUMER.CREATE.>", f"{origin.prefix}.CONSUMER.CREATE.>"),
            )
        ]
    checks = [ok(f"{name}: API prefix", "answers"), ok(f"{name}: consumer API", "answers")]
    error = answer.get("error")
    if error is not None:
        text = f"{error.get('description')} ({error.get('err_code')})"
        await subscription.unsubscribe()
        if error.get("err_code") in _OF_WORK_QUEUES:
            return [
                *checks,
                skipped(f"{name}: delivery", "not tried: a probe would remove messages from a work queue"),
            ]
        return [
            *checks,
            failure(f"{name}: consumer", text, "check the stream's name, and that JetStream is enabled there"),
        ]
    consumer = str(answer.get("name"))
    try:
        await asyncio.wait_for(heard.wait(), _HEARTBEAT_WITHIN_S)
        checks.append(ok(f"{name}: delivery subject", f"heartbeats arrive on {deliver[:-8]}>"))
    except TimeoutError:
        checks.append(
            failure(
                f"{name}: delivery subject",
                f"the consumer exists, but nothing arrives on {deliver}: {kind}s of this origin stay empty",
                "export and import the delivery subject"
                if origin.crosses_accounts
                else f"allow {deliver[:-8]}> to the user of the link, there for publish and here for subscribe",
                _stream_lines(origin, mine),
            )
        )
    # Mirrors and sources do not acknowledge: flow control is their only answer.
    checks += (await _probe_back(client, origin, mine, name, consumer))[:1]
    await subscription.unsubscribe()
    return checks


async def _probe_back(client: Client, origin: Origin, mine: str, name: str, consumer: str) -> list[Check]:
    """Check the two subjects from here to the consumer."""
    checks = []
    for what, subject, kind in (
        ("flow control", f"$JS.FC.{origin.stream}.{consumer}.doct", "$JS.FC"),
        ("acknowledgements", f"$JS.ACK.{origin.stream}.{consumer}.1.1.1.1.0", "$JS.ACK"),
    ):
        if await _has_interest(client, subject):
            checks.append(ok(f"{name}: {what}", f"{kind} reaches the origin"))
        else:
            checks.append(
                failure(
                    f"{name}: {what}",
                    f"no subscriber on {kind}.{origin.stream}.>",
                    "without it the mirror or source stops after the first megabytes" if kind == "$JS.FC" else
                    "without it the origin delivers every message again",
                    _back_lines(origin, mine, kind),
                )
            )  # fmt: skip
    return checks


async def _probe_pull(client: Client, origin: Origin, mine: str, name: str, reached: bool) -> list[Check]:
    """Probe as a client of an existing pull consumer: its request, and the subject of acknowledgements."""
    subject = f"{origin.prefix}.CONSUMER.MSG.NEXT.{origin.stream}.{origin.consumer}"
    tail = f"CONSUMER.MSG.NEXT.{origin.stream}.{origin.consumer}"
    checks = []
    if await _has_interest(client, subject, b'{"batch":1,"no_wait":true,"max_bytes":1}'):
        checks.append(ok(f"{name}: pull requests", "has a subscriber"))
    elif not reached and not await _has_interest(client, f"{origin.prefix}.INFO"):
        checks.append(_no_api(name, origin, mine, reached, tail))
    else:
        lines = _service_lines(origin, mine, tail, f"{origin.prefix}.{tail}")
        checks.append(failure(f"{name}: consumer API", f"no subscriber on {subject}", "export and import it", lines))
    checks += (await _probe_back(client, origin, mine, name, origin.consumer))[1:]
    return checks


def _no_api(name: str, origin: Origin, mine: str, reached: bool, tail: str = "CONSUMER.CREATE.>") -> Check:
    lines = _service_lines(origin, mine, tail, f"{origin.prefix}.{tail}")
    if reached:
        return failure(
            f"{name}: consumer API",
            f"{origin.prefix} reaches the origin, but there is no subscriber on {origin.prefix}.{tail}",
            "export and import the consumer API too",
            lines,
        )
    if not origin.crosses_accounts:
        domain = origin.prefix.split(".")[1]
        return failure(
            f"{name}: API prefix",
            f"no subscriber on {origin.prefix}.>",
            f'check that a server with "jetstream {{ domain: {domain} }}" is linked to this account, and that its account has JetStream',
        )
    return failure(
        f"{name}: API prefix",
        f"no subscriber on {origin.prefix}.>",
        "import the origin's API under this prefix",
        lines,
    )


def _service_lines(origin: Origin, mine: str, tail: str, to: str) -> tuple[str, ...]:
    if not origin.crosses_accounts:
        return ()
    subject = f"{origin.api}.{tail}"
    return (
        f'accounts.{origin.account}.exports: {{service: "{subject}", response_type: "stream"}}',
        f'accounts.{mine}.imports: {{service: {{account: {origin.account}, subject: "{subject}"}}, to: "{to}"}}',
    )


def _stream_lines(origin: Origin, mine: str) -> tuple[str, ...]:
    subject = f"{origin.deliver or '$JS.M'}.>"
    return (
        f'accounts.{origin.account}.exports: {{stream: "{subject}"}}',
        f'accounts.{mine}.imports: {{stream: {{account: {origin.account}, subject: "{subject}"}}}}',
    )


def _back_lines(origin: Origin, mine: str, kind: str) -> tuple[str, ...]:
    subject = f"{kind}.{origin.stream}.>"
    return (
        f'accounts.{origin.account}.exports: {{service: "{subject}"}}',
        f'accounts.{mine}.imports: {{service: {{account: {origin.account}, subject: "{subject}"}}}}',
    )


def _consumer(origin: Origin, deliver: str) -> dict[str, Any]:
    return {
        "stream_name": origin.stream,
        "config": {
            "deliver_subject": deliver,
            "deliver_policy": "new",
            "ack_policy": "explicit",
            "idle_heartbeat": _HEARTBEAT_NS,
            "flow_control": True,
            "inactive_threshold": _THRESHOLD_NS,
            "mem_storage": True,
            "num_replicas": 1,
        },
    }


async def _ask(client: Client, subject: str, body: dict[str, Any]) -> dict[str, Any]:
    reply = await client.request(subject, msgspec.json.encode(body), timeout=_ANSWER_S)
    answer: dict[str, Any] = msgspec.json.decode(reply.data)
    return answer


async def _has_interest(client: Client, subject: str, payload: bytes = b"") -> bool:
    """Return whether the subject has a subscriber. A subscriber that does not answer counts."""
    try:
        await client.request(subject, payload, timeout=_INTEREST_S)
    except NoRespondersError:
        return False
    except NatsTimeout:
        return True
    return True
