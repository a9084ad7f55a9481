"""`$JS.API.INFO`, and the endpoints of clusters, which one server refuses."""

from typing import TYPE_CHECKING

from eyot_daemon.config.accounts import AccountJetStreamOptions
from eyot_daemon.jetstream.api_request import ApiRequest, Endpoint
from eyot_daemon.jetstream.stream.stream import after_all_commits
from eyot_daemon.version import API_LEVEL
from eyot_wire.jetstream.error_codes import JSClusterRequiredErr
from eyot_wire.jetstream.errors import fail
from eyot_wire.jetstream.model import AccountInfo, AccountLimits, AccountTier, ApiStats

if TYPE_CHECKING:
    from eyot_daemon.jetstream.account import JetStreamAccount

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
