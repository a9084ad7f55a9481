"""JetStream as a part of the daemon: where its store is, what starts and stops, and what the status pages show of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from eyot_daemon.config.jetstream import EyotOptions, EyotStoreOptions, JetStreamOptions
from eyot_daemon.config.options import Options
from eyot_daemon.jetstream.running import RunningJetStream, store_path
from eyot_daemon.jetstream.status import health, provide
from eyot_daemon.router.broker import Broker
from eyot_daemon.router.providers import HealthzQuery, JszQuery
from eyot_daemon.router.subscription import CallbackDest, Kind, Origin, Subscription
from eyot_daemon.turn.slices import at_once


def test_where_the_store_is(tmp_path: Path) -> None:
    assert store_path(JetStreamOptions(store_dir="/a"), {"STATE_DIRECTORY": "/b"}) == Path("/a/eyot")
    assert store_path(JetStreamOptions(), {"STATE_DIRECTORY": "/b:/c"}) == Path("/b/eyot")
    assert store_path(JetStreamOptions(), {}).name == "eyot"


def part_of(broker: Broker) -> RunningJetStream:
    assert broker.options.jetstream is not None
    return RunningJetStream(broker, broker.options.jetstream, EyotStoreOptions(map_size=64 << 20), {})


async def ask(broker: Broker, subject: bytes, payload: bytes) -> dict[str, Any]:
    """A request from within the broker, and the JSON that answers it."""
    answers: list[bytes] = []

    def take(
        sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> None:
        answers.append(payload)

    account = broker.global_account
    sub = account.subscribe(b"answer.here", CallbackDest(take, Kind.SYSTEM))
    account.publish(subject, b"answer.here", payload=payload)
    broker.flush()
    with trio.fail_after(60):
        while not answers:
            await trio.sleep(0.005)
    account.unsubscribe(sub)
    found: dict[str, Any] = json.loads(answers[0])
    return found


async def test_a_store_whose_folder_is_gone_is_on_the_pages_all_the_same(tmp_path: Path, nursery: trio.Nursery) -> None:
    """Operators look at the pages when a disk is gone."""
    broker = Broker(Options(jetstream=JetStreamOptions(store_dir=str(tmp_path / "store"))))
    nursery.start_soon(broker.readers.run)
    part = part_of(broker)
    part.start()
    provide(part, broker.providers)
    shutil.rmtree(tmp_path / "store")
    assert broker.providers.jetstream_varz() is not None
    assert at_once(broker.providers.jsz(JszQuery(accounts=True, streams=True))) is not None
    store = broker.providers.store()
    assert store is not None
    assert (store.free_bytes, store.total_bytes) == (None, None)
    part.stop()
    nursery.cancel_scope.cancel()


async def test_what_was_stored_is_there_after_a_restart_and_on_the_status_pages(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    options = Options(jetstream=JetStreamOptions(store_dir=str(tmp_path), domain="d"))
    broker = Broker(options)
    nursery.start_soon(broker.readers.run)
    part = part_of(broker)
    part.start()
    config = json.dumps({"name": "S", "subjects": ["s.>"], "storage": "file"}).encode()
    assert (await ask(broker, b"$JS.API.STREAM.CREATE.S", config))["config"]["name"] == "S"
    for number in range(3):
        assert (await ask(broker, b"s.a", b"x"))["seq"] == number + 1
    part.stop()

    broker = Broker(options)
    part = part_of(broker)
    part.start()
    provide(part, broker.providers)
    page = at_once(broker.providers.jsz(JszQuery(accounts=True, streams=True, consumers=True, config=True)))
    assert page is not None
    page = json.loads(msgspec.json.encode(page))
    assert (page["streams"], page["messages"], page["consumers"], page["accounts"]) == (1, 3, 0, 1)
    assert page["config"]["domain"] == "d"
    assert page["config"]["store_dir"] == str(tmp_path / "eyot")
    (account,) = page["account_details"]
    (stream,) = account["stream_detail"]
    assert (stream["name"], stream["state"]["last_seq"], stream["config"]["subjects"]) == ("S", 3, ["s.>"])
    assert "account_details" not in (at_once(broker.providers.jsz(JszQuery())) or {})
    (status,) = broker.providers.streams()
    assert (status.account, status.name, status.messages, status.committed_seq) == ("$G", "S", 3, 3)
    store = broker.providers.store()
    assert store is not None
    assert (store.path, store.error) == (str(tmp_path / "eyot"), None)
    varz = broker.providers.jetstream_varz()
    assert varz is not None
    assert varz["stats"]["storage"] == page["bytes"]
    part.stop()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (HealthzQuery(), None),
        (HealthzQuery(account="$G"), 404),  # as in nats-server, where an account is not there before its first stream
        (HealthzQuery(account="NONE"), 404),
        (HealthzQuery(account="$G", stream="NONE"), 404),
        (HealthzQuery(account="$G", stream="NONE", js_server_only=True), None),
    ],
)
async def test_health(tmp_path: Path, query: HealthzQuery, expected: int | None) -> None:
    broker = Broker(Options(jetstream=JetStreamOptions(store_dir=str(tmp_path))))
    part = part_of(broker)
    part.start()
    wrong = health(part, query)
    assert (None if wrong is None else wrong[0]) == expected
    part.stop()
    stopped = health(part, HealthzQuery())
    assert stopped is not None
    assert stopped[0] == 503


async def test_the_store_directory_is_a_file(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("not a directory")
    part = part_of(Broker(Options(jetstream=JetStreamOptions(store_dir=str(taken)))))
    with pytest.raises(OSError, match=r"^storage directory is not a directory$"):
        part.start()


def test_where_the_control_socket_is() -> None:
    env = {"RUNTIME_DIRECTORY": "/run/eyot:/run/other"}
    assert EyotOptions().control_path(env) == Path("/run/eyot/control.sock")
    assert EyotOptions(control_socket="/a/b").control_path(env) == Path("/a/b")
    assert EyotOptions().control_path({}) is None
