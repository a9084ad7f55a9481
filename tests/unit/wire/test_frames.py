"""Encoders, as bytes."""

import random

from eyot_wire import frames
from eyot_wire.nuid import DIGITS, nuid, short_id

HEADER = b"NATS/1.0\r\n\r\n"


def test_msg() -> None:
    assert frames.encode_msg(b"a", b"1", b"", b"", b"x") == b"MSG a 1 1\r\nx\r\n"
    assert frames.encode_msg(b"a", b"1", b"r", b"", b"x") == b"MSG a 1 r 1\r\nx\r\n"
    assert frames.encode_msg(b"a", b"1", b"", HEADER, b"x") == b"HMSG a 1 12 13\r\nNATS/1.0\r\n\r\nx\r\n"
    assert frames.encode_msg(b"a", b"1", b"r", HEADER, b"") == b"HMSG a 1 r 12 12\r\nNATS/1.0\r\n\r\n\r\n"


def test_client_operations() -> None:
    assert frames.encode_pub(b"a", b"", b"", b"x") == b"PUB a 1\r\nx\r\n"
    assert frames.encode_pub(b"a", b"r", HEADER, b"x") == b"HPUB a r 12 13\r\nNATS/1.0\r\n\r\nx\r\n"
    assert frames.encode_sub(b"a", b"1") == b"SUB a 1\r\n"
    assert frames.encode_sub(b"a", b"1", b"q") == b"SUB a q 1\r\n"
    assert frames.encode_unsub(b"1") == b"UNSUB 1\r\n"
    assert frames.encode_err("Stale Connection") == b"-ERR 'Stale Connection'\r\n"


def test_leaf_operations() -> None:
    assert frames.encode_leaf_msg(b"a", payload=b"x") == b"LMSG a 1\r\nx\r\n"
    assert frames.encode_leaf_msg(b"a", b"r", payload=b"x") == b"LMSG a r 1\r\nx\r\n"
    assert frames.encode_leaf_msg(b"a", b"r", b"", b"x", [b"q", b"p"]) == b"LMSG a + r q p 1\r\nx\r\n"
    assert frames.encode_leaf_msg(b"a", b"", b"", b"x", (b"q",)) == b"LMSG a | q 1\r\nx\r\n"
    assert frames.encode_leaf_msg(b"a", b"r", HEADER, b"x", (b"q",)) == b"HMSG a + r q 12 13\r\nNATS/1.0\r\n\r\nx\r\n"
    assert frames.encode_ls_add(b"a") == b"LS+ a\r\n"
    assert frames.encode_ls_add(b"a", b"q", 2) == b"LS+ a q 2\r\n"
    assert frames.encode_ls_del(b"a") == b"LS- a\r\n"
    assert frames.encode_ls_del(b"a", b"q") == b"LS- a q\r\n"


def test_connect_does_not_show_its_secrets() -> None:
    assert "hunter2" not in repr(frames.Connect(b'{"pass":"hunter2"}'))


def test_ids() -> None:
    assert len(nuid()) == 22
    assert nuid() != nuid()
    assert set(short_id(length=1000)) <= set(DIGITS)
    assert short_id(random.Random(1), 8) == short_id(random.Random(1), 8)
