"""Advisories about backups and restores (ADR-3)."""

from typing import TYPE_CHECKING

from eyot_daemon.jetstream.advisories import PREFIX, Advisory, AuditClient, publish, wanted
from eyot_daemon.router.subscription import IMPORTED, Origin
from eyot_wire.jetstream.model import StreamState, ns_to_rfc3339
from eyot_wire.jetstream.struct import always

if TYPE_CHECKING:
    from eyot_daemon.jetstream.account import JetStreamAccount
    from eyot_daemon.router.account import Account


class SnapshotCreate(Advisory, kw_only=True):
    stream: str = always("")
    state: StreamState
    client: AuditClient
    domain: str = ""


class SnapshotComplete(Advisory, kw_only=True):
    stream: str = always("")
    start: str = always("")
    end: str = always("")
    error: str = ""
    client: AuditClient
    domain: str = ""


class RestoreCreate(Advisory, kw_only=True):
    stream: str = always("")
    client: AuditClient
    domain: str = ""


class RestoreComplete(Advisory, kw_only=True):
    stream: str = always("")
    start: str = always("")
    end: str = always("")
    bytes: int = always(0)
    client: AuditClient
    domain: str = ""


class ArchiveAdvisories:
    """The advisories of one backup or restore; `origin` started it, None: the server itself."""

    def __init__(self, jsa: "JetStreamAccount", stream: str, origin: Origin | None) -> None:
        self._account: Account = jsa.account
        self._stream = stream
        self._domain = jsa.domain
        kind = "" if origin is None or origin is IMPORTED else origin.kind.name.title()
        self._client = AuditClient(acc=jsa.account.name, kind=kind)
        self._start = self._now()

    def snapshot_created(self, state: StreamState) -> None:
        event = SnapshotCreate(stream=self._stream, state=state, client=self._client, domain=self._domain)
        self._publish("SNAPSHOT_CREATE", event, "snapshot_create")

    def snapshot_complete(self, error: str) -> None:
        event = SnapshotComplete(
            stream=self._stream,
            start=self._start,
            end=self._now(),
            error=error,
            client=self._client,
            domain=self._domain,
        )
        self._publish("SNAPSHOT_COMPLETE", event, "snapshot_complete")

    def restore_created(self) -> None:
        event = RestoreCreate(stream=self._stream, client=self._client, domain=self._domain)
        self._publish("RESTORE_CREATE", event, "restore_create")

    def restore_complete(self, received: int) -> None:
        """`received`: bytes of chunks."""
        event = RestoreComplete(
            stream=self._stream,
            start=self._start,
            end=self._now(),
            bytes=received,
            client=self._client,
            domain=self._domain,
        )
        self._publish("RESTORE_COMPLETE", event, "restore_complete")

    def _now(self) -> str:
        return ns_to_rfc3339(self._account.broker.clock.now_ns())

    def _publish(self, word: str, event: Advisory, kind: str) -> None:
        subject = f"{PREFIX}.STREAM.{word}.{self._stream}".encode()
        if wanted(self._account, subject):
            publish(self._account, subject, event, kind)
