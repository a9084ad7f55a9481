"""No secret is in the configuration of a support bundle, in whatever form it is written."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from eyot_daemon.monitor.page.redacted_config import redacted_config, redacted_text
from eyot_daemon.monitor.process import redacted

#: of a password, seen nowhere else; the characters around it are what passwords hold, too
CORE = "Zq7vKx"
AROUND = ("", "/", "@", ":", "#", "?", "%40", "&", "=", "!", "~", "://", "x@y:")
#: where a password stands: its key, and the text of the value with %s for the password
PLACES = (
    ("password", "%s"), ("pass", "%s"), ("PASSWORD", "%s"), ("token", "%s"), ("key", "%s"), ("ek", "%s"), ("prev_ek", "%s"),
    ("encryption_key", "%s"), ("prev_key", "%s"), ("seed", "%s"), ("jwt", "%s"), ("secret", "%s"), ("cookie", "%s"),
    ("url", "nats-leaf://user:%s@hub:7422"), ("urls", "tls://%s@hub:7422"), ("resolver", "URL(http://u:%s@hub/jwt/)"),
    ("broker", "user:%s@hub:1883"), ("comment", "$2a$11$%s"),
)  # fmt: skip


def _quoted(text: str, style: int) -> str:
    """Write a string as the grammar allows: in one of two kinds of quotes, or escaped byte by byte."""
    if style == 0 and "'" not in text:
        return f"'{text}'"
    if style == 1:
        return '"' + "".join(f"\\x{byte:02x}" for byte in text.encode()) + '"'
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _entry(moments: random.Random, key: str, value: str, folder: Path, number: int) -> str:
    """Write an entry in one of the grammar's ways: by itself, in JSON's form, by a variable, or in an included file."""
    separator = moments.choice((": ", " = ", " "))
    quoted = _quoted(value, moments.randrange(3))
    match moments.randrange(6):
        case 0:
            return f"plain{number} = {quoted}\n{key}{separator}$plain{number}\n"
        case 1:
            (folder / f"part{number}.conf").write_text(f"{key}{separator}{quoted}\n")
            return f"include 'part{number}.conf'\n"
        case 2:
            return f"block{number} {{ '{key}': {quoted}, other: 1 }}\n"
        case 3:
            return f"list{number} [ {{ {key}: {quoted} }}, {{ {key}: [ {quoted} ] }} ]\n"
        case 4:
            return (
                f"{key} {{ inner{number}{separator}{quoted} }}\n" if "%" not in value else f"{key}{separator}{quoted}\n"
            )
        case _:
            return f'"{key}"{separator}{quoted}; // a comment\n'


@pytest.mark.parametrize("seed", range(300))
def test_no_password_is_shown_however_it_is_written(tmp_path: Path, seed: int) -> None:
    moments = random.Random(seed)
    lines = []
    for number in range(4):
        key, form = moments.choice(PLACES)
        password = moments.choice(AROUND) + CORE + moments.choice(AROUND) + CORE[::-1]
        lines.append(_entry(moments, key, form % password, tmp_path, number))
    conf = tmp_path / "eyotd.conf"
    conf.write_text("server_name: kept\n" + "".join(lines))
    shown = redacted_config(str(conf))
    assert json.loads(shown)["server_name"] == "kept", shown
    for part in (CORE, CORE[::-1]):
        assert part not in shown, (conf.read_text(), shown)


def test_passwords_of_the_environment_and_of_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUB", f'"nats-leaf://a:{CORE}@hub"')
    conf = tmp_path / "eyotd.conf"
    conf.write_text(
        f'leafnodes {{ remotes [ {{ url: $HUB }} ] }}\nwebsocket {{ headers {{ Authorization: "Bearer {CORE}" }} }}\n'
    )
    assert CORE not in redacted_config(str(conf))


@pytest.mark.parametrize(
    "line",
    [
        f'connecting to "nats-leaf://a:{CORE}@hub:7422" failed',
        f"nats://a:x/{CORE}@hub and nats://{CORE}@hub",
        f"user $2a$11${CORE}",
        "SUAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" + CORE[:0],
    ],
)
def test_lines_of_the_log(line: str) -> None:
    shown = redacted_text(line)
    assert "[REDACTED]" in shown
    assert CORE not in shown
    assert redacted_text("2 messages for a@b at nats://hub:4222/x") == "2 messages for a@b at nats://hub:4222/x"


def test_a_command_line() -> None:
    for url in (f"nats://u:{CORE}@h", f"nats://u:/{CORE}@h", f"nats://u:@{CORE}@h"):
        assert CORE not in " ".join(redacted(["eyotd", "--routes", url]))
