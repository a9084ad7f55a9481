"""The command line: Go's flag syntax, what overrides the file, and what is refused."""

from __future__ import annotations

import pytest

from eyot_daemon.config.accounts import AuthorizationOptions
from eyot_daemon.config.args import Arguments, apply_arguments, parse_args
from eyot_daemon.config.flags import UsageError
from eyot_daemon.config.jetstream import JetStreamOptions
from eyot_daemon.config.options import Options


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], Arguments()),
        (["-c", "x.conf"], Arguments(config="x.conf")),
        (["--config=x.conf", "-p", "4333"], Arguments(config="x.conf", port=4333)),
        (["-p=-1", "-a", "127.0.0.1"], Arguments(port=-1, addr="127.0.0.1")),
        (["-p", "-1"], Arguments(port=-1)),
        (["--net", "::1", "--port", "0x10"], Arguments(addr="::1", port=16)),
        (["-DV"], Arguments(debug_trace=True)),
        (["-D", "-V", "-T=false"], Arguments(debug=True, trace=True, logtime=False)),
        (["-js", "-sd", "/x"], Arguments(jetstream=True, store_dir="/x")),
        (["--user", "u", "--pass", "p"], Arguments(user="u", password="p")),
        (["--auth", "t"], Arguments(token="t")),
        (["-n", "me", "-P", "x.pid", "-m", "8222"], Arguments(server_name="me", pid_file="x.pid", http_port=8222)),
        (["-l", "x.log", "--ports_file_dir", "/tmp"], Arguments(log_file="x.log", ports_file_dir="/tmp")),
        (["-sl", "reload=123"], Arguments(signal="reload=123")),
        (["-t", "-c", "x"], Arguments(test_config=True, config="x")),
        (["-v"], Arguments(version=True)),
        (["version"], Arguments(version=True)),
        (["-D", "help"], Arguments(debug=True, help=True)),
        (["--routes", "nats://x:6222"], Arguments(routes="nats://x:6222")),
    ],
)
def test_arguments(argv: list[str], expected: Arguments) -> None:
    assert parse_args(argv) == expected


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["-zz"], "flag provided but not defined: -zz"),
        (["--p"], "flag needs an argument: -p"),
        (["-p", "abc"], 'invalid value "abc" for flag -p: parse error'),
        (["-D=maybe"], 'invalid boolean value "maybe" for -D: parse error'),
        (["---p", "1"], "bad flag syntax: ---p"),
        (["-=1"], "bad flag syntax: -=1"),
        (["foo"], 'unrecognized command: "foo"'),
        (["-D", "foo", "-V"], 'unrecognized command: "foo"'),
    ],
)
def test_bad_command_lines(argv: list[str], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_args(argv)
    assert str(caught.value) == words


def applied(*argv: str, options: Options | None = None) -> Options:
    return apply_arguments(options or Options(), parse_args(argv))


def test_flags_override_the_file() -> None:
    file = Options(port=1, host="h", server_name="file", debug=True, log_file="file.log")
    options = applied("-p", "2", "-a", "a", "-n", "flag", "-D=false", "-l", "flag.log", options=file)
    assert (options.port, options.host, options.server_name) == (2, "a", "flag")
    assert (options.debug, options.log_file) == (False, "flag.log")
    assert applied(options=file) == file


def test_logging_combinations() -> None:
    options = applied("-DVV")
    assert (options.debug, options.trace, options.trace_verbose) == (True, True, True)
    options = applied("-VV")
    assert (options.debug, options.trace, options.trace_verbose) == (False, True, True)


def test_jetstream_flags() -> None:
    assert applied().jetstream is None
    assert applied("-sd", "/x").jetstream is None
    assert applied("-js", "-sd", "/x").jetstream == JetStreamOptions(store_dir="/x")
    file = Options(jetstream=JetStreamOptions(domain="d"))
    assert applied("-sd", "/x", options=file).jetstream == JetStreamOptions(domain="d", store_dir="/x")
    assert applied("-js=false", options=file).jetstream is None


def test_authorization_flags() -> None:
    assert applied("--user", "u", "--pass", "p").authorization == AuthorizationOptions(user="u", password="p")
    assert applied("--auth", "t").authorization == AuthorizationOptions(token="t")
    with pytest.raises(UsageError, match="Cannot have a user/pass and token"):
        applied("--user", "u", "--auth", "t")
    with pytest.raises(UsageError, match="--pass needs --user"):
        applied("--pass", "p")


def test_tls_flags() -> None:
    tls = applied("--tls", "--tlscert", "c", "--tlskey", "k", "--tlscacert", "ca", "--tlsverify").tls
    assert tls is not None
    assert (tls.cert_file, tls.key_file, tls.ca_file, tls.verify) == ("c", "k", "ca", True)
    with pytest.raises(UsageError, match="--tlscert and --tlskey are needed"):
        applied("--tls")


@pytest.mark.parametrize("flag", ["--routes", "--cluster", "--cluster_name", "--cluster_listen", "--cluster_advertise"])
def test_clusters_are_the_hubs_job(flag: str) -> None:
    with pytest.raises(UsageError, match="clusters are the hub's job"):
        applied(flag, "nats://x:6222")


@pytest.mark.parametrize("argv", [["-p", "70000"], ["-m", "-2"], ["-ms", "70000"], ["--client_advertise", "a:b"]])
def test_values_that_cannot_be(argv: list[str]) -> None:
    with pytest.raises(UsageError):
        applied(*argv)


@pytest.mark.parametrize(
    "flag",
    [
        "a",
        "addr",
        "net",
        "p",
        "port",
        "n",
        "name",
        "server_name",
        "P",
        "pid",
        "m",
        "http_port",
        "ms",
        "https_port",
        "c",
        "config",
        "t",
        "sl",
        "signal",
        "client_advertise",
        "ports_file_dir",
        "l",
        "log",
        "T",
        "logtime",
        "s",
        "syslog",
        "r",
        "remote_syslog",
        "D",
        "debug",
        "V",
        "trace",
        "VV",
        "DV",
        "DVV",
        "log_size_limit",
        "max_traced_msg_len",
        "js",
        "jetstream",
        "sd",
        "store_dir",
        "user",
        "pass",
        "auth",
        "tls",
        "tlscert",
        "tlskey",
        "tlsverify",
        "tlscacert",
        "routes",
        "cluster",
        "cluster_name",
        "no_advertise",
        "cluster_advertise",
        "connect_retries",
        "cluster_listen",
        "profile",
        "h",
        "help",
        "v",
        "version",
        "help_tls",
    ],
)
def test_every_flag_of_nats_server_is_understood(flag: str) -> None:
    """In each of Go's forms: one dash or two, with `=` or (unless it is a switch) with the value as the next word."""
    both = [parse_args([f"{dashes}{flag}=1"]) for dashes in ("-", "--")]
    assert both[0] == both[1] != Arguments()
    is_switch = any(value is True for value in (getattr(both[0], name) for name in Arguments.__struct_fields__))
    assert parse_args([f"-{flag}"] if is_switch else [f"-{flag}", "1"]) == both[0]
