"""The configuration grammar beside a real nats-server's: `eyotd -t` accepts the files that `nats-server -t` accepts, and no others.

Where Eyot is stricter (a key without value, a file cut off in the middle) or kinder (a word that looks like half a
date), it is so on purpose, and not in these tables.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.servers.nats_server import debian_version
from support.servers.newer_nats_server import binary
from support.servers.server_process import executable

VALID = [
    "",
    "{}",
    "port: 4222",
    "port = 4222",
    "port 4222",
    "port:4222;debug:true,trace=no",
    '{"port": 4222, "debug": true, "accounts": {"A": {}}}',
    "port: 4222 # comment\ndebug: on // comment\n",
    "max_payload: 1mb\nmax_pending: 64MiB\nmax_control_line: 4kb",
    "PORT: 4222\nport: $PORT",
    "jetstream {\n MEM: 1mb\n max_mem: $MEM\n}",
    "jetstream\n{\n domain: d\n}",
    "jetstream: enabled",
    "jetstream: false",
    'jetstream { max_mem: "1G", max_file: 10GB, store_dir: "/tmp/x" }',
    "server_name: (\nname\n)",
    'server_name: "a\\x41"',
    "server_name: 'raw'",
    "server_name: a\\x41b",
    "server_name: 12ab",
    "server_name: 1.2.3.4",
    "server_name: foo=bar:baz",
    "server_tags: [a, b\n c # comment\n]",
    "server_tags: [\n a,\n b,\n]",
    "authorization { user: a, password: $2a$11$UP3xizk94sWF9SHF/wkklOfBT9jphTGNrhZqz2OHoBdk9yO1kvErG }",
    "authorization { users: [{user: a, password: b, permissions: {publish: x, subscribe: {allow: [y, z], deny: q}}}] }",
    "authorization { users: [{user: a, password: b, permissions: {allow_responses: {max: 3, expires: '1m'}}}] }",
    "accounts { A { users [{user: a, password: b}], exports [{stream: x}] }\n B { imports [{stream: {account: A, subject: x}, prefix: p}] } }",
    "mappings { a.*: b.$1\n c: [{dest: d, weight: 50%}, {dest: e, weight: 50%}] }",
    'leafnodes { port: 7422, remotes [{urls: ["nats://u:p@127.0.0.1:7422"], account: A}] }\naccounts { A {} }',
    'ping_interval: "2m", write_deadline: 5s, lame_duck_duration: "30s"',
    'listen: "127.0.0.1:4222", http: localhost:8222',
    "http_port: 8222, http_base_path: /x",
]

INVALID = [
    "port: 4222 host: x",
    "port: abc",
    'debug: "true"',
    "portt: 4222",
    "port: 1 MB",
    "port: 1.5k",
    "port: -x",
    "port: .5",
    "port: 99999999999999999999",
    "port: $NOT_THERE",
    "port: $P\nP: 1",
    "port:\n 4222",
    "include nowhere.conf",
    "server_tags: [a b]",
    "server_tags: [a,,b]",
    "server_tags: [a, b",
    "jetstream { domain: a domain: b }",
    "jetstream { unknown: 1 }",
    'server_name: "a\\q"',
    "server_name: (abc)",
    "server_name: (\nabc\n",
    "server_name: it's",
    "authorization { users: [{user: a, password: b}, {user: a, password: c}] }",
    "authorization { users: [{user: a, password: b, permissions: {publish: {allow: a, denied: b}}}] }",
    "authorization { users: [{password: b}] }",
    "authorization { user: a, token: b }",
    "accounts { A { users [{user: a, password: b}] }, B { users [{user: a, password: b}] } }",
    "accounts { A { imports [{stream: {account: B, subject: x}}] } }",
    "accounts { A { imports [{stream: {account: B, subject: x}}] }, B {} }",
    "accounts { $G {} }",
    "mappings { a..b: c }",
    "lame_duck_duration: 2m",
    'lame_duck_duration: "5s"',
    'write_deadline: "5"',
    "ping_interval: 30",
    'max_payload: "1MB"',
    "listen: 127.0.0.1",
    "leafnodes { remotes [{url: x, credz: y}] }",
]


def exit_code(command: str, config: Path) -> int:
    done = subprocess.run([command, "-t", "-c", str(config)], capture_output=True, timeout=60, check=False)
    return done.returncode


def eyotd_codes(configs: list[Path]) -> list[int]:
    """Exit codes of `eyotd -t` for many files, from one process: starting Python forty times takes a while."""
    script = (
        "import sys, contextlib, io\nfrom eyot_daemon.main import main\n"
        "for name in sys.argv[1:]:\n"
        "    with contextlib.redirect_stderr(io.StringIO()):\n        code = main(['-t', '-c', name])\n"
        "    print(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, configs)], capture_output=True, text=True, timeout=60, check=True
    )
    return [int(line) for line in done.stdout.split()]


#: Refused by nats-server since 2.10 ("config has no values or is empty"); Eyot starts with its defaults.
EMPTY = ("", "{}")


@pytest.mark.parametrize(("texts", "code"), [(VALID, 0), (INVALID, 1)], ids=["valid", "invalid"])
def test_both_servers_agree(tmp_path: Path, texts: list[str], code: int) -> None:
    configs = []
    if debian_version() >= (2, 10):
        texts = [text for text in texts if text not in EMPTY]
    for index, text in enumerate(texts):
        config = tmp_path / f"{index}.conf"
        config.write_text(text)
        configs.append(config)
    nats_server = executable("nats-server")
    theirs = [exit_code(nats_server, config) for config in configs]
    ours = eyotd_codes(configs)
    disagreements = [
        (text, their, our) for text, their, our in zip(texts, theirs, ours, strict=True) if (their, our) != (code, code)
    ]
    assert disagreements == []


def test_includes(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "main.conf").write_text(
        "port: 4222\ninclude sub/a.conf\njetstream { include './sub/js.conf' }\ndebug: $D\n"
    )
    (tmp_path / "sub/a.conf").write_text('include "b.conf"\ntrace: false\n')
    (tmp_path / "sub/b.conf").write_text("D: true\n")
    (tmp_path / "sub/js.conf").write_text("domain: d\n")
    assert exit_code(executable("nats-server"), tmp_path / "main.conf") == 0
    assert eyotd_codes([tmp_path / "main.conf"]) == [0]


def test_the_digest_of_a_configuration_is_the_same(tmp_path: Path) -> None:
    config = tmp_path / "main.conf"
    config.write_text(
        'server_name: "a<b>&c/ü"\nserver_tags: [b, "a"]\nmax_payload: 1MB\nwrite_deadline: "2s"\n'
        "authorization { timeout: 1.50, users [ {user: u, password: p}, {user: v, password: q} ] }\n"
        "leafnodes { remotes [ {url: 'leaf://h:1'} ], port: -1, authorization { timeout: 2.0 } }\ndebug: true\nX: 7\nping_max: $X\n"
    )
    says = []
    for command in (binary("2.14.6"), executable("eyotd")):
        done = subprocess.run(
            [command, "-t", "-c", str(config)], capture_output=True, text=True, timeout=60, check=True
        )
        says.append((done.stdout + done.stderr).split(" is valid ")[1])
    assert says[0].startswith("(sha256:")
    assert says[0] == says[1]
