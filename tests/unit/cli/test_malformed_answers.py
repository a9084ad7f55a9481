"""Answers of the JetStream API that are none, and names that no bucket or key can have."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from eyot_cli.jetstream.api import answer_of
from eyot_cli.jetstream.stream_info import info_of
from eyot_cli.main import cli
from eyot_cli.terminal.failure import Failure


@pytest.mark.parametrize("data", [b"", b"garbage", b"[]", b"null", b'"text"', b'{"error": "text"}', b'{"error": []}'])
def test_an_answer_that_is_none(data: bytes) -> None:
    with pytest.raises(Failure, match="malformed answer"):
        answer_of(data)


def test_the_servers_words() -> None:
    with pytest.raises(Failure, match=r"^stream not found \(10059\): eyot stream ls lists those that there are$"):
        answer_of(b'{"error": {"code": 404, "err_code": 10059, "description": "stream not found"}}')
    assert answer_of(b'{"error": null, "total": 1}')["total"] == 1


def test_a_stream_without_its_configuration() -> None:
    with pytest.raises(Failure, match="malformed answer"):
        info_of({"created": "2026-11-23T08:00:00Z"})


@pytest.mark.parametrize(
    "words",
    [
        ("kv", "add", "a.b"), ("kv", "ls", "a b"), ("object", "add", "a>"), ("object", "seal", "a*"), ("kv", "put", "a", "b.*", "v"),
        ("kv", "put", "a", ".b", "v"), ("kv", "put", "a", "b.", "v"), ("kv", "create", "a", "b c", "v"), ("kv", "update", "a", ">", "v", "1"),
    ],
)  # fmt: skip
def test_a_name_that_cannot_be(words: tuple[str, ...]) -> None:
    # Port 1 refuses connections: a command that goes there ends with another status.
    done = CliRunner().invoke(cli, ["-s", "nats://127.0.0.1:1", *words], standalone_mode=False)
    assert isinstance(done.exception, click.BadParameter), done.exception
    assert "may be in it" in done.exception.message
