"""The daemon's health before an upgrade and after it, from its control socket.

What was not well before is not judged: an upgrade may be the remedy, and going back would be none.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

#: Time for an answer of the daemon, and for one of a link's address, seconds.
_ANSWER_S: Final = 10.0
#: Publishing is steady, before, if messages arrived in both halves of this; after, if one arrived in each, seconds.
PUBLISHING_S: Final = 60.0
#: The daemon may start again so many times by itself: at the installation, and once more.
_STARTS_MAX: Final = 2
#: Ports of addresses that name none.
_PORTS: Final = {"ws": 80, "wss": 443, "http": 80, "https": 443, "mqtt": 1883, "mqtts": 8883}
_LEAF_PORT: Final = 7422
_ADDRESS: Final = re.compile(r"(?:(\w[\w+.-]*)://)?(?:[^@/]*@)?(\[[^\]]+\]|[^:/]+)(?::([0-9]{1,9}))?")


class Clock(Protocol):
    """Time, which tests let pass."""

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


@dataclass(frozen=True)
class Sample:
    """The daemon at one moment."""

    uptime_s: float
    #: why JetStream cannot store; None: it can; "": there is no JetStream
    store_error: str | None
    offline: list[str]
    #: of each remote and bridge: its address and state, and whether a policy or the configuration keeps it down
    links: dict[str, tuple[str, str, bool]]
    #: last sequence of the streams in files
    last_seqs: dict[str, int]
    #: streams that clients publish to: neither mirrors nor with sources
    published: list[str]
    #: clients that are connected; None: unknown
    clients: int | None


@dataclass
class Before:
    """What was well before the upgrade."""

    store: bool
    offline: list[str]
    #: addresses of the links that were up, by their names
    links: dict[str, str]
    last_seqs: dict[str, int]
    clients: bool
    #: messages arrived from clients all the time
    publishing: bool


@dataclass
class Verdict:
    """What is worse than before, and what nobody can tell at present."""

    worse: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def read_sample(control: Path) -> Sample | None:
    """Ask the daemon; None: it does not answer, or not as a daemon of Eyot does."""
    try:
        return _sample(_get(control, "/eyot/status"), _get(control, "/varz"))
    except (OSError, http.client.HTTPException, ValueError, TypeError, KeyError, AttributeError):
        return None


def is_reachable(address: str) -> bool:
    """Return whether somebody accepts connections at the address of a link."""
    found = _ADDRESS.match(address)
    if found is None:
        return False
    scheme, host, port = found.groups()
    try:
        number = int(port) if port else _PORTS.get(scheme or "", _LEAF_PORT)
        with socket.create_connection((host.strip("[]"), number), _ANSWER_S):
            return True
    except (OSError, OverflowError):
        return False


def measure(control: Path, clock: Clock) -> Before | None:
    """Return what is well now, measured for `PUBLISHING_S`; None: the daemon does not answer."""
    samples = []
    for wait_s in (0.0, PUBLISHING_S / 2, PUBLISHING_S / 2):
        clock.sleep(wait_s)
        sample = read_sample(control)
        if sample is None:
            return None
        samples.append(sample)
    first, middle, last = samples
    return Before(
        store=last.store_error is None,
        offline=last.offline,
        links={name: address for name, (address, state, _) in last.links.items() if state == "up"},
        last_seqs=last.last_seqs,
        clients=bool(last.clients),
        publishing=_arrived(first, middle) and _arrived(middle, last),
    )


class Comparison:
    """Compares what it sees of the daemon with what was well before."""

    def __init__(self, before: Before, reachable: Callable[[str], bool] = is_reachable) -> None:
        self._before, self._reachable = before, reachable
        #: all streams were seen with every message since this upgrade's start
        self._has_all_streams = False
        self._starts = 0
        self._last: Sample | None = None
        self._arrival_s: float | None = None

    def compare(self, sample: Sample | None, now_s: float) -> Verdict:
        """Take what was seen at `now_s` into account; return what is worse."""
        verdict = Verdict()
        if sample is None:
            verdict.worse.append("the daemon does not answer")
            return verdict
        self._note(sample, now_s)
        if self._starts > _STARTS_MAX:
            verdict.worse.append(f"the daemon has started {self._starts} times")
        self._compare_store(sample, verdict)
        self._compare_links(sample, verdict)
        if self._before.clients and sample.clients == 0:
            verdict.worse.append("no client is connected")
        assert self._arrival_s is not None
        if self._before.publishing and now_s - self._arrival_s > PUBLISHING_S:
            verdict.worse.append("no message arrives from clients")
        return verdict

    def _note(self, sample: Sample, now_s: float) -> None:
        last, self._last = self._last, sample
        if last is None or sample.uptime_s < last.uptime_s:
            self._starts += 1
        if self._arrival_s is None or last is None or _arrived(last, sample):
            self._arrival_s = now_s

    def _compare_store(self, sample: Sample, verdict: Verdict) -> None:
        if self._before.store and sample.store_error is not None:
            verdict.worse.append(f"the store: {sample.store_error or 'JetStream does not run'}")
        verdict.worse += [
            f"the stream {each} is offline" for each in sample.offline if each not in self._before.offline
        ]
        if self._has_all_streams or sample.store_error is not None:
            return
        lacking = [name for name, last in self._before.last_seqs.items() if sample.last_seqs.get(name, -1) < last]
        verdict.worse += [f"the stream {name} does not have all that it had" for name in lacking]
        # Later on, a stream may be deleted by whoever uses it.
        self._has_all_streams = not lacking

    def _compare_links(self, sample: Sample, verdict: Verdict) -> None:
        for name, address in self._before.links.items():
            _, state, is_meant = sample.links.get(name, (address, "gone", False))
            if state == "up" or is_meant:
                continue
            if self._reachable(address):
                verdict.worse.append(f"the link {name} is {state}, and its address can be reached")
            else:
                verdict.unknown.append(f"the link {name} is {state}, and its address cannot be reached from here")


class SystemClock:
    """The machine's clock."""

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def _arrived(earlier: Sample, later: Sample) -> bool:
    """Return whether clients' messages arrived between two samples."""
    return any(later.last_seqs.get(name, 0) > earlier.last_seqs.get(name, 0) for name in later.published)


def _get(control: Path, path: str) -> dict[str, Any] | None:
    """Return a page of the control socket; None: there is none. Raises OSError, HTTPException, ValueError."""
    connection = http.client.HTTPConnection("localhost", timeout=_ANSWER_S)
    try:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(_ANSWER_S)
        connection.sock.connect(str(control))
        connection.request("GET", path, headers={"Connection": "close"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            return None
        page = json.loads(text)
        return page if isinstance(page, dict) else None
    finally:
        connection.close()


def _sample(status: Mapping[str, Any] | None, varz: Mapping[str, Any] | None) -> Sample:
    """Read the pages. A base path of the monitoring hides `/varz`: then nobody knows the clients. Raises KeyError and so on."""
    if status is None:
        raise ValueError("there is no status")
    store = status.get("store")
    copies = {(each["account"], each["stream"]) for each in status["copies"]}
    in_files = {
        (each["account"], each["name"]): each["last_seq"] for each in status["streams"] if each["storage"] == "file"
    }
    links = {
        f"{each['name']} of {each['account']}": (
            each.get("url") or each["name"],
            each["state"],
            bool(each.get("waiting")) or each["state"] == "disabled",
        )
        for each in status["links"]
        if each["role"] != "hub"
    }
    return Sample(
        uptime_s=float(status["uptime_s"]),
        store_error="" if store is None else store.get("error"),
        offline=[] if store is None else list(store.get("offline", [])),
        links=links,
        last_seqs={f"{account} > {name}": int(seq) for (account, name), seq in in_files.items()},
        published=[f"{account} > {name}" for account, name in in_files if (account, name) not in copies],
        clients=None if varz is None else int(varz["connections"]),
    )
