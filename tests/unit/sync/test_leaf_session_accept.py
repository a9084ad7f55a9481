"""The accepting end of a leaf link, as transcripts."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from eyot_sync.leaf.events import Closed, ConnectReceived, Established, ReplyRule, UserRules
from eyot_sync.leaf.interest import LinkPeer
from eyot_sync.leaf.permissions import SubjectRule
from eyot_sync.leaf.session import LeafSession
from eyot_wire.frames import LeafMsg, LsAdd
from support.links.leaf_peers import HUB, accepting, connect, established_hub


def sent_infos(session: LeafSession) -> list[dict[str, object]]:
    lines = session.data_to_send().split(b"\r\n")
    return [json.loads(line[5:]) for line in lines if line.startswith(b"INFO ")]


def test_handshake_in_order() -> None:
    session = accepting()
    (info,) = sent_infos(session)
    nonce = info.pop("nonce")
    assert isinstance(nonce, str)
    assert len(nonce) == 15
    assert info == {
        "server_id": "NHUB",
        "server_name": "hub-server",
        "version": "2.12.0",
        "proto": 3,
        "host": "10.0.0.1",
        "port": 7422,
        "ip": "10.0.0.1:7422",
        "headers": True,
        "auth_required": True,
        "max_payload": 1048576,
        "jetstream": True,
        "domain": "hub",
        "client_id": 7,
        "leafnode_urls": ["10.0.0.1:7422"],
        "info_on_connect": True,
        "compression": "off",
    }
    (event,) = session.receive(connect(), 0.1)
    assert isinstance(event, ConnectReceived)
    assert event.nonce == nonce.encode()
    assert (event.connect.user, event.connect.password) == ("acc", "acc")
    session.add_interest(b"foo")
    assert session.accept_connect(0.2, account="ACC", is_system=False, user=UserRules()) == [
        Established(
            "NLEAF",
            "leaf-server",
            "2.9.10",
            "leaf",
            "",
            LinkPeer(is_upstream=False, cluster="leaf-server"),
            jetstream=True,
        )
    ]
    data = session.data_to_send()
    assert data.endswith(b"}\r\nPING\r\nLS+ foo\r\n")
    second = json.loads(data.split(b"\r\n")[0][5:])
    assert second["connect_info"] is True
    assert second["remote_account"] == "ACC"
    assert "nonce" not in second
    assert "import" not in second


def test_empty_url_list_is_still_a_list() -> None:
    (info,) = sent_infos(accepting(leafnode_urls=()))
    assert info["leafnode_urls"] == []


def test_what_comes_behind_connect_waits_for_the_verdict() -> None:
    session = accepting()
    (event,) = session.receive(connect() + b"LS+ a\r\nLMSG a 1\r\nx\r\nPING\r\n", 0.1)
    assert isinstance(event, ConnectReceived)
    events = session.accept_connect(0.1, account="ACC", is_system=False, user=UserRules())
    assert events[1:] == [LsAdd(b"a", b"", 0), LeafMsg(b"a", payload=b"x")]
    assert session.data_to_send().endswith(b"PONG\r\n")


@pytest.mark.parametrize(
    "first",
    [b"LS+ foo\r\n", b"LMSG a 1\r\nx\r\n", b"PING\r\n", b"INFO {}\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\r\n", b"+OK\r\n"],
)
def test_anything_but_connect_first_is_refused(first: bytes) -> None:
    session = accepting()
    session.data_to_send()
    assert session.receive(first, 0.1) == [Closed("Authorization Violation", None)]
    assert session.data_to_send() == b"-ERR 'Authorization Violation'\r\n"


def test_nothing_for_two_seconds() -> None:
    session = accepting()
    session.data_to_send()
    assert session.next_deadline == 2.0
    assert session.tick(2.0) == [Closed("Authentication Timeout", None)]
    assert session.data_to_send() == b"-ERR 'Authentication Timeout'\r\n"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"lang": "go"}, "attempted to connect to leaf node port"),
        ({"gateway": "g1"}, 'Rejecting connection from gateway "g1" on the leafnode port'),
        ({"cluster": "a b"}, "cluster name cannot contain spaces"),
        ({"cluster": "C1"}, "remote leafnode has same cluster name"),
    ],
)
def test_refused_connects(fields: dict[str, object], text: str) -> None:
    session = accepting(replace(HUB, cluster="C1"))
    session.data_to_send()
    (closed,) = session.receive(connect(**fields), 0.1)
    assert isinstance(closed, Closed)
    assert closed.reason == text
    assert session.data_to_send() == b"-ERR '%b'\r\n" % text.encode()


def test_hub_without_cluster_takes_any_cluster() -> None:
    assert isinstance(accepting().receive(connect(cluster=""), 0.1)[0], ConnectReceived)


def test_wrong_credentials() -> None:
    session = accepting()
    session.receive(connect(), 0.1)
    session.data_to_send()
    assert session.reject() == [Closed("Authorization Violation", None)]
    assert session.data_to_send() == b"-ERR 'Authorization Violation'\r\n"
    assert session.accept_connect(0.2, account="ACC", is_system=False, user=UserRules()) == []


def test_unreadable_connect_closes_in_silence() -> None:
    session = accepting()
    session.data_to_send()
    (closed,) = session.receive(b"CONNECT {broken\r\n", 0.1)
    assert isinstance(closed, Closed)
    assert session.data_to_send() == b""


@pytest.mark.parametrize(
    ("version", "refused"),
    [
        *[("2.9.10", True), ("2.12.0", False), ("2.12.3-beta", False), ("", True)],
        *[("\u0663.1.1", True), (f"{2**63}.1.1", True), ("9" * 5000 + ".1.1", True), (f"{2**63 - 1}.1.1", False)],
    ],
)
def test_minimum_version(version: str, refused: bool) -> None:
    session = accepting(min_version="2.12.0")
    session.receive(connect(version=version), 0.1)
    session.data_to_send()
    events = session.accept_connect(0.1, account="ACC", is_system=False, user=UserRules())
    data = session.data_to_send()
    assert data.startswith(b"INFO "), "the account is told before the refusal"
    assert isinstance(events[0], Closed) is refused
    assert (b'minimum version required is "2.12.0"' in data) is refused


def test_permissions_are_told_and_kept() -> None:
    user = UserRules(publish=SubjectRule(allow=(b"ok.>",)), subscribe=SubjectRule(allow=(b"in.>",), deny=(b"in.no",)))
    session = accepting()
    session.receive(connect(), 0.1)
    session.data_to_send()
    session.accept_connect(0.1, account="ACC", is_system=False, user=user)
    (info,) = sent_infos(session)
    assert info["import"] == {"allow": ["in.>"], "deny": ["in.no"]}
    assert info["export"] == {"allow": ["ok.>"]}
    assert session.receive(b"LS+ in.a\r\nLS+ *.b\r\n", 1.0) == [LsAdd(b"in.a", b"", 0), LsAdd(b"*.b", b"", 0)]
    assert session.may_send(b"in.a")
    assert not session.may_send(b"zz.b")
    assert session.receive(b"LMSG ok.x 1\r\ny\r\n", 1.0) == [LeafMsg(b"ok.x", payload=b"y")]
    assert session.receive(b"LMSG _R_.abc 1\r\ny\r\nLMSG $JS.ACK.S.C.1 0\r\n\r\n", 1.0) == [
        LeafMsg(b"_R_.abc", payload=b"y"),
        LeafMsg(b"$JS.ACK.S.C.1"),
    ]


@pytest.mark.parametrize("subject", [b"zz.top", b"ok.a", b"in.no"])
def test_forbidden_literal_interest_ends_the_link(subject: bytes) -> None:
    user = UserRules(publish=SubjectRule(allow=(b"ok.>",)), subscribe=SubjectRule(allow=(b"in.>",), deny=(b"in.no",)))
    session = established_hub(user)
    text = f'Permissions Violation for Subscription to "{subject.decode()}"'
    assert session.receive(b"LS+ %b\r\nLS+ in.a\r\n" % subject, 1.0) == [Closed(text, 30.0)]
    assert session.data_to_send() == b"-ERR '%b'\r\n" % text.encode()


def test_forbidden_message_ends_the_link() -> None:
    session = established_hub(UserRules(publish=SubjectRule(allow=(b"ok.>",))))
    text = 'Permissions Violation for Publish to "nope"'
    assert session.receive(b"LMSG nope 1\r\nx\r\nLMSG ok.a 1\r\nx\r\n", 1.0) == [Closed(text, 30.0)]
    assert session.data_to_send() == b"-ERR '%b'\r\n" % text.encode()


def test_jetstream_interest_of_a_leaf() -> None:
    session = established_hub()
    assert session.receive(b"LS+ $JS.API.>\r\n", 1.0) == [LsAdd(b"$JS.API.>", b"", 0)]
    assert not session.may_send(b"$JS.API.INFO"), "accepted, but nothing goes down"
    (closed,) = session.receive(b"LS+ $JS.API.INFO\r\n", 1.1)
    assert closed == Closed('Permissions Violation for Subscription to "$JS.API.INFO"', 30.0)


def test_jetstream_requests_of_a_leaf_are_not_policed() -> None:
    session = established_hub()
    assert session.receive(b"LMSG $JS.API.INFO _INBOX.a 0\r\n\r\n", 1.0) == [LeafMsg(b"$JS.API.INFO", b"_INBOX.a")]
    assert session.may_announce(b"$JS.API.>")


def test_subjects_the_leaf_asked_not_to_be_sent() -> None:
    session = established_hub(connect_fields={"deny_pub": ["down.>"]})
    assert not session.may_send(b"down.a")
    assert session.may_send(b"up.a")


def test_leaf_that_wants_to_be_the_hub() -> None:
    session = established_hub(connect_fields={"is_hub": True})
    assert session.is_spoke
    assert session.peer.is_upstream


def test_leaf_that_wants_to_be_alone() -> None:
    assert established_hub(connect_fields={"isolate": True}).peer.isolated
    assert established_hub(isolate=True).peer.isolated
    assert not established_hub().peer.isolated


def test_replies_are_allowed_as_often_and_as_long_as_the_user_may() -> None:
    session = established_hub(
        UserRules(publish=SubjectRule(allow=()), replies=ReplyRule(max_messages=1, expires_s=10.0))
    )
    assert session.sender.send(b"ask", b"_INBOX.1", b"", b"?")
    assert session.sender.send(b"ask", b"_INBOX.2", b"", b"?")
    assert session.receive(b"LMSG _INBOX.1 1\r\n!\r\n", 1.0) == [LeafMsg(b"_INBOX.1", payload=b"!")]
    (closed,) = session.receive(b"LMSG _INBOX.1 1\r\n!\r\n", 1.1)
    assert isinstance(closed, Closed)
    late = established_hub(UserRules(publish=SubjectRule(allow=()), replies=ReplyRule(max_messages=1, expires_s=10.0)))
    late.sender.send(b"ask", b"_INBOX.1", b"", b"?")
    assert isinstance(late.receive(b"LMSG _INBOX.1 1\r\n!\r\n", 11.0)[0], Closed)


def test_a_leaf_that_may_only_reply_is_not_told_an_empty_list() -> None:
    session = accepting()
    session.receive(connect(), 0.1)
    session.data_to_send()
    user = UserRules(publish=SubjectRule(allow=(), deny=(b"x",)), replies=ReplyRule(1, 10.0))
    session.accept_connect(0.1, account="ACC", is_system=False, user=user)
    (info,) = sent_infos(session)
    assert info["export"] == {"deny": ["x"]}


@pytest.mark.parametrize(("asked", "earliest_s", "latest_s"), [(0, 12, 13), (100, 100, 101), (10**9, 240, 500)])
def test_a_leaf_whose_link_is_metered_may_be_silent_for_longer(asked: int, earliest_s: int, latest_s: int) -> None:
    """But not beyond `ping_interval` and `ping_max`, whatever it asks for."""
    session = established_hub(connect_fields={"eyot_silence_s": asked})
    now = 0.1
    while not session.is_closed:
        now = session.next_deadline
        session.tick(now)
    assert earliest_s <= now <= latest_s
