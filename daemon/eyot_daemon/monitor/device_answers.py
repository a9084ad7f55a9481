"""The device's own reports, on request over NATS (`eyot --device`; `eyot { device { } }`).

A report costs some milliseconds on a large device: requests within `KEPT_S` get the same one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from eyot_daemon.client.clients import Clients
from eyot_daemon.config.jetstream import EyotDeviceOptions
from eyot_daemon.config.options import Options
from eyot_daemon.monitor.server import status_report, sync_report
from eyot_daemon.process.service import ReloadSteps, Runtime
from eyot_daemon.router.providers import HealthzQuery, Unhealthy
from eyot_daemon.router.subscription import CallbackDest, Kind, Origin, Subscription
from eyot_wire.device_requests import parts_of, subject_of

log = logging.getLogger("eyot")

#: How long a report is given again, seconds.
KEPT_S = 0.25
_REPORTS: dict[str, Callable[[Clients], object]] = {"status": status_report, "sync": sync_report}


class DeviceAnswers:
    """Answers while it is configured."""

    name = "device answers"

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._options: EyotDeviceOptions | None = None
        self._subscriptions: list[Subscription] = []
        #: by report: when it was made (monotonic seconds), and its JSON
        self._made: dict[str, tuple[float, bytes]] = {}

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

    def health(self, query: HealthzQuery) -> Unhealthy | None:
        return None

    def stop(self) -> None:
        """Answer no more."""
        for sub in self._subscriptions:
            if sub.active:
                sub.account.unsubscribe(sub)
        self._subscriptions = []

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
        for part, piece in parts_of(self._report(subject.rpartition(b".")[2].decode())):
            sub.account.publish(reply, header=part, payload=piece)

    def _report(self, name: str) -> bytes:
        now = self._clients.broker.clock.monotonic()
        made_at, body = self._made.get(name, (-KEPT_S, b""))
        if now - made_at >= KEPT_S or not body:
            body = msgspec.json.encode(_REPORTS[name](self._clients))
            self._made[name] = now, body
        return body
