"""What the local page needs besides its history: options, names of hosts, secrets, the log, and problems."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from eyot_daemon.config.read import load_options
from eyot_daemon.monitor.hardware import memory
from eyot_daemon.monitor.page.answers import document, is_own_name
from eyot_daemon.monitor.page.bundle import bundle_name
from eyot_daemon.monitor.page.recent_log import LINE_CHARS_MAX, LINES_MAX, WARNINGS_MAX, RecentLog
from eyot_daemon.monitor.page.redacted_config import redacted_config, without_secrets
from eyot_daemon.monitor.page.report import problems
from eyot_wire.conf import ConfError
from eyot_wire.doctor.report import checks_of
from eyot_wire.status import CertificateStatus, LinkStatus, StatusReport, StoreStatus, SyncReport, SyncStatus


def options(tmp_path: Path, text: str) -> Any:
    file = tmp_path / "eyotd.conf"
    file.write_text(text)
    return load_options(file).options


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("eyot { http { page: true } }", "127.0.0.1", 8222),
        ('eyot { http { page: true } }\nhttp: "0.0.0.0:9000"', "0.0.0.0", 9000),
        ("eyot { http { page: true } }\nhttp_port: 9000", "", 9000),
        ("eyot { http { page: false } }", "", 0),
        ("eyot { http { } }", "", 0),
    ],
)
def test_where_it_is_served(tmp_path: Path, text: str, host: str, port: int) -> None:
    found = options(tmp_path, text)
    assert (found.http_host, found.http_port) == (host, port)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("eyot { http { page: 3 } }", r"eyotd.conf:1:21: key \"page\""),
        (
            "eyot { http { pages: true } }",
            r"eyotd.conf:1:15: key \"pages\": unknown field \"pages\", did you mean \"page\"",
        ),
        ('eyot { http { hosts: ["http://x"] } }', r"eyotd.conf:1:\d+: key \"hosts\": expected names"),
        ("eyot { http: 8222 }", r"eyotd.conf:1:14: key \"http\""),
    ],
)
def test_mistakes_name_file_line_and_key(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfError, match=words):
        options(tmp_path, text)


@pytest.mark.parametrize(
    "host", ["", "localhost", "localhost:8222", "127.0.0.1:1", "[::1]:8222", "10.0.0.7", "gw.example", "a.localhost"]
)
def test_names_of_this_machine(host: str) -> None:
    assert is_own_name(host, ("gw.example",))


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "[", "1.2.3", " "]
)
def test_names_of_others(host: str) -> None:
    assert not is_own_name(host, ("gw.example",))


def test_the_policy_names_the_documents_own_script_and_style() -> None:
    html, policy = document()
    assert html.count(b"<script>") == html.count(b"<style>") == 1
    assert b"<script " not in html
    assert b" style=" not in html
    assert b" on" not in html.partition(b"<body>")[2].partition(b"<script>")[0].replace(b" on the device", b"")
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'; script-src 'sha256-")


def test_secrets_leave_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "eyotd.conf"
    seed = "SUAIBDPBAUTWCWBKIO6XHQNINK5FWJW4OHLXC3HQ2KFE4PEJUA44CNHTC4"
    file.write_text(f"""
        hub_word = "s3cr3t-word"
        copy_of_word: "see s3cr3t-word"
        authorization {{ users: [ {{ user: u, password: $hub_word, permissions: {{ publish: "a.>" }} }}, {{ nkey: UABC }} ] }}
        jetstream {{ key: "s3cr3t-key", store_dir: "/data" }}
        leafnodes {{ remotes: [ {{ urls: ["nats://x:s3cr3t-url@hub:7422"], credentials: "/s3cr3t/file.creds" }} ] }}
        odd: "{seed}", token_file: "/etc/eyot/token", pass: 12345678, n: 12345678
        note: "eyJhbGciOiJIUzI1NiIsInR5cCI6Imp3dCJ9.s3cr3t.sig", hash: "$2a$11$s3cr3t"
    """)
    text = redacted_config(str(file))
    for secret in ("s3cr3t", seed, "12345678"):
        assert secret not in text
    for kept in ("/data", "hub:7422", "a.>", "UABC", "/etc/eyot/token"):
        assert kept in text
    assert "[REDACTED]" in text


def test_a_configuration_that_cannot_be_read_is_not_quoted(tmp_path: Path) -> None:
    file = tmp_path / "eyotd.conf"
    file.write_text("password: s3cr3t {")
    assert "s3cr3t" not in redacted_config(str(file))
    assert f"{file}:1" in redacted_config(str(file))
    assert "cannot be read" in redacted_config(str(tmp_path / "nothing"))
    assert "without a configuration" in redacted_config("")


def test_truth_values_are_no_secrets() -> None:
    assert without_secrets({"token": True, "debug": True, "allow": [True, 1]}) == {
        "token": True,
        "debug": True,
        "allow": [True, 1],
    }


def test_memory_where_the_kernel_shows_it(tmp_path: Path) -> None:
    shown = tmp_path / "meminfo"
    shown.write_text("MemTotal:  512000 kB\nMemAvailable: 100 kB\nHugePages_Total: 0\n")
    assert memory(5, shown).machine_bytes == 512_000 * 1024
    assert memory(5, shown).available_bytes == 102_400
    assert memory(5, tmp_path / "nothing").machine_bytes is None


def test_the_log_is_kept_within_a_bound() -> None:
    recent, log = RecentLog(), logging.Logger("page-test", logging.DEBUG)
    log.addHandler(recent)
    log.error("first")
    for number in range(2 * LINES_MAX):
        log.info("line %d", number)
        log.debug("payload %d", number)
    assert len(recent.lines()) == LINES_MAX
    assert recent.lines()[-1].endswith(f"[INF] line {2 * LINES_MAX - 1}")
    assert not any("payload" in line for line in recent.lines())
    (only,) = recent.warnings()
    assert (only.level, only.text) == ("ERR", "first")
    for number in range(2 * WARNINGS_MAX):
        log.warning("%d %s", number, "x" * 10_000)
    assert len(recent.warnings()) == WARNINGS_MAX
    assert recent.warnings()[0].text.startswith(f"{2 * WARNINGS_MAX - 1} xx")
    assert max(map(len, recent.lines())) == LINE_CHARS_MAX


def test_each_problem_has_its_remedy() -> None:
    link = LinkStatus(
        name="hub", account="A", role="spoke", state="waiting", last_error="refused", remedy="start the hub"
    )
    store = StoreStatus(path="/s", error="No space left on device", free_bytes=0, total_bytes=10)
    lost = SyncStatus(account="A", stream="R", peer="hub", error="not linked", never_arrived=3)
    status = StatusReport(server_name="s", server_id="i", version="1", now="", uptime_s=1.0, store=store)
    sync = SyncReport(server_name="s", now="", synced=False, out=[lost], links_down=[link])
    status.certificates = [CertificateStatus(file="c.pem", trouble="has expired")]
    status.clock_synchronized = False
    found = problems(status, sync, "JetStream storage is failing")
    assert [each.what for each in found] == ["store", "link hub", "R to hub", "certificate c.pem", "clock"]
    assert all(each.remedy for each in found)
    assert "free space" in (found[0].remedy or "")
    well = StatusReport(
        server_name="s",
        server_id="i",
        version="1",
        now="",
        uptime_s=1.0,
        certificates=[CertificateStatus(file="c.pem")],
    )
    assert problems(well, SyncReport(server_name="s", now="", synced=True), None) == []


def test_the_doctor_names_the_gravest_first() -> None:
    link = LinkStatus(
        name="hub", account="A", role="spoke", state="waiting", attempts=3, last_error="refused", remedy="start the hub"
    )
    store = StoreStatus(path="/s", free_bytes=5, total_bytes=100)
    status = StatusReport(
        server_name="s", server_id="i", version="1", now="", uptime_s=1.0, store=store, domain="d", links=[link]
    )
    status.certificates = [
        CertificateStatus(file="old.pem", trouble="has expired: it was valid until 2026"),
        CertificateStatus(file="soon.pem", trouble="expires soon: it is valid until 2027"),
        CertificateStatus(file="good.pem", not_after="2030-01-01T00:00:00Z"),
    ]
    lost = SyncStatus(account="A", stream="R", peer="hub", never_arrived=3)
    found = checks_of(status, SyncReport(server_name="s", now="", synced=False, out=[lost]))
    assert [(each.state, each.name) for each in found] == [
        ("failure", "certificate old.pem"),
        ("failure", "link hub"),
        ("warning", "disk"),
        ("warning", "certificate soon.pem"),
        ("warning", "never arrived"),
        ("ok", "daemon"),
        ("ok", "domain"),
        ("ok", "store"),
        ("ok", "certificate good.pem"),
        ("ok", "replication"),
    ]
    assert all(each.remedy for each in found if each.state != "ok")
    assert (found[1].detail, found[1].remedy) == ("waiting after 3 attempts: refused", "start the hub")


def test_the_bundles_name_is_a_files_name() -> None:
    assert bundle_name('../a b"\r\nc', "2026-11-23T05:05:25.1Z") == "eyot-support-a-b-c-2026-11-23T050525"
    assert bundle_name("...", "2026-11-23T05:05:25Z").startswith("eyot-support-eyot-2026")
