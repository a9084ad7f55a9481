"""The soliciting end of a leaf link, as transcripts."""

from __future__ import annotations

import base64
import json

import pytest

from eyot_sync.leaf.events import (
    Closed,
    Established,
    InterestComplete,
    LeafCredentials,
    PeerError,
    PermissionsChanged,
    TlsRequired,
    UrlsDiscovered,
)
from eyot_sync.leaf.interest import LinkPeer
from eyot_sync.leaf.session import LeafSession
from eyot_sync.leaf.state import State
from eyot_wire.frames import LeafMsg, LsAdd, LsDel
from support.links.leaf_peers import established_leaf, first_info, second_info, soliciting


def sent_connect(session: LeafSession) -> dict[str, object]:
    data = session.data_to_send()
    assert data.startswith(b"CONNECT {")
    assert data.endswith(b"}\r\n")
    parsed: dict[str, object] = json.loads(data[8:])
    return parsed


def test_handshake_in_order() -> None:
    session = soliciting(credentials=LeafCredentials(user="acc", password="secret"))
    assert session.data_to_send() == b""
    assert session.receive(first_info(), 0.1) == [UrlsDiscovered(("10.0.0.1:7422",))]
    of_websocket = soliciting(websocket=True).receive(first_info(ws_connect_urls=["10.0.0.1:443"]), 0.1)
    assert of_websocket == [UrlsDiscovered(("10.0.0.1:443",))]
    connect = sent_connect(session)
    assert connect == {
        "version": "2.12.0",
        "server_id": "NLEAF",
        "name": "leaf-server",
        "cluster": "leaf-server",
        "domain": "leaf",
        "jetstream": True,
        "headers": True,
        "user": "acc",
        "pass": "secret",
        "compress_mode": "off",
        "remote_account": "ACC",
        "protocol": 3,
    }
    session.add_interest(b"foo")
    assert session.data_to_send() == b"", "interest waits for the second INFO"
    events = session.receive(second_info() + b"LS+ orders.*\r\nLS+ work grp 2\r\n", 0.2)
    assert events == [
        UrlsDiscovered(("10.0.0.1:7422",)),
        Established("NHUB", "hub-server", "2.9.10", "hub", "ACC", LinkPeer(is_upstream=True), jetstream=True),
        LsAdd(b"orders.*", b"", 0),
        LsAdd(b"work", b"grp", 2),
    ]
    assert session.data_to_send() == b"PING\r\nLS+ foo\r\n"
    assert session.receive(b"PONG\r\n", 0.25) == [InterestComplete()]
    assert session.rtt_s is not None
    assert abs(session.rtt_s - 0.05) < 1e-9
    assert session.receive(b"PING\r\nLMSG foo 2\r\nhi\r\nLS- work grp\r\n", 0.3) == [
        LeafMsg(b"foo", payload=b"hi"),
        LsDel(b"work", b"grp"),
    ]
    assert session.data_to_send() == b"PONG\r\n"


def test_hub_without_second_info_is_up_at_once() -> None:
    session = soliciting()
    events = session.receive(first_info(info_on_connect=False, leafnode_urls=[]), 0.1)
    assert [type(event) for event in events] == [Established]
    session.add_interest(b"foo")
    data = session.data_to_send()
    assert data.startswith(b"CONNECT ")
    assert data.endswith(b"LS+ foo\r\n")


def test_nonce_is_signed_for_nkey_and_jwt() -> None:
    seen: list[bytes] = []

    def sign(nonce: bytes) -> bytes:
        seen.append(nonce)
        return bytes(range(64))

    session = soliciting(credentials=LeafCredentials(jwt="eyJ0", nkey="UABC", sign=sign))
    session.receive(first_info(), 0.1)
    connect = sent_connect(session)
    assert seen == [b"fqqCuB8Cx4LW0qU"]
    assert connect["jwt"] == "eyJ0"
    assert connect["nkey"] == "UABC"
    signature = connect["sig"]
    assert isinstance(signature, str)
    assert "=" not in signature
    assert base64.urlsafe_b64decode(signature + "==") == bytes(range(64))


def test_lone_user_is_sent_as_token_too() -> None:
    session = soliciting(credentials=LeafCredentials(user="t0ken"))
    session.receive(first_info(), 0.1)
    connect = sent_connect(session)
    assert (connect["user"], connect["auth_token"]) == ("t0ken", "t0ken")
    assert "pass" not in connect


def test_secrets_stay_out_of_repr() -> None:
    credentials = LeafCredentials(user="u", password="hunter2", token="hunter3", jwt="hunter4")
    assert "hunter" not in repr(credentials)


def test_no_info_in_time() -> None:
    session = soliciting()
    assert session.next_deadline == 1.0
    assert session.tick(0.99) == []
    (closed,) = session.tick(1.0)
    assert closed == Closed("no INFO from the peer in time", None)
    assert session.receive(first_info(), 1.1) == []


def test_second_info_in_time() -> None:
    session = soliciting()
    session.receive(first_info(), 0.1)
    session.data_to_send()
    assert session.next_deadline == 2.1
    assert session.tick(2.1) == [Closed("Stale Leaf Node Connection - Closing", None)]
    assert session.data_to_send() == b"-ERR 'Stale Leaf Node Connection - Closing'\r\n"


def test_tls_before_connect() -> None:
    session = soliciting()
    events = session.receive(first_info(tls_required=True, leafnode_urls=[]), 0.1)
    assert events == [TlsRequired()]
    assert session.data_to_send() == b""
    assert session.tls_established(0.3) == []
    assert sent_connect(session)["name"] == "leaf-server"


def test_tls_done_before_info_is_not_asked_for_again() -> None:
    session = soliciting(tls_required=True, tls_done=True)
    session.receive(first_info(tls_required=True), 0.1)
    assert sent_connect(session)["name"] == "leaf-server"


def test_client_port_is_the_wrong_port() -> None:
    for info in (
        first_info(leafnode_urls=None, info_on_connect=None),
        first_info(client_id=0),
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"INFO {nonsense\r\n",
    ):
        session = soliciting()
        (closed,) = session.receive(info, 0.1)
        assert isinstance(closed, Closed)
        assert closed.reason.startswith("attempted to connect to wrong port")
        assert session.data_to_send() == b""


def test_hub_that_does_not_advertise_may_leave_the_list_out() -> None:
    session = soliciting()
    assert session.receive(first_info(leafnode_urls=None), 0.1) == []
    assert sent_connect(session)["name"] == "leaf-server"


def test_compression_is_refused() -> None:
    session = soliciting()
    session.receive(first_info(compression="s2_auto"), 0.1)
    assert sent_connect(session)["compress_mode"] == "off"


def test_errors_of_the_peer_set_the_delay() -> None:
    for text, delay_s in (
        ("Authorization Violation", None),
        ("remote leafnode has same cluster name", 30.0),
        ('connection rejected since minimum version required is "2.12.0"', 5.0),
        ('Permissions Violation for Subscription to "zz.top"', 30.0),
        ("Duplicate Remote LeafNode Connection", None),
    ):
        session = established_leaf()
        assert session.receive(b"-ERR '%b'\r\n" % text.encode(), 1.0) == [PeerError(text)]
        assert session.is_open
        assert session.connection_lost("end of stream") == Closed(text, delay_s)


def test_loop_told_by_the_peer_closes_for_30_seconds() -> None:
    session = established_leaf()
    text = 'Loop detected for leafnode account="ACC". Delaying attempt to reconnect for 30s'
    assert session.receive(b"-ERR '%b'\r\n" % text.encode(), 1.0) == [PeerError(text), Closed(text, 30.0)]
    assert session.data_to_send() == b""


def test_hub_permissions_are_kept_here() -> None:
    session = established_leaf(info={"import": {"allow": ["in.>"]}, "export": {"allow": ["ok.>"], "deny": ["ok.not"]}})
    assert session.may_announce(b"in.a")
    assert session.may_announce(b"*.a"), "overlaps what is allowed"
    assert not session.may_announce(b"zz.top")
    assert session.may_announce(b"$LDS.abc")
    assert session.may_send(b"ok.a")
    assert not session.may_send(b"ok.not")
    assert not session.may_send(b"other")
    # A spoke ignores what it should not have been sent, and counts it.
    assert session.receive(b"LMSG zz.top 1\r\nx\r\nLMSG in.b 1\r\ny\r\n", 1.0) == [LeafMsg(b"in.b", payload=b"y")]
    assert session.refused_inbound == 1
    assert session.is_open


def test_permissions_may_change_later() -> None:
    session = established_leaf()
    assert session.may_send(b"secret.x")
    events = session.receive(second_info(leafnode_urls=[], export={"deny": ["secret.>"]}), 5.0)
    assert events == [PermissionsChanged()]
    assert not session.may_send(b"secret.x")
    urls = session.receive(b'INFO {"client_id": 7, "leafnode_urls": ["other:7422"]}\r\n', 6.0)
    assert urls == [UrlsDiscovered(("other:7422",))]
    assert not session.may_send(b"secret.x"), "an INFO about the hub's cluster says nothing of permissions"


def test_own_denies() -> None:
    session = soliciting(deny_imports=(b"down.>",), deny_exports=(b"up.>",))
    session.receive(first_info(), 0.1)
    assert sent_connect(session)["deny_pub"] == ["down.>"]
    session.receive(second_info(), 0.2)
    assert not session.may_announce(b"down.a")
    assert not session.may_send(b"up.a")
    assert session.may_send(b"down.a")


def test_jetstream_api_stays_home() -> None:
    session = established_leaf()
    for subject in (b"$JS.API.INFO", b"$KV.bucket.key", b"$OBJ.bucket.C.x", b"$JS.leaf.API.STREAM.NAMES"):
        assert not session.may_send(subject)
    for subject in (b"$JS.hub.API.STREAM.NAMES", b"$JS.ACK.S.C.1.1.1.1.0", b"$JS.FC.S.C.x", b"_INBOX.a.b"):
        assert session.may_send(subject)
    assert not session.may_announce(b"$JS.API.>")
    assert not session.may_announce(b"$JS.API.INFO")
    assert session.may_announce(b"$JS.leaf.API.STREAM.>")


@pytest.mark.parametrize("of_server", [10, 1000])
def test_message_larger_than_the_hub_takes_is_dropped_and_counted(of_server: int) -> None:
    """The limit of the server; or that of the account or user, which is told with the account."""
    session = soliciting()
    session.receive(first_info(max_payload=of_server), 0.1)
    session.receive(second_info(max_payload=10), 0.2)
    session.data_to_send()
    assert not session.sender.send(b"a", b"", b"", b"x" * 11)
    assert session.sender.refused_too_large == 1
    assert session.sender.send(b"a", b"", b"", b"x" * 10)


def test_headers_are_stripped_for_a_peer_without() -> None:
    session = soliciting()
    session.receive(first_info(headers=False, info_on_connect=False), 0.1)
    assert b'"headers":true' not in session.data_to_send(), "neither may the hub send any"
    session.sender.send(b"a", b"", b"NATS/1.0\r\nA: b\r\n\r\n", b"xy")
    assert session.data_to_send() == b"LMSG a 2\r\nxy\r\n"


def test_parse_error_closes_in_silence() -> None:
    session = established_leaf()
    events = session.receive(b"LMSG ok 1\r\nx\r\nLS+ bad q\r\n", 1.0)
    assert events[0] == LeafMsg(b"ok", payload=b"x")
    assert isinstance(events[1], Closed)
    assert session.data_to_send() == b""
    assert session.state is State.CLOSED


def test_unknown_operation_and_oversized_payload_are_named() -> None:
    session = established_leaf()
    assert session.receive(b"FOO bar\r\n", 1.0) == [Closed("Unknown Protocol Operation", None)]
    assert session.data_to_send() == b"-ERR 'Unknown Protocol Operation'\r\n"
    session = established_leaf()
    assert session.receive(b"LMSG a 99999999\r\n", 1.0) == [Closed("Maximum Payload Violation", None)]
    assert session.data_to_send() == b"-ERR 'Maximum Payload Violation'\r\n"


def test_invalid_interest_is_refused_but_the_link_stays() -> None:
    session = established_leaf()
    assert session.receive(b"LS+ a..b\r\nLS+ ok\r\n", 1.0) == [LsAdd(b"ok", b"", 0)]
    assert session.data_to_send() == b"-ERR 'Invalid Subscription'\r\n"
