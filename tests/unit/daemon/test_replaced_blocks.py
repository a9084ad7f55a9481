"""A later block replaces an earlier one of its name as a whole, as in nats-server. Whoever looks is told what that loses."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from eyot_daemon.config.read import load_options
from eyot_daemon.main import main
from eyot_daemon.process.banner import log_warnings

ENROLLED = """server_name: pump
jetstream { domain: pump }
eyot { device { name: pump, answers: [status] }, http { page: true } }
"""


class Files:
    """A configuration that includes every file of conf.d."""

    def __init__(self, folder: Path) -> None:
        self.main = folder / "eyotd.conf"
        self.main.write_text('listen: "127.0.0.1:4222"\njetstream {}\ninclude "conf.d/*.conf"\n')
        self.conf_d = folder / "conf.d"
        self.conf_d.mkdir()
        self.add("50-enrolled", ENROLLED)

    def add(self, name: str, text: str) -> str:
        path = self.conf_d / f"{name}.conf"
        path.write_text(text)
        return str(path)

    def notes(self) -> list[str]:
        """Return the notes, with file names for paths."""
        found = load_options(self.main, {}).reading
        assert found.warnings == []
        return [note.replace(f"{self.conf_d}/", "").replace(f"{self.main.parent}/", "") for note in found.notes]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def replaced(by: str, key: str, where: str, lost: str) -> str:
    return f'{by}: key "{key}": replaces the block at {where} as a whole, so these keys of it have no effect: {lost}'


@pytest.mark.parametrize(
    ("later", "notes"),
    [
        ("jetstream { max_file: 1G }", [("60.conf:1:1", "jetstream", "50-enrolled.conf:2:1", "domain")]),
        ("\neyot { profile: small }", [("60.conf:2:1", "eyot", "50-enrolled.conf:3:1", "device, http")]),
        # Only the members of a nested block are lost.
        (
            "eyot { device { name: a }, http {} }",
            [("60.conf:1:1", "eyot", "50-enrolled.conf:3:1", "device.answers, http.page")],
        ),
        ("Eyot { profile: small }", [("60.conf:1:1", "Eyot", "50-enrolled.conf:3:1", "device, http")]),
        ("jetstream: enabled", [("60.conf:1:1", "jetstream", "50-enrolled.conf:2:1", "domain")]),
        # Nothing is lost where the later block says all that the earlier one did.
        ("jetstream { domain: other, max_file: 1G }", []),
        ("server_name: other", []),
        ('listen: "127.0.0.1:4223"', []),
    ],
)
def test_a_block_that_is_replaced_is_told_with_both_places_and_what_is_lost(
    files: Files, later: str, notes: list[tuple[str, str, str, str]]
) -> None:
    files.add("60", later)
    assert files.notes() == [replaced(*note) for note in notes]


def test_every_replaced_block_is_told_once_beside_the_one_that_counts(files: Files) -> None:
    files.add("60", "jetstream { max_file: 1G }\n")
    files.add("70", "jetstream { max_mem: 1G }\n")
    assert files.notes() == [
        replaced("70.conf:1:1", "jetstream", "50-enrolled.conf:2:1", "domain"),
        replaced("70.conf:1:1", "jetstream", "60.conf:1:1", "max_file"),
    ]


def test_two_names_of_one_block_and_the_later_file_counts_whatever_its_lines(files: Files) -> None:
    files.add("60", "\n\n\nleafnodes { port: 7422, host: localhost }\n")
    files.add("70", "leaf { port: 7423 }\n")
    assert load_options(files.main, {}).options.leafnodes.port == 7423
    assert files.notes() == [replaced("70.conf:1:1", "leaf", "60.conf:4:1", "host")]


def test_blocks_within_a_block_and_twice_in_one_file(files: Files) -> None:
    files.add("60", "accounts { A { jetstream: enabled, users: [] }\n A { users: [] } }\n")
    assert files.notes() == [replaced("60.conf:2:2", "A", "60.conf:1:12", "jetstream")]


def test_names_have_a_case_and_replace_nothing(files: Files) -> None:
    files.add("60", "accounts { A { users: [] }, a { jetstream: enabled } }\ndefault_js_domain { A: one, a: two }\n")
    assert dict(load_options(files.main, {}).options.default_js_domain) == {"A": "one", "a": "two"}
    assert files.notes() == []


def test_a_block_that_serves_as_a_variable_has_an_effect(files: Files) -> None:
    files.add("60", "limits { domain: pump, max_file: 1G }\njetstream: $limits\n")
    files.add("70", "limits { max_mem: 1G }\njetstream: $limits\n")
    assert files.notes() == [
        replaced("70.conf:2:1", "jetstream", "50-enrolled.conf:2:1", "domain"),
        replaced("70.conf:2:1", "jetstream", "60.conf:2:1", "domain, max_file"),
    ]


def test_the_check_of_a_configuration_shows_it_and_finds_no_mistake(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    path = files.add("60", "jetstream { max_file: 1G }\n")
    assert main(["-t", "-c", str(files.main)]) == 0
    told, valid = capsys.readouterr().err.splitlines()
    assert told.startswith(f'eyotd: warning: {path}:1:1: key "jetstream": replaces the block at {files.conf_d}/50-')
    assert valid.startswith(f"eyotd: configuration file {files.main} is valid")


def test_a_start_logs_it_and_a_reload_only_what_is_new(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    files.add("60", "jetstream { max_file: 1G }\n")
    at_start = load_options(files.main, {}).reading
    log_warnings(at_start)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    caplog.clear()
    files.add("70", "eyot { profile: small }\n")
    log_warnings(load_options(files.main, {}).reading, known=at_start)
    (record,) = caplog.records
    assert record.getMessage().endswith("have no effect: device, http")
