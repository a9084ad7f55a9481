"""The cost of one request: the loop's CPU time grows with the size of the request, not with its square.

Every request with a list is played at `n`, `2n` and `4n`. Twice as much takes twice as long; a comparison of all pairs takes four times as
long. The bound lies between, with room for a busy machine: CPU of this thread is counted, the least of three attempts.
"""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from time import thread_time
from typing import Any

import msgspec
import pytest

from eyot_store import StoreOptions
from support.jetstream.consumers import ConsumerFixture

STORE = StoreOptions(inline=True, flush=False, map_size=256 << 20)
N = 1000
#: From n to 4n: 4 is linear, 16 is quadratic.
GROWTH_MAX = 8.5
#: Less than this is not worth a look.
SOME_S = 0.004

Lists = Callable[[int], tuple[str, dict[str, Any]]]


def subjects(shape: str, count: int) -> list[str]:
    return [shape % number for number in range(count)]


def create_stream(shape: str) -> Lists:
    return lambda n: ("STREAM.CREATE.T", {"name": "T", "subjects": subjects(shape, n)})


def create_consumer(shape: str, **config: Any) -> Lists:
    def request(n: int) -> tuple[str, dict[str, Any]]:
        config_ = {"name": "C", "ack_policy": "explicit", "filter_subjects": subjects(shape, n), **config}
        return "CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config_, "action": ""}

    return request


def transforms(kind: str) -> Lists:
    def request(n: int) -> tuple[str, dict[str, Any]]:
        listed = [{"src": f"a.{number}.*", "dest": f"b.{number}.{{{{wildcard(1)}}}}"} for number in range(n)]
        origin = {"name": "O", "subject_transforms": listed}
        return "STREAM.CREATE.T", {"name": "T", kind: origin if kind == "mirror" else [origin]}

    return request


def sources(external: bool) -> Lists:
    def request(n: int) -> tuple[str, dict[str, Any]]:
        listed: list[dict[str, Any]] = [{"name": "S", "filter_subject": f"s.{number}"} for number in range(n)]
        if external:
            listed = [
                {"name": f"E{number}", "external": {"api": f"api.{number}", "deliver": f"deliver.{number}"}}
                for number in range(n)
            ]
        return "STREAM.CREATE.T", {"name": "T", "subjects": subjects("t.%d.>", n), "sources": listed}

    return request


def direct_get(shape: str) -> Lists:
    return lambda n: ("DIRECT.GET.S", {"multi_last": subjects(shape, n)})


REQUESTS: dict[str, Lists] = {
    "stream: literal subjects": create_stream("t.%d"),
    "stream: wildcards": create_stream("t.%d.*.>"),
    "stream: wildcards first": create_stream("*.%d"),
    "stream: refused for the last": lambda n: (
        "STREAM.CREATE.T",
        {"name": "T", "subjects": [*subjects("t.%d", n), f"t.{n - 1}"]},
    ),
    "stream: beside another of as many": lambda n: (
        "STREAM.CREATE.T",
        {"name": "T", "subjects": subjects("s.%d.a.b.c.d", n)},
    ),
    "mirror: transforms": transforms("mirror"),
    "source: transforms": transforms("sources"),
    "sources": sources(external=False),
    "sources elsewhere": sources(external=True),
    "consumer: literal filters": create_consumer("s.%d"),
    "consumer: wildcards": create_consumer("s.%d.*"),
    "consumer: the last of each": create_consumer("s.%d.*", deliver_policy="last_per_subject"),
    "consumer: the last": create_consumer("s.%d.*", deliver_policy="last"),
    "consumer: beginnings": create_consumer("s.%d*", deliver_policy="last_per_subject"),
    "last of many: literals": direct_get("s.%d"),
    "last of many: wildcards": direct_get("s.%d.*"),
    "metadata": lambda n: (
        "STREAM.CREATE.T",
        {"name": "T", "metadata": {f"key{number}": "value" for number in range(n)}},
    ),
    "names": lambda n: ("STREAM.NAMES", {"subject": ".".join(["a"] * n)}),
    "info": lambda n: ("STREAM.INFO.S", {"subjects_filter": ".".join(["*"] * n)}),
    "purge": lambda n: ("STREAM.PURGE.S", {"filter": ".".join(["*"] * n)}),
    "republish": lambda n: (
        "STREAM.CREATE.T",
        {"name": "T", "subjects": ["t"], "republish": {"src": ".".join(["*"] * n), "dest": ".".join(["a"] * n)}},
    ),
    "backoff": create_consumer("s.%d", backoff=[1_000_000_000] * 10, max_deliver=20),
}


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    """The collector's time is what else the process holds, not the request's."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def fixture(tmp_path: Path) -> ConsumerFixture:
    fixture = ConsumerFixture(tmp_path / "store", store_options=STORE)
    fixture.create("S", subjects=["s.>"], allow_direct=True)
    for number in range(200):
        fixture.publish(b"s.%d.x" % number)
    fixture.commit()
    return fixture


#: What else runs on the machine makes a measurement longer, never shorter: the least of so many is taken.
MEASURED_MAX = 12


def cost(fixture: ConsumerFixture, words: str, body: dict[str, Any]) -> float:
    payload = msgspec.json.encode(body)
    begun = thread_time()
    answer = fixture.messages(words, msgspec.Raw(payload))
    fixture.advance(0.001)
    spent = thread_time() - begun
    assert answer or words.startswith("DIRECT")
    fixture.request("STREAM.DELETE.T")
    fixture.request("CONSUMER.DELETE.S.C")
    return spent


@pytest.mark.parametrize("which", REQUESTS)
def test_the_cost_grows_with_what_was_sent(fixture: ConsumerFixture, which: str) -> None:
    make = REQUESTS[which]
    bound = max(min(cost(fixture, *make(N)) for _ in range(3)), SOME_S) * GROWTH_MAX
    costs: list[float] = []
    while len(costs) < MEASURED_MAX and (not costs or min(costs) >= bound):
        costs.append(cost(fixture, *make(4 * N)))
    assert min(costs) < bound, (round(bound * 1000, 1), [round(each * 1000, 1) for each in costs])
