"""`eyot --device`: a device's reports asked for at the hub, over the leaf link; with nats-server and Eyot as hub."""

from __future__ import annotations

import asyncio
import json
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import nats
import pytest

from eyot_cli.main import main
from eyot_wire.device_requests import place_of
from support.links.leaf_pair import LEAF, LeafPair
from support.servers.eyotd import Eyotd

DEVICE = 'eyot {{ device {{ name: "{name}", account: ACC, answers: [{answers}] }} }}\n'
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module", params=["2.14.6", "eyotd"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeafPair]:
    config = LEAF + DEVICE.format(name="gateway-17", answers="status, sync, top, support-bundle")
    with LeafPair(request.param, "eyotd", tmp_path_factory.mktemp("device"), leaf_config=config) as pair:
        asyncio.run(_until_linked(pair))
        yield pair


async def _until_linked(pair: LeafPair) -> None:
    client = await nats.connect(pair.hub.client_url("acc"))
    for _ in range(600):
        try:
            await client.request("$EYOT.DEVICE.gateway-17.status", b"", timeout=5)
            break
        except (nats.errors.NoRespondersError, nats.errors.TimeoutError):
            await asyncio.sleep(0.1)
    else:
        raise AssertionError("the leaf node was not linked")
    await client.close()


@pytest.fixture
def eyot(pair: LeafPair, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `eyot` in this process, at the hub; its exit status, stdout and stderr."""

    def run(*words: str, user: str = "acc", device: str = "gateway-17") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["eyot", "-s", pair.hub.client_url(user), "--device", device, *words])
        try:
            code = main()
        except SystemExit as done:
            code = done.code if isinstance(done.code, int) else 1
        return code, *capsys.readouterr()

    return run


def test_a_devices_reports_are_those_of_its_control_socket(pair: LeafPair, eyot: Run) -> None:
    code, out, _ = eyot("status", "--json")
    assert code == 0
    assert json.loads(out)["server_name"] == "leaf-server"
    assert [link["state"] for link in json.loads(out)["links"]] == ["up", "up"]
    code, out, _ = eyot("sync", "--json")
    assert code == 0
    assert "synced" in json.loads(out)
    code, out, _ = eyot("doctor", "--json")
    found = {check["name"]: check["state"] for check in json.loads(out)}
    assert found["daemon"] == "ok"
    assert found["client"] == "skipped"


@pytest.mark.parametrize(
    ("words", "device", "user", "said"),
    [
        (("status",), "gateway-18", "acc", "gateway-18 does not answer"),
        (("status",), "gateway-17", "other", "gateway-17 does not answer"),
        (("status",), "gate.way", "acc", "no name of a device"),
        (("status",), "*", "acc", "no name of a device"),
        (("stream", "ls"), "gateway-17", "acc", "--device is for status, sync, doctor, top and support-bundle"),
        (("pub", "a", "b"), "gateway-17", "acc", "--device is for status, sync, doctor, top and support-bundle"),
    ],
)
def test_what_is_not_answered(words: tuple[str, ...], device: str, user: str, said: str, eyot: Run) -> None:
    code, _, err = eyot(*words, user=user, device=device)
    assert code == 1
    assert said in err
    assert "\\n" not in err  # a line of its own for the remedy


def test_the_top_of_a_device(eyot: Run) -> None:
    code, out, _ = eyot("top", "--once", "--json", "--sort", "subs")
    assert code == 0
    found = json.loads(out)
    assert found["server"]["server_name"] == "leaf-server"
    assert found["per_second"]["in_msgs"] is not None
    assert eyot("top", "--once", "leaf-server")[0] == 2, "two servers are named"


def test_a_support_bundle_of_a_device(eyot: Run, tmp_path: Path) -> None:
    code, out, _ = eyot("support-bundle", "-o", str(tmp_path), "--json")
    assert code == 0
    path = Path(json.loads(out)["file"])
    assert path.parent == tmp_path
    assert path.name.startswith("eyot-support-leaf-server-")
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as tar:
        content = {name.rpartition("/")[2]: tar.extractfile(name) for name in tar.getnames()}
        page, log = content["page.json"], content["log.txt"]
        assert page is not None
        assert log is not None
        assert json.load(page)["status"]["server_name"] == "leaf-server"
        assert b"Server is ready" in log.read()
    code, _, err = eyot("support-bundle", "-o", str(path))
    assert code == 1
    assert "exists" in err


def test_a_request_that_cannot_be_read_is_refused(pair: LeafPair) -> None:
    async def ask() -> list[tuple[str, dict[str, str] | None]]:
        client = await nats.connect(pair.hub.client_url("acc"))
        answers = []
        for report, payload in (("top", b"{"), ("top", b'{"sort": "nothing"}'), ("support-bundle", b"x" * 2000)):
            answer = await client.request(f"$EYOT.DEVICE.gateway-17.{report}", payload, timeout=10)
            answers.append((report, answer.headers))
        await client.close()
        return answers

    for report, headers in asyncio.run(ask()):
        assert headers is not None, report
        assert headers["Eyot-Refused"] == "the request cannot be read"


def test_the_bundle_at_the_control_socket_needs_no_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    control = tmp_path / "control.sock"
    config = f'eyot {{ control_socket: "{control}" }}\n'
    with Eyotd(config, tmp_path), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["eyot", "--control", str(control), "support-bundle", "-o", str(tmp_path / "b.tgz")])
        assert main() == 0
    with tarfile.open(tmp_path / "b.tgz") as tar:
        assert {name.rpartition("/")[2] for name in tar.getnames()} >= {"page.json", "jsz.json", "log.txt"}


def test_a_large_report_comes_in_parts(tmp_path: Path) -> None:
    config = LEAF + DEVICE.format(name="big", answers="status")
    with LeafPair("eyotd", "eyotd", tmp_path, leaf_config=config) as pair:
        pieces = asyncio.run(_pieces(pair.leaf.client_url("acc"), 200))
    assert len(pieces) > 1
    assert len(json.loads(b"".join(pieces))["streams"]) == 200


async def _pieces(url: str, streams: int) -> list[bytes]:
    """The parts of a report about so many streams."""
    client = await nats.connect(url)
    js = client.jetstream(timeout=60)
    for number in range(streams):
        await js.add_stream(name=f"S{number:04}" + "x" * 200, subjects=[f"s{number}"], storage="memory")
    inbox = client.new_inbox()
    sub = await client.subscribe(inbox)
    await client.publish("$EYOT.DEVICE.big.status", b"", reply=inbox)
    pieces: list[bytes] = []
    count = 1
    while len(pieces) < count:
        message = await sub.next_msg(timeout=60)
        assert message.headers is not None
        number, count = place_of(message.headers["Eyot-Part"])
        assert number == len(pieces) + 1
        pieces.append(message.data)
    await client.close()
    return pieces


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ('name: "a.b"', "one token"),
        ("name: a, answers: [status, secrets]", "secrets is none of status, sync, top, support-bundle"),
        ("name: a, account: NOBODY", "NOBODY"),
        ("", "needs a name"),
    ],
)
def test_a_configuration_that_names_nothing(
    block: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "eyotd.conf"
    config.write_text(f"eyot {{ device {{ {block} }} }}\n")
    from eyot_daemon.main import main as eyotd  # `launch` changes what belongs to the whole process

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["eyotd", "-t", "-c", str(config)])
        try:
            code = eyotd()
        except SystemExit as done:
            code = done.code
    assert code
    assert said in "".join(capsys.readouterr())
