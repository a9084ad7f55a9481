"""INFO and CONNECT: names on the wire, forgiving decoding, no secret in a repr."""

import json

import msgspec
import pytest

from eyot_wire.frames import encode_connect, encode_info
from eyot_wire.info import ClientConnect, LeafConnect, LeafInfo, ServerInfo, SubjectPermission, decode


def test_defaults_of_connect() -> None:
    connect = decode(b"{}", ClientConnect)
    assert connect.verbose
    assert connect.pedantic
    assert connect.echo
    assert not connect.headers
    assert connect.protocol == 0


def test_decoding_is_forgiving() -> None:
    connect = decode(b'{"user":"a","pass":"b","verbose":null,"echo":false,"no_such":[1]}', ClientConnect)
    assert (connect.user, connect.password, connect.verbose, connect.echo) == ("a", "b", True, False)


@pytest.mark.parametrize(
    "bad", [b"", b"{", b"[]", b"1", b'{"user":1}', b'{"protocol":"x"}', b'{"user":"\xff"}', b'{"\x80":1,"user":null}']
)
def test_refused(bad: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode(bad, ClientConnect)


def test_keywords_as_field_names() -> None:
    info = LeafInfo(leafnode_urls=[], import_=SubjectPermission(["in.>"]), export=SubjectPermission(None, ["x"]))
    encoded = encode_info(info)
    assert encoded.endswith(b"}\r\n")
    assert json.loads(encoded[5:]) == {"leafnode_urls": [], "import": {"allow": ["in.>"]}, "export": {"deny": ["x"]}}
    assert decode(encoded[5:-2], LeafInfo) == info
    connect = LeafConnect(name="edge", password="p", deny_pub=["a"])
    assert json.loads(encode_connect(connect)[8:]) == {"name": "edge", "pass": "p", "deny_pub": ["a"]}


def test_absent_and_empty_url_lists_differ() -> None:
    assert decode(b"{}", LeafInfo).leafnode_urls is None
    assert decode(b'{"leafnode_urls":[]}', LeafInfo).leafnode_urls == []


def test_server_info_leaves_out_what_is_not_set_but_not_what_clients_count_on() -> None:
    info = ServerInfo(server_id="N", version="2.12.0", port=4222, headers=True, max_payload=1024)
    assert json.loads(encode_info(info)[5:]) == {
        "server_id": "N",
        "server_name": "",
        "version": "2.12.0",
        "proto": 0,
        "go": "",
        "host": "",
        "port": 4222,
        "headers": True,
        "max_payload": 1024,
    }


def test_no_secret_is_shown() -> None:
    secrets = {"password": "hunter2", "auth_token": "tok3n", "jwt": "eyJ0", "sig": "s1g"}
    for shown in (repr(ClientConnect(user="a", **secrets)), repr(LeafConnect(user="a", **secrets))):
        assert "user='a'" in shown
        assert not any(secret in shown for secret in secrets.values())
    assert "tok3n" not in repr(LeafConnect(user="tok3n", auth_token="tok3n"))
