"""Every way to log in, and streams behind a leaf link, as the options say it: against nats-server 2.14, planned and read without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from eyot_hub.connection import Connection, ConnectOptions
from eyot_hub.errors import ConnectionFailed, NoResponders, OptionError, Refused
from eyot_hub.options import sink_options, source_options
from eyot_hub.planning import Planner
from eyot_hub.publisher import Publisher
from eyot_hub.range_reader import RangeReader, StreamRange
from eyot_wire import headers
from support.links.leaf_pair import LeafPair
from support.servers.newer_nats_server import NewerNatsServer
from support.trust.certificates import Authority
from support.trust.claims import ALPHA, OPERATOR, USER, Key, creds, operator_conf

COUNT = 300
JETSTREAM = 'server_name: hub\njetstream { store_dir: "%WORKDIR%/js" }\n'
SHORT = {"timeout": "5s", "retryFor": "3s"}


def fill(given: Mapping[str, str], prefix: str = "$JS.API") -> None:
    """Make the stream S and publish numbers into it, as the sink does, with the same options."""
    connect = sink_options({**SHORT, **given}).connect
    connection = Connection.open(connect)
    made = connection.request(f"{prefix}.STREAM.CREATE.S", json.dumps({"name": "S", "subjects": ["s"]}).encode())
    assert b'"error"' not in made.payload, made.payload
    connection.close()
    publisher = Publisher(connect, 4096)
    for number in range(COUNT):
        publisher.publish(b"s", headers.build(fields=[("Nats-Msg-Id", str(number))]), b"%d" % number)
    publisher.flush()
    publisher.close()


def read(**given: str) -> list[int]:
    """The numbers in S."""
    options = source_options({"stream": "S", **SHORT, **given})
    planner = Planner(options)
    try:
        streams = planner.streams()
        labels = planner.labels(streams["S"])
        span = StreamRange("S", streams["S"].created, 1, streams["S"].state.last_seq)
        batches = list(RangeReader(options.read, span, labels).batches())
        return [int(payload) for batch in batches for payload in batch.column("payload").to_pylist()]
    finally:
        planner.close()


def test_credentials_file(tmp_path: Path) -> None:
    mine, forged, account = tmp_path / "me.creds", tmp_path / "forged.creds", tmp_path / "other.creds"
    mine.write_text(creds(ALPHA.user(USER), USER))
    forged.write_text(creds(Key("A", 99).user(USER), USER))
    account.write_text(creds(ALPHA.user(USER), Key("U", 98)))  # a token that belongs to another key
    limits = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
    config = JETSTREAM + operator_conf(OPERATOR.account(ALPHA, limits=limits))
    with NewerNatsServer(config, tmp_path / "server") as server:
        at = {"servers": f"127.0.0.1:{server.client_port}"}
        fill({**at, "creds": str(mine)})
        assert read(**at, creds=str(mine)) == list(range(COUNT))
        for wrong in (forged, account):
            with pytest.raises(Refused, match="Authorization Violation"):
                read(**at, creds=str(wrong))
        with pytest.raises(OptionError, match="option 'creds' names a file that cannot be read: No such file"):
            read(**at, creds=str(tmp_path / "none"))


def test_nkey(tmp_path: Path) -> None:
    seed = tmp_path / "me.nk"
    seed.write_text(USER.seed + "\n")
    accounts = f"accounts {{ A {{ jetstream: enabled, users: [ {{ nkey: {USER.public} }} ] }} }}"
    with NewerNatsServer(JETSTREAM + accounts, tmp_path / "server") as server:
        at = {"servers": f"127.0.0.1:{server.client_port}", "nkey": str(seed)}
        fill(at)
        assert read(**at) == list(range(COUNT))
        seed.write_text(Key("U", 97).seed)
        with pytest.raises(Refused, match="Authorization Violation"):
            read(**at)


@pytest.mark.parametrize("first", [False, True])
def test_client_certificates(tmp_path: Path, first: bool) -> None:
    """The certificate alone says who it is; with and without the handshake before INFO."""
    authority, stranger = Authority(tmp_path / "ca"), Authority(tmp_path / "stranger")
    certificate, key = authority.issue("spark")
    accounts = 'accounts { A { jetstream: enabled, users: [ { user: "CN=spark" } ] } }\n'
    tls = authority.block("server", "verify_and_map: true, handshake_first: true" if first else "verify_and_map: true")
    server = NewerNatsServer(JETSTREAM + accounts + tls, tmp_path / "server")
    server.start(wait=False)  # who shakes hands first greets nobody before
    try:
        server.wait_log("Server is ready", 30.0)
        at = {"servers": f"tls://127.0.0.1:{server.client_port}", "tlsFirst": str(first).lower()}
        mine = {"tlsCa": str(authority.ca_file), "tlsCert": str(certificate), "tlsKey": str(key)}
        fill({**at, **mine})
        assert read(**at, **mine) == list(range(COUNT))
        with pytest.raises(Refused, match=r"TLS with 127\.0\.0\.1:\d+: .*certificate"):
            read(**at, **{**mine, "tlsCa": str(stranger.ca_file)})
        unknown, unknown_key = authority.issue("unknown")
        with pytest.raises(Refused):
            read(**at, **{**mine, "tlsCert": str(unknown), "tlsKey": str(unknown_key)})
        with pytest.raises((Refused, ConnectionFailed)):
            read(**at, tlsCa=str(authority.ca_file))
        with pytest.raises(OptionError, match="option 'tlsCert' and tlsKey cannot be used"):
            read(**at, **{**mine, "tlsKey": str(unknown_key)})
        seed = tmp_path / "text.pem"
        seed.write_text("no certificate")
        with pytest.raises(OptionError, match="option 'tlsCa' names a file that cannot be used"):
            read(**at, **{**mine, "tlsCa": str(seed)})
    finally:
        server.kill()


@pytest.mark.parametrize(
    "allowed",
    [
        "STREAM.MSG.GET.S",
        "CONSUMER.CREATE.S.*.s",  # a reader that may create consumers of its subject, and no others
    ],
)
def test_a_user_with_the_usual_permissions(tmp_path: Path, allowed: str) -> None:
    """Consumers are made by the subject that names stream, consumer and filter; a single message is had either way."""
    mine = ["STREAM.INFO.S", "CONSUMER.CREATE.S.*.s", "CONSUMER.MSG.NEXT.S.*", "CONSUMER.DELETE.S.*", allowed]
    publish = ", ".join(f'"$JS.API.{words}"' for words in mine)
    users = f"""accounts {{ A {{ jetstream: enabled, users: [
        {{ user: all, password: all }},
        {{ user: me, password: me, permissions {{ publish {{ allow: [{publish}] }}, subscribe {{ allow: "_INBOX.>" }} }} }}
    ] }} }}"""
    with NewerNatsServer(JETSTREAM + users, tmp_path / "server") as server:
        at = {"servers": f"127.0.0.1:{server.client_port}"}
        fill({**at, "user": "all", "password": "all"})
        mine_too = {**at, "user": "me", "password": "me", "subjects": "s"}
        assert read(**mine_too) == list(range(COUNT))
        planner = Planner(source_options({"stream": "S", **SHORT, **mine_too}))
        info = planner.streams()["S"]
        assert info.last_row is not None
        assert planner.jetstream.stored_ns("S", COUNT, ["s"]) == info.last_row.stored_ns
        assert planner.jetstream.stored_ns("S", COUNT + 1, ["s"]) is None
        planner.close()


@pytest.mark.parametrize(("hub", "leaf"), [("2.14.6", "2.14.6"), ("2.14.6", "eyotd"), ("eyotd", "2.14.6")])
def test_a_stream_in_another_domain(tmp_path: Path, hub: str, leaf: str) -> None:
    """Asked at the hub, read over the leaf link: by the domain's name, and by the prefix that it stands for."""
    with LeafPair(hub, leaf, tmp_path) as pair:
        at = {"servers": f"127.0.0.1:{pair.hub.client_port}", "user": "acc", "password": "acc"}
        fill({**at, "servers": f"127.0.0.1:{pair.leaf.client_port}"})
        for way in ({"domain": "leaf"}, {"apiPrefix": "$JS.leaf.API"}, {"api_prefix": "$JS.leaf.API.>"}):
            assert read(**at, **way) == list(range(COUNT))
        with pytest.raises(OptionError, match="option 'stream' names a stream that does not exist: 'S'"):
            read(**at)
        with pytest.raises(NoResponders, match=r"no responders on \$JS\.nowhere\.API\.STREAM\.INFO\.S"):
            read(**at, domain="nowhere")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"creds": "a", "nkey": "b"}, "option 'nkey' cannot be used together with 'creds'"),
        ({"user": "a"}, "option 'password' is missing"),
        ({"tlsCert": "a"}, "option 'tlsKey' is missing|option 'tlsCert'"),
        ({"tls": "yes"}, "option 'tls' must be true or false, not 'yes'"),
        ({"domain": "a.b"}, "option 'domain' must be one token"),
        ({"domain": "a", "apiPrefix": "b"}, "option 'apiPrefix' cannot be used together with 'domain'"),
        ({"apiPrefix": "$JS.*.API"}, "option 'apiPrefix' must be a subject"),
        ({"timeout": "soon"}, "option 'timeout' must be a duration"),
        ({"retryFor": "-1s"}, "option 'retryFor' must be positive"),
        ({"fetchBytes": "4q"}, "option 'fetchBytes' must be a number of bytes"),
        ({"minPartitions": "0"}, "option 'minPartitions' must be an integer of at least 1"),
        ({"failOnDataLoss": ""}, "option 'failOnDataLoss' is empty"),
        ({"startingOffsets": "yesterday"}, "option 'startingOffsets' is 'yesterday'"),
        ({"startingOffsets": "[1]"}, "option 'startingOffsets'"),
        ({"startingOffsets": "{"}, "option 'startingOffsets' is not JSON"),
        ({"startingOffsets": '{"S": -1}'}, "option 'startingOffsets' has for stream 'S'"),
        ({"startingOffsets": '{"S": 9223372036854775808}'}, "option 'startingOffsets' has for stream 'S'"),
        ({"startingOffsets": "99999999999999999999"}, "option 'startingOffsets' is"),
        ({"startingOffsets": "²"}, "option 'startingOffsets' is"),
        ({"endingOffsets": '{"S": "earliest"}'}, "option 'endingOffsets' has for stream 'S'"),
        ({"subjects": "a..b"}, "option 'subjects' has an invalid subject: 'a..b'"),
        ({"subjects": '[{"a": 1}]'}, "option 'subjects' must be a list of texts"),
        ({"servers": "http://x"}, "option 'servers' has a URL of an unknown kind"),
        ({"servers": "nats://u:p@x"}, "option 'servers' must not hold a user or password"),
        ({"servers": "x:99999"}, "option 'servers' has no usable port"),
        ({"servers": "nats://[::1"}, "option 'servers'"),
        ({"stream": "a b"}, "option 'stream' has an invalid stream name"),
    ],
)
def test_wrong_values_name_their_option(given: dict[str, str], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        source_options({"servers": "127.0.0.1", "stream": "S", **given})


def test_a_password_is_never_shown() -> None:
    options = source_options({"servers": "h", "stream": "S", "user": "me", "password": "geheim"})
    assert "geheim" not in repr(options)
    assert "geheim" not in repr(ConnectOptions(("h",), token="geheim"))
