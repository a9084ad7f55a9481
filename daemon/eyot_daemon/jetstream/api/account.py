"""The API of an account: `$JS.API.INFO`, its purge, and the endpoints of clusters, which one server refuses.

`$JS.API.ACCOUNT.PURGE.<account>` in the system account deletes all streams of one account (`nats server account purge`).
"""

import logging
from typing import TYPE_CHECKING

from eyot_daemon.config.accounts import AccountJetStreamOptions
from eyot_daemon.jetstream.api_request import ApiRequest, Endpoint
from eyot_daemon.jetstream.stream.stream import after_all_commits
from eyot_daemon.router.account import Account
from eyot_daemon.router.subscription import CallbackDest, Kind, Origin, Subscription
from eyot_daemon.version import API_LEVEL
from eyot_store.errors import StoreError
from eyot_wire.jetstream.error_codes import JSClusterRequiredErr, JSStreamDeleteErrF, JSStreamGeneralErrorF
from eyot_wire.jetstream.errors import ApiError, fail
from eyot_wire.jetstream.model import AccountInfo, AccountLimits, AccountTier, ApiStats, ErrorPart, encode_response
from eyot_wire.jetstream.struct import JsStruct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eyot_daemon.jetstream.account import JetStreamAccount
    from eyot_daemon.jetstream.stream.stream import Stream
    from eyot_store.store import Store

#: The tier of all that one server has.
OUR_TIER = "R1"
#: What stands in the place of the limits where there are tiers.
_IN_TIERS = AccountLimits(
    max_memory=0,
    max_storage=0,
    max_streams=0,
    max_consumers=0,
    max_ack_pending=0,
    memory_max_stream_bytes=0,
    storage_max_stream_bytes=0,
)


def account_info(jsa: "JetStreamAccount") -> AccountInfo:
    """Usage and limits; in an account with tiers, the limits are the tier's."""
    limits = jsa.limits or AccountJetStreamOptions()
    usage = {
        "memory": jsa.used("memory"),
        "storage": jsa.used("file"),
        "reserved_memory": jsa.reserved("memory"),
        "reserved_storage": jsa.reserved("file"),
        "streams": len(jsa.streams),
        "consumers": sum(
            1 for s in jsa.streams.values() for consumer in s.consumers.values() if not consumer.config.direct
        ),
    }
    tiers = {
        name: AccountTier(**usage, limits=_shown(tier)) if name == OUR_TIER else AccountTier(limits=_shown(tier))
        for name, tier in limits.tiers
    }
    return AccountInfo(
        **usage,
        limits=_IN_TIERS if tiers else _shown(limits),
        domain=jsa.domain,
        # A request counts once it is answered; messages that were read do not count at all.
        api=ApiStats(level=API_LEVEL, total=jsa.api_total, errors=jsa.api_errors),
        tiers=tiers,
    )


def _shown(limits: AccountJetStreamOptions) -> AccountLimits:
    return AccountLimits(
        max_memory=limits.memory_max,
        max_storage=limits.file_max,
        max_streams=limits.streams_max,
        max_consumers=limits.consumers_max,
        max_ack_pending=limits.ack_pending_max,
        memory_max_stream_bytes=limits.memory_stream_bytes_max,
        storage_max_stream_bytes=limits.file_stream_bytes_max,
        max_bytes_required=limits.max_bytes_required,
    )


def _info(request: ApiRequest) -> None:
    after_all_commits(request.jsa.streams.values(), lambda: request.respond(account_info(request.jsa)))


def _cluster_only(request: ApiRequest) -> None:
    raise fail(JSClusterRequiredErr)


ENDPOINTS = (
    Endpoint("INFO", "account_info_response", _info, extra=0),
    Endpoint("STREAM.LEADER.STEPDOWN", "stream_leader_stepdown_response", _cluster_only, body_first=True),
    Endpoint("CONSUMER.LEADER.STEPDOWN", "consumer_leader_stepdown_response", _cluster_only, extra=2, body_first=True),
    Endpoint("STREAM.PEER.REMOVE", "stream_remove_peer_response", _cluster_only, body_first=True),
)

log = logging.getLogger("eyot.jetstream")

PURGE_SUBJECT = b"$JS.API.ACCOUNT.PURGE.*"
_PURGE_KIND = "account_purge_response"


class InitiatedPart(JsStruct, kw_only=True):
    initiated: bool = False


class AccountPurge:
    """Answers in the system account, once every stream is removed from the disk."""

    def __init__(
        self,
        accounts: "Mapping[str, JetStreamAccount]",
        store: "Store",
        unrestored: list[tuple[str, str, str]],
        system: Account,
    ) -> None:
        """`unrestored`: streams on disk that were not brought back, as (account, stream, why)."""
        self.accounts = accounts
        self.store = store
        self.unrestored = unrestored
        self._system = system
        system.subscribe(PURGE_SUBJECT, CallbackDest(self._asked, Kind.JETSTREAM, "account purge"))

    def _asked(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> None:
        name = subject.rpartition(b".")[2].decode("utf-8", "replace")
        if "/" in name or "\\" in name:
            refusal = fail(JSStreamGeneralErrorF, err="account name can not contain path separators")
            self.answer(reply, refusal.api_error)
            return
        _Purge(self, name, reply).run()

    def answer(self, reply: bytes, error: ApiError | None) -> None:
        part = InitiatedPart(initiated=True) if error is None else ErrorPart(error=error)
        if reply:
            self._system.publish(reply, payload=encode_response(_PURGE_KIND, part))


class _Purge:
    """One request, with the number of pending deletions."""

    def __init__(self, service: AccountPurge, name: str, reply: bytes) -> None:
        self._service = service
        self._name = name
        self._reply = reply
        self._left = 1  # this one itself, until all deletions are under way
        self._error: ApiError | None = None

    def run(self) -> None:
        jsa = self._service.accounts.get(self._name)
        streams = [] if jsa is None else list(jsa.streams.values())
        log.info(
            "Purge request for account %s (streams: %d, hasAccount: %s)",
            self._name,
            len(streams),
            "false" if jsa is None else "true",
        )
        if jsa is not None:
            jsa.stop_transfers()
            for stream in streams:
                self._left += 1
                jsa.delete_stream(stream, self._deleted)
        self._forget_unused()
        self._settled(None)

    def _forget_unused(self) -> None:
        """Remove the account's stored streams when JetStream is not enabled for it."""
        store = self._service.store
        live = {} if (jsa := self._service.accounts.get(self._name)) is None else jsa.streams
        for stream_log in store.streams():
            if stream_log.account == self._name and stream_log.name not in live and self._unused(stream_log.name):
                self._left += 1
                txn = store.begin()
                stream_log.delete(txn)
                store.submit(txn, self._settled)
        unrestored = self._service.unrestored
        unrestored[:] = [one for one in unrestored if one[0] != self._name]

    def _unused(self, stream: str) -> bool:
        return any(one[:2] == (self._name, stream) for one in self._service.unrestored)

    def _deleted(self, stream: "Stream", failure: StoreError | None) -> None:
        self._settled(failure)

    def _settled(self, failure: StoreError | None) -> None:
        if failure is not None and self._error is None:
            self._error = fail(JSStreamDeleteErrF, err=failure.message).api_error
        self._left -= 1
        if not self._left:
            self._service.answer(self._reply, self._error)
