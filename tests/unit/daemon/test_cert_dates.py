"""The log names the server's own certificates that are out of date, at the start and at a reload."""

from __future__ import annotations

import datetime
import re
import signal
from pathlib import Path

import pytest

from eyot_daemon.config.leaf import LeafNodesOptions, RemoteOptions
from eyot_daemon.config.options import Options, WebsocketOptions
from eyot_daemon.config.tls import TlsOptions
from eyot_daemon.net.cert_dates import out_of_date, own_certificates
from support.servers.eyotd import Eyotd
from support.trust.certificates import Authority

DAY_S = 86_400.0


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


def said(*files: Path) -> list[str]:
    first, *more = ((str(file), "key.pem") for file in files)
    options = Options(tls=TlsOptions(cert_file=first[0], key_file=first[1], more_certs=tuple(more)))
    return [
        f"TLS certificate {file} {trouble}"
        for file, trouble in out_of_date(options, datetime.datetime.now(datetime.UTC))
    ]


@pytest.mark.parametrize(
    ("starts_in", "seconds", "words", "dated"),
    [
        (None, 8 * DAY_S, "", 0.0),
        (None, 7 * DAY_S - 60, "expires soon: it is valid until", 7 * DAY_S - 60),
        (None, -3600.0, "has expired: it was valid until", -3600.0),
        (7200.0, 8 * DAY_S, "is not valid yet: by the clock here it will be from", 7200.0),
    ],
)
def test_dates(authority: Authority, starts_in: float | None, seconds: float, words: str, dated: float) -> None:
    before = datetime.datetime.now(datetime.UTC)
    file, _ = authority.issue("server", starts_in=starts_in, seconds=seconds)
    after = datetime.datetime.now(datetime.UTC)
    lines = said(file)
    if not words:
        assert lines == []
        return
    (line,) = lines
    told = re.fullmatch(rf"TLS certificate {re.escape(str(file))} {words} (\S+ \S+) UTC( on)?", line)
    assert told is not None, line
    date = datetime.datetime.fromisoformat(told[1]).replace(tzinfo=datetime.UTC)
    issued = date - datetime.timedelta(seconds=dated)
    assert (
        before - datetime.timedelta(seconds=2) < issued < after + datetime.timedelta(seconds=2)
    )  # certificates know whole seconds


def test_issuers_that_come_along(authority: Authority, tmp_path: Path) -> None:
    good, expired = (authority.issue(name, seconds=days * DAY_S)[0] for name, days in (("good", 30), ("issuer", -0.5)))
    chain = tmp_path / "chain.pem"
    chain.write_bytes(good.read_bytes() + expired.read_bytes())
    (line,) = said(chain)
    assert line.startswith(f"TLS certificate {chain} holds one of CN=issuer, which has expired: it was valid until ")


def test_one_line_a_file(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "none.pem").write_text("nothing\n")
    files = [authority.issue(name, seconds=60)[0] for name in ("a", "b")]
    lines = said(*files, files[0], tmp_path / "missing.pem", tmp_path / "none.pem")
    assert [line.split()[2] for line in lines] == [*map(str, files), str(tmp_path / "none.pem")]
    assert "cannot be looked at" in lines[-1]


def test_whose_certificates() -> None:
    def tls(name: str, *more: str) -> TlsOptions:
        return TlsOptions(cert_file=name, key_file="key", more_certs=tuple((each, "key") for each in more))

    def remote(block: TlsOptions | None, *, disabled: bool = False) -> RemoteOptions:
        return RemoteOptions(urls=(), tls=block, disabled=disabled)

    remotes = (remote(tls("hub")), remote(None), remote(TlsOptions(ca_file="ca")), remote(tls("off"), disabled=True))
    options = Options(
        tls=tls("clients", "more"),
        websocket=WebsocketOptions(tls=tls("browsers")),
        leafnodes=LeafNodesOptions(port=7422, tls=tls("leafs"), remotes=remotes),
    )
    assert own_certificates(options) == ["clients", "more", "browsers", "leafs", "hub"]
    assert own_certificates(Options(leafnodes=LeafNodesOptions(tls=tls("leafs")))) == []
    assert own_certificates(Options()) == []


def test_at_start_and_reload(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.issue("server", seconds=-60)
    with Eyotd(f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}', tmp_path) as server:
        assert f"[WRN] TLS certificate {certificate} has expired" in server.log()
        for days, words in ((3, "expires soon"), (300, None)):
            authority.issue("server", seconds=days * DAY_S)
            before = len(server.log())
            server.signal(signal.SIGHUP)
            server.wait_log(rf"(?s)\A.{{{before}}}.*Reloaded server configuration")
            since = server.log()[before:]
            assert (f"TLS certificate {certificate} {words}" in since) if words else "TLS certificate" not in since
