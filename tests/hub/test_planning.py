"""Which streams a pattern finds: many at once, without the permission for lists, and when they come and go."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eyot_hub.columns import StreamLabels
from eyot_hub.jetstream import LISTED_FROM
from eyot_hub.options import source_options
from eyot_hub.origins import Origins
from eyot_hub.planning import Planner
from eyot_hub.range_reader import StreamRange
from support.hub.streams import Streams
from support.servers.nats_server import NatsServer

CONFIG = """
jetstream { store_dir: "%WORKDIR%/js", domain: hub }
authorization { users: [
    { user: all, password: all }
    { user: some, password: some, permissions: { publish: { allow: [">"], deny: ["$JS.API.STREAM.LIST"] } } }
] }
"""
COUNT = 300  # more than one page of the list


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(CONFIG, tmp_path_factory.mktemp("many")) as running:
        streams = Streams(running.client_port, "all")
        for number in range(COUNT):
            streams.create(f"E{number}", [f"e{number}"], storage="memory")
        streams.create("OTHER", ["other"])
        yield running


def planner(server: NatsServer, user: str, stream: str = "E*") -> Planner:
    options = {"servers": f"127.0.0.1:{server.client_port}", "user": user, "password": user, "stream": stream}
    return Planner(source_options(options))


@pytest.mark.parametrize("user", ["all", "some"])
def test_many_streams(server: NatsServer, user: str) -> None:
    found = planner(server, user).streams()
    assert sorted(found) == sorted(f"E{number}" for number in range(COUNT))
    assert {info.domain for info in found.values()} == {"hub"}
    assert found["E7"] == planner(server, user, "E7").streams()["E7"]


def test_what_is_overlooked_once_is_asked_for(server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages shift when streams come and go: a stream is gone only when it says so itself."""
    plan = planner(server, "all")
    everything = plan.streams()
    names = plan.jetstream.stream_names()
    listed = list(plan.jetstream._listed())
    assert len(listed) > LISTED_FROM
    monkeypatch.setattr(plan.jetstream, "stream_names", lambda: [name for name in names if name != "E9"])
    monkeypatch.setattr(plan.jetstream, "_listed", lambda: [info for info in listed if info.name not in ("E9", "E10")])
    assert plan.streams() == everything
    Streams(server.client_port, "all").delete("E9")
    assert plan.streams().keys() == everything.keys() - {"E9"}


def test_tasks_do_not_grow_with_the_number_of_streams(server: NatsServer) -> None:
    plan = planner(server, "all")
    labels = StreamLabels("S", None, None, Origins())
    spans = [(StreamRange(f"E{number}", "", 1, 3), labels) for number in range(COUNT)]
    tasks = plan.tasks(spans, cores=2)
    assert [len(pieces) for pieces in tasks] == [COUNT // 2] * 2
    assert sorted(piece.span.stream for pieces in tasks for piece in pieces) == sorted(s.stream for s, _ in spans)
    # A large stream is cut; its parts and the small streams make tasks of about the same size.
    big = StreamRange("BIG", "", 1, 400_000)
    tasks = plan.tasks([(big, labels), *spans], cores=2)
    loads = [sum(piece.span.last_seq - piece.span.first_seq + 1 + 2000 for piece in pieces) for pieces in tasks]
    assert len(tasks) > 2
    assert sum(len(pieces) for pieces in tasks) >= COUNT + 1
    assert max(loads) <= 202_000
    assert plan.tasks([], cores=2) == []
