"""`$JS.API.INFO`, and the endpoints of clusters, which one server refuses."""

from eyot_daemon.jetstream.api_request import ApiRequest, Endpoint
from eyot_daemon.jetstream.stream.stream import after_all_commits
from eyot_wire.jetstream.error_codes import JSClusterRequiredErr
from eyot_wire.jetstream.errors import fail


def _info(request: ApiRequest) -> None:
    after_all_commits(request.jsa.streams.values(), lambda: request.respond(request.jsa.info()))


def _cluster_only(request: ApiRequest) -> None:
    raise fail(JSClusterRequiredErr)


ENDPOINTS = (
    Endpoint("INFO", "account_info_response", _info, extra=0),
    Endpoint("STREAM.LEADER.STEPDOWN", "stream_leader_stepdown_response", _cluster_only, body_first=True),
    Endpoint("CONSUMER.LEADER.STEPDOWN", "consumer_leader_stepdown_response", _cluster_only, extra=2, body_first=True),
    Endpoint("STREAM.PEER.REMOVE", "stream_remove_peer_response", _cluster_only, body_first=True),
)
