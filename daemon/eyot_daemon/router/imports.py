"""Imports of streams and services across accounts.

*Stream import.* A subscription in the importing account that overlaps an imported stream gets a shadow subscription in
the exporting account: same destination, the exporter's subject, and a `translate` function to the importer's subject.
The router passes shadow matches to the destination under the original subscription.

*Service import.* The importing account has a subscription of kind ACCOUNT on the local subject. A request to it is
published in the exporting account, with a reply subject `_R_.<account id>.<request id>` that leads back:
`ServiceReplies` (`service_replies.py`) of the exporting account remembers the requester. A single reply ends that
(response type singleton), an empty one (chunked), or the threshold without any. `$JS.ACK.` replies travel unchanged: a
client that received a message through an import acknowledges through an import, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from eyot_daemon.config.accounts import ExportOptions, ImportOptions, LatencyOptions
from eyot_daemon.config.import_templates import back_template, numbered, pattern_of, stream_template
from eyot_daemon.router import service_latency
from eyot_daemon.router.account import Account
from eyot_daemon.router.known_client import KnownClient
from eyot_daemon.router.providers import Json
from eyot_daemon.router.service_latency import SampledRequest
from eyot_daemon.router.service_replies import service_replies
from eyot_daemon.router.subscription import IMPORTED, Kind, Origin, Subscription
from eyot_wire.go.time import ns_to_rfc3339
from eyot_wire.headers import get as get_field
from eyot_wire.headers import set_field
from eyot_wire.jetstream.ack import FAST_BATCH_END
from eyot_wire.mapping import DROPPED
from eyot_wire.subject import STAR, is_subset, matches, overlaps
from eyot_wire.transform import Transform
from eyot_wire.untrusted import decode_json

log = logging.getLogger("eyot.account")

REQUEST_INFO = b"Nats-Request-Info"
_JS_ACK = b"$JS.ACK."
# -- streams -------------------------------------------------------------------------------------------------------


class StreamImport:
    """One imported stream: the local subject for `subject` in the exporting account."""

    def __init__(self, exporter: Account, subject: bytes, template: bytes, *, allow_trace: bool = False) -> None:
        self.exporter = exporter
        self.subject = subject
        self.allow_trace = allow_trace
        self.transform = Transform(subject, template)
        self.local = pattern_of(template)
        self._back: Transform | None = None
        if STAR in subject.split(b".") or template != subject:
            self._back = self.transform.reversed()

    def shadow(self, sub: Subscription) -> Subscription | None:
        """Return the shadow of a local subscription, not yet attached; None if it does not concern this import."""
        if not overlaps(sub.subject, self.local):
            return None
        wanted = self.subject
        check: bytes | None = None
        if is_subset(sub.subject, self.local):
            narrowed = sub.subject if self._back is None else self._back.apply_pattern(sub.subject)
            wanted = narrowed or self.subject
        elif not is_subset(self.local, sub.subject):
            check = sub.subject  # they overlap: every message must be checked
        shadow = Subscription(self.exporter, wanted, sub.dest, sub.queue, sub.sid, sub.weight)
        shadow.parent = sub
        shadow.slow = True

        def translate(subject: bytes) -> bytes | None:
            local = self.transform.apply(subject)
            if local is None or (check is not None and not matches(check, local)):
                return None
            return local

        shadow.translate = translate
        return shadow


class StreamImports:
    """The stream imports of one account: the account's `ImportHook`."""

    def __init__(self) -> None:
        self.imports: list[StreamImport] = []

    def add(self, imported: StreamImport) -> None:
        self.imports.append(imported)

    def shadow(self, sub: Subscription) -> tuple[Subscription, ...]:
        shadows = (imported.shadow(sub) for imported in self.imports)
        return tuple(shadow for shadow in shadows if shadow is not None)

    def traces(self, exporter: Account, subject: bytes, local: bytes) -> bool:
        """Return whether the exporter's publishers may trace what happens here to `subject`, which is `local` here."""
        return any(
            one.allow_trace
            for one in self.imports
            if one.exporter is exporter and matches(one.subject, subject) and one.transform.apply(subject) == local
        )


# -- services ------------------------------------------------------------------------------------------------------


class RequestInfo(msgspec.Struct, omit_defaults=True):
    """The header `Nats-Request-Info`, which identifies the requester. `rtt` in nanoseconds; `svc`: the last account on the way.

    The account and the round trip are always present, `reply` only where it describes a message of a fast batch, other fields
    only where the import has `share`.
    """

    start: str = ""
    host: str = ""
    id: int = 0
    acc: str = ""
    svc: str = ""
    user: str = ""
    name: str = ""
    lang: str = ""
    ver: str = ""
    rtt: int = 0
    server: str = ""
    jwt: str = ""
    issuer_key: str = ""
    name_tag: str = ""
    tags: list[str] = []
    kind: str = ""
    client_type: str = ""
    reply: str = ""


class ServiceImport:
    """One imported service: a destination of kind ACCOUNT in the importing account."""

    kind = Kind.ACCOUNT

    def __init__(
        self,
        importer: Account,
        exporter: Account,
        local: bytes,
        template: bytes,
        export: ExportOptions | None,
        *,
        share: bool = False,
    ) -> None:
        self.importer = importer
        self.exporter = exporter
        self.transform = Transform(local, template)
        self.share = share
        self.response_type = export.response_type if export is not None else "singleton"
        self.threshold_s = export.response_threshold_s if export is not None else 120.0
        self.latency = None if export is None else export.latency
        self.allow_trace = export is not None and export.allow_trace
        service_replies(exporter)
        sub = Subscription(importer, local, self)
        sub.rewrite = self._requested
        importer.attach(sub)
        self.sub = sub

    def __repr__(self) -> str:
        return f"<service import {self.sub.subject!r} of {self.importer.name} from {self.exporter.name}>"

    def _requested(
        self,
        sub: Subscription,
        subject: bytes,
        shown: bytes,
        reply: bytes,
        header: bytes,
        payload: bytes,
        origin: Origin | None,
    ) -> bool:
        target = self.target(subject)
        if not target:
            return False
        return self.request(target, reply, header, payload, origin, self.exporter.publish_imported)

    def target(self, subject: bytes) -> bytes:
        """Return where a request leads in the exporting account, its mappings applied; b"": nowhere."""
        target = self.transform.apply(subject)
        if target is None:
            return b""
        mapped = self.exporter.mappings.apply(target)
        return b"" if mapped == DROPPED else mapped or target

    def request(
        self,
        target: bytes,
        reply: bytes,
        header: bytes,
        payload: bytes,
        origin: Origin | None,
        publish: Callable[[bytes, bytes, bytes, bytes], int],
    ) -> bool:
        """Send a request into the exporting account with `publish` (subject, reply, header, payload), which returns the receivers."""
        exporter = self.exporter
        back, asked = b"", reply
        if reply and not reply.startswith(_JS_ACK):
            back = reply = service_replies(exporter).expect(self.importer, reply, self.response_type, self.threshold_s)
        measured = None if self.latency is None else self._measured(self.latency, header, origin)
        if measured is not None:
            if back:
                service_replies(exporter).measure(back, measured)
            else:
                measured.ended(service_latency.BAD_REQUEST)
                measured = None
        info = self._request_info(header, asked, origin)
        if info is not None:
            header = set_field(header, REQUEST_INFO, msgspec.json.encode(info))
        delivered = publish(target, reply, header, payload)
        if not delivered and back:
            service_replies(exporter).forget(back)
            if measured is not None:
                measured.ended(service_latency.UNAVAILABLE)
        return delivered > 0

    def _measured(self, latency: LatencyOptions, header: bytes, origin: Origin | None) -> SampledRequest | None:
        fields = service_latency.sampled(latency, header, self.importer.broker.random)
        if fields is None:
            return None
        described = self._passed_description(header) if origin is IMPORTED else None
        return SampledRequest(
            self.exporter, self.importer, latency, origin, fields, share=self.share, described=described
        )

    def _passed_description(self, header: bytes) -> Json | None:
        """Describe the requester of a request that came through another import: what the imports before this one share."""
        info = self._passed_on(header)
        if info is None:
            return None
        told: Json = msgspec.to_builtins(info)
        told.pop("svc", None)
        if self.share:
            return told | {"server": self.importer.broker.server_name}
        return {name: told[name] for name in ("acc", "rtt") if name in told}

    def _request_info(self, header: bytes, reply: bytes, origin: Origin | None) -> RequestInfo | None:
        """Return the requester's info. A request from another import already has one.

        Info that a client claims itself, or that a consumer delivers, is ignored.
        """
        if origin is IMPORTED:
            return self._passed_on(header)
        info = RequestInfo(acc=self.importer.name)
        if reply.endswith(FAST_BATCH_END):
            info.reply = reply.decode("utf-8", "replace")
        if self.share:
            info.server = self.importer.broker.server_name
        if isinstance(origin, KnownClient):
            info.rtt = int(origin.rtt_s * 1e9)
            if self.share:
                info.start = ns_to_rfc3339(origin.started_ns)
                info.host, info.id = origin.peer.host, origin.cid
                info.user, info.name, info.lang, info.ver = origin.user, origin.name, origin.lang, origin.version
                info.kind, info.client_type = "Client", origin.peer.client_type
                for name, value in origin.token_members().items():
                    setattr(info, name, value)
        return info

    def _passed_on(self, header: bytes) -> RequestInfo | None:
        said = get_field(header, REQUEST_INFO)
        if not said:
            return None
        try:
            info = decode_json(said, RequestInfo)
        except msgspec.DecodeError:
            return None
        info.svc = self.importer.name
        return info

    def deliver(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> bool:
        return self._requested(sub, subject, subject, reply, header, payload, origin)

    def flush(self) -> None:
        """Nothing is buffered here."""


# -- from the configuration ----------------------------------------------------------------------------------------


def add_import(
    importer: Account, exporter: Account, imported: ImportOptions, exports: tuple[ExportOptions, ...]
) -> None:
    """Join one configured import (already checked: authorized, no cycle)."""
    if imported.kind == "stream":
        template = stream_template(imported)
        hook = importer.stream_imports
        if hook is None:
            hook = importer.stream_imports = StreamImports()
        assert isinstance(hook, StreamImports)
        stream = StreamImport(exporter, imported.subject, numbered(template), allow_trace=imported.allow_trace)
        hook.add(stream)
        for sub in tuple(importer.subscriptions()):
            shadow = stream.shadow(sub) if sub.parent is None and sub.rewrite is None else None
            if shadow is not None:
                sub.shadows += (shadow,)
                exporter.attach(shadow)
        return
    local = imported.to or imported.subject
    services = [one for one in exports if one.kind == "service" and is_subset(imported.subject, one.subject)]
    # The very same subject comes before one that covers it.
    export = min(services, key=lambda one: one.subject != imported.subject, default=None)
    ServiceImport(
        importer, exporter, pattern_of(local), back_template(imported.subject, local), export, share=imported.share
    )


def remove_imports(account: Account) -> None:
    """Undo every `add_import` of an account, for a reload. Pending replies still arrive."""
    account.stream_imports = None
    for sub in tuple(account.subscriptions()):
        if isinstance(sub.dest, ServiceImport):
            account.unsubscribe(sub)
        elif sub.shadows:
            for shadow in sub.shadows:
                shadow.account.unsubscribe(shadow)
            sub.shadows = ()
