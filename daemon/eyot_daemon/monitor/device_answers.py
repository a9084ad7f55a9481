"""The device's own reports, on request over NATS (`eyot --device`; `eyot { device { } }`).

A report costs some milliseconds on a large device: requests within `KEPT_S` get the same one. A support bundle costs more, and
who asks for it needs all of its parts: it is kept for `BUNDLE_KEPT_S`, one at a time.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Struct

from eyot_daemon.client.clients import Clients
from eyot_daemon.config.jetstream import EyotDeviceOptions
from eyot_daemon.config.options import Options
from eyot_daemon.monitor import server as monitor_server
from eyot_daemon.monitor.connz import BadQuery, ConnzQuery, connz
from eyot_daemon.monitor.page.support_bundle import SupportBundle
from eyot_daemon.monitor.server import CpuMeter, status_report, sync_report
from eyot_daemon.process.service import ReloadSteps, Runtime
from eyot_daemon.router.providers import HealthzQuery, Unhealthy
from eyot_daemon.router.subscription import CallbackDest, Kind, Origin, Subscription
from eyot_daemon.turn.slices import at_once
from eyot_daemon.turn.timers import TimerHandle
from eyot_wire.device_requests import (
    BUNDLE_NAME,
    CONNECT,
    DIGEST,
    PART,
    PARTS_MAX,
    REFUSED,
    SUPPORT_BUNDLE,
    TOP,
    TOP_CONNECTIONS_MAX,
    ConnectAnswer,
    ConnectRequest,
    PartRequest,
    TopRequest,
    digest_of,
    header_block,
    parts_of,
    pieces_of,
    subject_of,
)
from eyot_wire.quoting import printable

log = logging.getLogger("eyot")

#: How long a report is given again, seconds.
KEPT_S: Final = 0.25
#: How long a support bundle is kept after a request for it, seconds; no other one is made meanwhile.
BUNDLE_KEPT_S: Final = 60.0
#: Bytes of a request at most.
REQUEST_BYTES_MAX: Final = 1024
_SPOKE: Final = "spoke"
_NO_REQUESTS: Final[Counter[str]] = Counter()


class _Bundle(Struct, frozen=True):
    """A support bundle that is kept for who asks for its parts."""

    name: str
    digest: str
    parts: list[tuple[int, int, bytes]]


class DeviceAnswers:
    """Answers while it is configured. `bundle` makes support bundles; `reconnect` is that of the leaf links."""

    name = "device answers"

    def __init__(self, clients: Clients, bundle: SupportBundle, reconnect: Callable[[str], str]) -> None:
        self._clients = clients
        self._bundles = bundle
        self._reconnect = reconnect
        self._options: EyotDeviceOptions | None = None
        self._subscriptions: list[Subscription] = []
        #: by report: when it was made (monotonic seconds), for which request, and its JSON
        self._made: dict[str, tuple[float, bytes, bytes]] = {}
        self._cpu = CpuMeter()
        self._bundle: _Bundle | None = None
        self._forgets: TimerHandle | None = None

    def configure(self, options: Options) -> EyotDeviceOptions | None:
        """Return the options with the device's name."""
        device = options.eyot.device
        if device is None or device.name:
            return device
        return msgspec.structs.replace(device, name=options.server_name)

    def start(self, prepared: EyotDeviceOptions | None, runtime: Runtime) -> None:
        runtime.when_open(lambda: self._begin(prepared))

    def reload(self, prepared: EyotDeviceOptions | None, steps: ReloadSteps) -> None:
        """Answer as the changed configuration says."""
        if prepared != self._options:
            steps.last(lambda: self._begin(prepared))

    def accounts_changed(self) -> None:
        """Answer in the account that is there now: tokens may have removed it, and made it again."""
        if self._options is not None:
            account = self._clients.broker.accounts.get(self._options.account)
            if any(sub.account is not account for sub in self._subscriptions) or (account and not self._subscriptions):
                self._begin(self._options)

    def health(self, query: HealthzQuery) -> Unhealthy | None:
        return None

    def stop(self) -> None:
        """Answer no more."""
        for sub in self._subscriptions:
            if sub.active:
                sub.account.unsubscribe(sub)
        self._subscriptions = []
        self._made.clear()
        self._forget_bundle()

    def _begin(self, options: EyotDeviceOptions | None) -> None:
        self.stop()
        self._options = options
        if options is None:
            return
        account = self._clients.broker.accounts.get(options.account)
        if account is None:
            log.warning("The device does not answer: there is no account %s", options.account)
            return
        for report in options.answers:
            subject = subject_of(options.name, report).encode()
            self._subscriptions.append(account.subscribe(subject, CallbackDest(self._answer, Kind.SYSTEM, "device")))

    def _answer(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> None:
        if not reply:
            return
        try:
            parts = self._parts(subject.rpartition(b".")[2].decode(), payload)
        except (msgspec.DecodeError, UnicodeDecodeError, BadQuery, ValueError) as error:
            log.debug("A request for a report of this device cannot be read: %s", error)
            parts = [(header_block({REFUSED: "the request cannot be read", PART: "1/1"}), b"")]
        for part, piece in parts:
            sub.account.publish(reply, header=part, payload=piece)

    def _parts(self, report: str, payload: bytes) -> list[tuple[bytes, bytes]]:
        """Return header block and payload of each message of the answer. Raises ValueError, DecodeError, BadQuery."""
        if len(payload) > REQUEST_BYTES_MAX:
            raise ValueError(f"a request of {len(payload)} bytes")
        if report == SUPPORT_BUNDLE:
            return [self._bundle_part(msgspec.json.decode(payload or b"{}", type=PartRequest))]
        if report == CONNECT:
            return parts_of(
                msgspec.json.encode(self._connect(msgspec.json.decode(payload or b"{}", type=ConnectRequest)))
            )
        return parts_of(self._report(report, payload))

    # -- links -----------------------------------------------------------------------------------------------------

    def _connect(self, asked: ConnectRequest) -> ConnectAnswer:
        """Dial a link that is down, or all of them. The link that is up carries the request, and stays."""
        links = [link for link in self._clients.broker.providers.links() if link.role == _SPOKE]
        named = [link for link in links if asked.link in ("", link.name)]
        if not named:
            return ConnectAnswer(error="there is no remote of this name" if asked.link else "no remotes are configured")
        down = [link.name for link in named if link.state != "up"]
        if not down:
            return ConnectAnswer(error="the link is up" if asked.link else "all links are up")
        problems = {name: self._reconnect(name) for name in dict.fromkeys(down)}
        dialled = [name for name, problem in problems.items() if not problem]
        log.info("Asked over NATS to connect %s", ", ".join(map(printable, down)))
        return ConnectAnswer(links=dialled, error="" if dialled else "; ".join(problems.values()))

    # -- reports ---------------------------------------------------------------------------------------------------

    def _report(self, name: str, payload: bytes) -> bytes:
        """Return a report's JSON."""
        now = self._clients.broker.clock.monotonic()
        made_at, request, body = self._made.get(name, (-KEPT_S, b"", b""))
        if now - made_at >= KEPT_S or request != payload or not body:
            body = msgspec.json.encode(self._page(name)(payload))
            self._made[name] = now, payload, body
        return body

    def _page(self, name: str) -> Callable[[bytes], object]:
        if name == TOP:
            return lambda payload: self._top(msgspec.json.decode(payload or b"{}", type=TopRequest))
        page = {"status": status_report, "sync": sync_report}[name]
        return lambda payload: page(self._clients)

    def _top(self, asked: TopRequest) -> dict[str, object]:
        """Return `/varz` and `/connz`, as `eyot top` reads them."""
        query = ConnzQuery(
            sort=asked.sort,
            authenticated=True,
            subscriptions="1" if asked.subjects else "",
            limit=min(max(asked.limit, 1), TOP_CONNECTIONS_MAX),
        )
        pages: dict[str, object] = {"varz": monitor_server.varz(self._clients, self._cpu, _NO_REQUESTS)}
        return pages | {"connz": at_once(connz(self._clients, query))}

    # -- support bundles -------------------------------------------------------------------------------------------

    def _bundle_part(self, asked: PartRequest) -> tuple[bytes, bytes]:
        """Return the part that is asked for; the first of a new bundle if `of` is no longer kept."""
        if self._bundle is None:
            name, content = self._bundles.make()
            self._bundle = _Bundle(name, digest_of(content), pieces_of(content))
        kept = self._bundle
        if len(kept.parts) > PARTS_MAX:
            self._forget_bundle()
            return header_block({REFUSED: "the support bundle is too large: fetch it on the device", PART: "1/1"}), b""
        self._keep_bundle()
        at = asked.part if asked.of == kept.name and 1 <= asked.part <= len(kept.parts) else 1
        number, count, piece = kept.parts[at - 1]
        return header_block({PART: f"{number}/{count}", BUNDLE_NAME: kept.name, DIGEST: kept.digest}), piece

    def _keep_bundle(self) -> None:
        if self._forgets is not None:
            self._forgets.cancel()
        self._forgets = self._clients.broker.timers.call_later(BUNDLE_KEPT_S, self._forget_bundle)

    def _forget_bundle(self) -> None:
        if self._forgets is not None:
            self._forgets.cancel()
        self._bundle = self._forgets = None
