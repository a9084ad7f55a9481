"""A daemon whose store was damaged while it was down: what is damaged is offline and named, everything else is served."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eyot_store.check.main import repair_store
from eyot_store.errors import RESTORE, StoreError
from eyot_store.pages.layout import SEQUENCE_KEY
from eyot_store.pages.pages import Pages
from eyot_wire.doctor.check import Check
from eyot_wire.doctor.installation import installation
from eyot_wire.status import StatusReport
from support.clients.raw_client import RawClient
from support.servers.eyotd import Eyotd

CONFIG = "jetstream { store_dir: %WORKDIR%/js }\n"
PAGE = 4096


def request(client: RawClient, subject: str, body: object = None) -> Any:
    """The answer to a request of JetStream's API."""
    data = b"" if body is None else json.dumps(body).encode()
    client.send(b"SUB in 1\r\nPUB %b in %d\r\n%b\r\nUNSUB 1 1\r\n" % (subject.encode(), len(data), data))
    return answer_in(client)


def answer_in(client: RawClient) -> Any:
    """What comes to the inbox."""
    found = b""
    while b"MSG in" not in found or b"}\r\n" not in found[found.index(b"MSG in") :]:
        more = client.until(b"}\r\n" if b"MSG in" in found else b"MSG in")
        assert more, "the connection has ended"
        found += more
    found = found[found.index(b"MSG in") :]
    return json.loads(found[found.index(b"{") : found.rindex(b"}") + 1])


def publish(client: RawClient, subject: str, payload: bytes, header: bytes = b"") -> Any:
    if header:
        head = b"NATS/1.0\r\n%b\r\n\r\n" % header
        line = b"HPUB %b in %d %d\r\n%b%b\r\n" % (subject.encode(), len(head), len(head) + len(payload), head, payload)
    else:
        line = b"PUB %b in %d\r\n%b\r\n" % (subject.encode(), len(payload), payload)
    client.send(b"SUB in 1\r\n" + line + b"UNSUB 1 1\r\n")
    return answer_in(client)


@pytest.fixture
def stopped(tmp_path: Path) -> Eyotd:
    """A daemon that was stopped, with 300 messages in each of two streams."""
    with Eyotd(CONFIG, tmp_path) as server, RawClient(server.client_port, headers=True) as client:
        for name in "AB":
            assert "error" not in request(
                client, f"$JS.API.STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"]}
            )
            for number in range(300):
                publish(
                    client, f"{name}.x", b"payload %d of %b" % (number, name.encode()) * 10, b"Nats-Msg-Id: %d" % number
                )
    return server


def data_file(server: Eyotd) -> Path:
    return server.workdir / "js" / "eyot" / "data.mdb"


def roots(file: Path) -> list[int]:
    """The roots of the last two commits, the newest first."""
    pages = Pages(file)
    found = [meta.main.root for meta in pages.metas()]
    pages.close()
    return found


def spoil(file: Path, pgno: int) -> None:
    with file.open("r+b") as data:
        data.seek(pgno * PAGE + 10)
        data.write(b"\xff" * 6)


def store_checks(server: Eyotd) -> list[Check]:
    """What `eyot doctor` says of the store."""
    report = msgspec.convert(server.monitor("/eyot/status"), StatusReport)
    return [check for check in installation(report) if check.name == "store"]


def health(server: Eyotd) -> tuple[int, Any]:
    url = f"http://127.0.0.1:{server.monitor_port}/healthz"
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def core_works(server: Eyotd) -> None:
    with RawClient(server.client_port) as one, RawClient(server.client_port) as other:
        one.send(b"SUB core 1\r\nPING\r\n")
        one.until(b"PONG\r\n")
        other.send(b"PUB core 2\r\nhi\r\n")
        assert b"MSG core 1 2" in one.until(b"hi\r\n")


def test_a_stream_with_a_damaged_page_is_offline_and_all_else_is_served(stopped: Eyotd) -> None:
    file = data_file(stopped)
    pages = Pages(file)
    tree = pages.tree(pages.metas()[0].txnid, b"stream:00000001", SEQUENCE_KEY)
    assert tree is not None
    leaf = next(int.from_bytes(page[:8], "little") for page, low, _ in pages.walk(tree) if low)
    pages.close()
    spoil(file, leaf)
    with stopped as server, RawClient(server.client_port, headers=True) as client:
        core_works(server)
        info = request(client, "$JS.API.STREAM.INFO.A")
        assert info["error"]["err_code"] == 10194
        assert f"stream is offline: page {leaf} of its messages is damaged" in info["error"]["description"]
        assert "sequences from " in info["error"]["description"]
        created = request(client, "$JS.API.STREAM.CREATE.A", {"name": "A", "subjects": ["A.>"]})
        assert created["error"]["err_code"] == 10194
        assert request(client, "$JS.API.STREAM.INFO.B")["state"]["messages"] == 300
        assert publish(client, "B.x", b"new")["seq"] == 301
        code, page = health(server)
        assert code == 503
        assert page["error"].startswith("JetStream stream '$G > A' could not be recovered: page")
        status = server.monitor("/eyot/status")["store"]
        assert [line.split(":")[0] for line in status["offline"]] == ["$G/A"]
        assert "$G/A" in server.monitor("/jsz")["offline"]
        assert request(client, "$JS.API.STREAM.DELETE.A")["success"]
        assert "error" not in request(client, "$JS.API.STREAM.CREATE.A", {"name": "A", "subjects": ["A.>"]})
        assert publish(client, "A.x", b"new")["seq"] == 1
        assert health(server)[0] == 200


def test_a_damaged_message_in_the_duplicate_window_does_not_stop_the_start(stopped: Eyotd) -> None:
    file = data_file(stopped)
    data = bytearray(file.read_bytes())
    at = data.index(b"payload 100 of A")
    while at >= 0:  # older copies of its page, too
        data[at] ^= 1
        at = data.find(b"payload 100 of A", at + 1)
    file.write_bytes(data)
    with stopped as server, RawClient(server.client_port, headers=True) as client:
        assert request(client, "$JS.API.STREAM.INFO.A")["state"]["messages"] == 300
        assert publish(client, "A.x", b"again", b"Nats-Msg-Id: 250")["duplicate"]
        assert publish(client, "A.x", b"new", b"Nats-Msg-Id: new")["seq"] == 301
        assert "Stream '$G > A': message 101 is damaged" in server.log()
        assert health(server) == (
            200,
            {"status": "ok", "damaged": ["stream $G/A had 1 damaged message (sequence 101)"]},
        )


def test_core_is_served_where_the_database_cannot_be_opened(stopped: Eyotd) -> None:
    file = data_file(stopped)
    with file.open("r+b") as data:
        data.write(b"\xff" * 2 * PAGE)
    with stopped as server:
        core_works(server)
        code, page = health(server)
        assert code == 503
        assert "JetStream not enabled (10076): neither of the database's two meta pages" in page["error"]
        (check,) = store_checks(server)
        assert check.detail.startswith("not opened: neither of the database's two meta pages can be read")
        assert check.remedy == RESTORE
        assert f"; {check.remedy}. Core NATS is served" in server.log()


def test_an_empty_database_beside_a_journal_is_not_started_silently(stopped: Eyotd) -> None:
    file = data_file(stopped)
    journal = sorted((file.parent / "journal").iterdir())
    for change in (lambda: file.write_bytes(b""), file.unlink):
        change()
        with stopped as server:
            core_works(server)
            code, page = health(server)
            assert code == 503
            assert "journal" in page["error"]
            (check,) = store_checks(server)
            assert check.remedy == f"restore it, or remove {file.parent / 'journal'} to start without it"
        assert sorted((file.parent / "journal").iterdir()) == journal


def test_a_missing_journal_is_told_with_the_repair_that_goes_on_without_it(stopped: Eyotd) -> None:
    journal = data_file(stopped).parent / "journal"
    journal.rename(stopped.workdir / "elsewhere")
    with stopped as server:
        core_works(server)
        (check,) = store_checks(server)
        assert check.remedy == f"restore it, or have `eyot-check --repair {journal.parent}` count them as lost"


def test_the_loss_of_the_last_commit_is_named_and_everything_else_is_served(stopped: Eyotd) -> None:
    """That commit created stream B: its messages are in the journal alone."""
    file = data_file(stopped)
    spoil(file, roots(file)[0])
    with stopped as server, RawClient(server.client_port, headers=True) as client:
        core_works(server)
        assert request(client, "$JS.API.STREAM.INFO.A")["state"]["messages"] == 300
        assert "error" in request(client, "$JS.API.STREAM.INFO.B")
        told = [check.detail for check in store_checks(server) if check.state == "warning"]
        lost = "which the database does not hold any more: 300 messages in the journal are lost"
        assert any(each.endswith(lost) for each in told), told


def test_a_database_that_no_repair_can_read_is_told_with_the_copy(stopped: Eyotd) -> None:
    file = data_file(stopped)
    for root in roots(file):
        spoil(file, root)
    with stopped as server:
        core_works(server)
        (check,) = store_checks(server)
        assert check.detail.startswith("not opened: the database cannot be opened: page ")
        assert check.remedy == RESTORE
    with pytest.raises(StoreError, match=RESTORE):
        repair_store(file.parent, None)
