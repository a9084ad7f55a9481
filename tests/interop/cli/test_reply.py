"""`eyot reply` in this process, asked by nats-py."""

from __future__ import annotations

import ast
import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

import nats
import pytest
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

from eyot_cli.main import main
from support.servers.eyotd import Eyotd

#: Of everything here, seconds.
LIMIT_S = 60


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Eyotd]:
    with Eyotd("server_name: device", tmp_path_factory.mktemp("reply")) as running:
        yield running


class Requests:
    """Requests that wait until somebody answers."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, *asked: tuple[str, bytes]) -> list[Msg]:
        async def run() -> list[Msg]:
            client = await nats.connect(self._url, allow_reconnect=False)
            try:
                return [await self._ask(client, subject, body) for subject, body in asked]
            finally:
                await client.close()

        return asyncio.run(asyncio.wait_for(run(), LIMIT_S))

    async def _ask(self, client: nats.NATS, subject: str, body: bytes) -> Msg:
        while True:
            try:
                return await client.request(subject, body, timeout=LIMIT_S, headers={"Asked": "yes"})
            except NoRespondersError:  # `eyot reply` is about to subscribe
                await asyncio.sleep(0.02)


Asking = Callable[..., tuple[int, str, str]]
Replying = Callable[..., AbstractContextManager[Requests]]


@pytest.fixture
def replying(daemon: Eyotd, monkeypatch: pytest.MonkeyPatch) -> Replying:
    """Runs `eyot reply` in a thread while the block asks; it ends by --count."""

    @contextmanager
    def run(*arguments: str) -> Iterator[Requests]:
        monkeypatch.setattr(sys, "argv", ["eyot", "-s", daemon.client_url(), "reply", *arguments])
        codes: list[int] = []
        thread = threading.Thread(target=lambda: codes.append(main()), daemon=True)
        thread.start()
        yield Requests(daemon.client_url())
        thread.join(LIMIT_S)
        assert codes == [0]

    return run


def test_an_echo_with_its_headers(replying: Replying) -> None:
    with replying("echo.>", "--count", "2", "--sleep", "1ms") as ask:
        first, second = ask(("echo.a", b"one"), ("echo.b", b"\xff\x00"))
    assert (first.data, first.headers) == (b"one", {"Asked": "yes", "NATS-Reply-Counter": "0"})
    assert (second.data, second.headers) == (b"\xff\x00", {"Asked": "yes", "NATS-Reply-Counter": "1"})


def test_a_full_disk_below_its_output_ends_it(
    daemon: Eyotd, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """nats-py drops what a callback raises: the command would stay, and answer nobody."""
    monkeypatch.setattr(sys, "argv", ["eyot", "-s", daemon.client_url(), "reply", "full.>"])
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(main()), daemon=True)

    async def publish() -> None:
        client = await nats.connect(daemon.client_url(), allow_reconnect=False)
        while thread.is_alive():
            await client.publish("full.x", b"")
            await asyncio.sleep(0.02)
        await client.close()

    with open("/dev/full", "w") as full, monkeypatch.context() as instead:
        instead.setattr(sys, "stdout", full)
        thread.start()
        asyncio.run(asyncio.wait_for(publish(), LIMIT_S))
        with suppress(OSError):
            full.close()
    assert codes == [1]
    assert capfd.readouterr().err == "eyot: No space left on device\n"


def test_a_text_from_a_template(replying: Replying) -> None:
    with replying("text", "{{.Count}}: {{ Request }}, {{Random 5 5}}", "-H", "Id:{{UUID}}", "-n", "2") as ask:
        first, second = ask(("text", b"{{Count}}"), ("text", b"b"))
    assert first.data.startswith(b"0: {{Count}}, "), "what a request holds is no template"
    assert second.data.startswith(b"1: b, ")
    assert len(second.data) == len(b"1: b, ") + 5
    assert first.headers is not None
    assert second.headers is not None
    assert len({first.headers["Id"], second.headers["Id"]}) == 2


def test_a_command_whose_words_stay_words(replying: Replying) -> None:
    program = (
        "import os, sys; print((sys.argv[1:], *map(os.environ.get, ('NATS_REQUEST_SUBJECT', 'NATS_REQUEST_BODY'))))"
    )
    words = f'{sys.executable} -c "{program}" {{{{1}}}} x{{{{Request}}}} "two words" {{{{Random 3 3}}}}'
    with replying("weather.>", "--command", words, "-n", "1") as ask:
        (answer,) = ask(("weather.london", b"'; rm -rf / \"a b"))
    ((one, request, two, random_text), subject, body) = ast.literal_eval(answer.data.decode())
    assert (one, request, two, len(random_text)) == ("london", "x'; rm -rf / \"a b", "two words", 3)
    assert (subject, body) == ("weather.london", "'; rm -rf / \"a b")
    assert answer.headers is None


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (f"{sys.executable} -c 'import sys; print(7); sys.exit(3)'", "exit status 3"),
        ("/nowhere/program", "No such file or directory"),
        (f"{sys.executable} -c 'import time; time.sleep(600)'", "not done in 0.2 s"),
    ],
    ids=["status", "missing", "slow"],
)
def test_a_command_that_fails(command: str, why: str, replying: Replying, capfd: pytest.CaptureFixture[str]) -> None:
    timeout = "0.2s" if "sleep" in command else "60s"
    with replying("fails", "--command", command, "-n", "1", "--timeout", timeout) as ask:
        (answer,) = ask(("fails", b"x"))
    assert answer.headers is not None
    assert answer.headers["Nats-Service-Error-Code"] == "500"
    assert why in answer.headers["Nats-Service-Error"]
    assert answer.data == (b"7\n" if "status" in why else b"")
    assert why in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["{{Hostname}}"], "{{Hostname}} is no function"),
        (["{{1}}"], "{{1}} is no function"),
        (["-H", "A:{{Random 5}}"], "{{Random 5}} is no function"),
        (["--command", "echo {{.Body}}"], "{{.Body}} is no function"),
        (["--command", "echo 'open"], "No closing quotation"),
        (["a", "--echo"], "exclude each other"),
    ],
)
def test_mistakes(
    arguments: list[str], why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["eyot", "reply", "subject", *arguments])
    assert main() == 2
    assert why in " ".join(capsys.readouterr().err.split())


@pytest.fixture
def asking(daemon: Eyotd, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Asking:
    """Runs `eyot request` beside so many responders, which answer with their numbers."""

    def run(*words: str, responders: int = 2) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["eyot", "-s", daemon.client_url(), "request", "who", "?", *words])

        async def respond() -> int:
            clients = [await nats.connect(daemon.client_url()) for _ in range(responders)]
            try:
                for number, client in enumerate(clients):

                    async def answer(request: Msg, number: int = number) -> None:
                        await request.respond(b"%d" % number)

                    await client.subscribe("who", cb=answer)
                    await client.flush()
                return await asyncio.to_thread(main)
            finally:
                for client in clients:
                    await client.close()

        code = asyncio.run(asyncio.wait_for(respond(), LIMIT_S))
        return code, *capsys.readouterr()

    return run


def test_answers_of_several(asking: Asking) -> None:
    code, out, err = asking("--replies", "2", "--count", "3", "--timeout", "60s")
    assert (code, err) == (0, "")
    assert sorted(out.split()) == ["0", "0", "0", "1", "1", "1"]


def test_several_answers_where_nobody_responds(asking: Asking) -> None:
    assert asking("--replies", "2", responders=0) == (
        1,
        "",
        "eyot: no responders on who: no service of this account listens there\n",
    )
