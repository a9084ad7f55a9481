"""What fails is told by `eyot` in one line, with the next step and exit status 1; a mistake on the command line has exit status 2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.servers.eyot_tool import Tool
from support.servers.eyotd import Eyotd
from support.servers.newer_nats_server import NewerNatsServer
from support.servers.server_process import ServerProcess

CONFIG = """
server_name: device
jetstream { store_dir: "%WORKDIR%/js", domain: device }
accounts {
  APP {
    jetstream: enabled
    users: [
      { user: app, password: app }
      { user: denied, password: denied, permissions: {
        publish: { deny: ["$JS.API.>", "$KV.>", "$O.>", "Secret.>"] }, subscribe: { deny: ["Secret.>"] } } }
    ]
  }
  PLAIN { users: [ { user: plain, password: plain } ] }
}
"""
NO_STREAM = "stream not found (10059): eyot stream ls lists those that there are"
NO_CONSUMER = "consumer not found (10014): eyot consumer ls STREAM lists those that there are"
SEQUENCES = "eyot stream info shows the first and last sequence"
NO_KV = "there is no bucket X: eyot kv ls lists the buckets, eyot kv add X makes it"
NO_OBJECTS = "there is no bucket X: eyot object ls lists the buckets, eyot object add X makes it"
NO_OBJECT = "O has no such object: eyot object ls O lists them"
REVISIONS = "shows the revisions that are kept"
NO_JETSTREAM = "JetStream not enabled for account (10039): the account's configuration lacks jetstream: enabled"

#: a command of the user app, and what it says
FAILURES = {
    "stream info X": NO_STREAM,
    "stream edit X --max-msgs 3": NO_STREAM,
    "stream get X 1": NO_STREAM,
    "stream purge X -f": NO_STREAM,
    "stream rm X -f": NO_STREAM,
    "stream rmm X 1 -f": NO_STREAM,
    "stream subjects X": NO_STREAM,
    "stream view X": NO_STREAM,
    "stream get S 99": f"no message found (10037): {SEQUENCES}",
    "stream get S --last-for s.none": f"no message found (10037): {SEQUENCES}",
    "stream add S --subjects t.>": "stream name already in use with a different configuration (10058): eyot stream edit ",
    "stream add T --subjects s.a": "subjects overlap with an existing stream (10065): eyot stream ls ",
    "consumer add X C": NO_STREAM,
    "consumer info X C": NO_STREAM,
    "consumer ls X": NO_STREAM,
    "consumer report X": NO_STREAM,
    "consumer rm X C -f": NO_STREAM,
    "consumer pause X C 1h": NO_STREAM,
    "consumer next X C": NO_STREAM,
    "consumer info S X": NO_CONSUMER,
    "consumer pause S X 1h": NO_CONSUMER,
    "consumer resume S X": NO_CONSUMER,
    "consumer rm S X -f": NO_CONSUMER,
    "consumer next S X": "S has no consumer X: eyot consumer ls S lists them",
    "kv info X": NO_KV,
    "kv ls X": NO_KV,
    "kv get X k": NO_KV,
    "kv put X k v": NO_KV,
    "kv create X k v": NO_KV,
    "kv update X k v 3": NO_KV,
    "kv del X k": NO_KV,
    "kv del X -f": NO_KV,
    "kv purge X k -f": NO_KV,
    "kv history X k": NO_KV,
    "kv watch X -n 1": NO_KV,
    "kv add B --history 5": "the bucket B is there with another configuration: eyot kv info B shows it",
    "kv get B none": "B has no key none: eyot kv ls B lists the keys",
    "kv history B none": "B has no key none: eyot kv ls B lists the keys",
    "kv get B gone": f"gone is deleted (revision 3): eyot kv history B gone {REVISIONS}",
    "kv get B k --revision 99": f"B has no revision 99: eyot kv history B k {REVISIONS}",
    "kv get B k --revision 2": f"revision 2 is not one of k: eyot kv history B k {REVISIONS}",
    "kv create B k v": "k has a value (revision 1): eyot kv update B k VALUE 1 changes it",
    "kv update B k v 99": "wrong last sequence: 1 (10071): eyot kv history B k shows the last revision",
    "kv del B": "standard input is no terminal, so nobody can be asked: --force goes on without a question",
    "object info X": NO_OBJECTS,
    "object info X n": NO_OBJECTS,
    "object ls X": NO_OBJECTS,
    "object get X n": NO_OBJECTS,
    "object put X file.txt": NO_OBJECTS,
    "object del X n -f": NO_OBJECTS,
    "object del X -f": NO_OBJECTS,
    "object seal X -f": NO_OBJECTS,
    "object info O none": NO_OBJECT,
    "object get O none": NO_OBJECT,
    "object get O gone": NO_OBJECT,
    "object del O none -f": NO_OBJECT,
    "object put O none.txt": "none.txt: No such file or directory",
    "object get O file.txt -O none/x": "none/x: No such file or directory",
    "backup X copy": NO_STREAM,
    "pub none 1 --ack": "no stream stores none: eyot stream add NAME --subjects none makes one",
    "request none 1": "no responders on none: no service of this account listens there",
}
MISTAKES = (
    *(
        "stream info a.b",
        "stream add a.b",
        "stream rm * -f",
        "consumer add S a.b",
        "consumer info S >",
        "backup a.b copy",
    ),
    *("stream get S", "stream get S zero", "stream rmm S 0", "consumer pause S C soon", "consumer info S"),
    *("kv add a.b", "kv get B *", "kv get B a..b", "kv put B a..b v", "kv get B k --revision 0", "kv update B k v x"),
    *("object add a.b", "object put O -", "object put O .", "object get O", "pub a.* 1", "pub a..b 1", "request a.> 1"),
    *("sub a..b", "reply a..b 1", "stream none"),
)
#: a command of a user without permissions, and the subject that is named
DENIED = {
    "stream info S": "$JS.API.STREAM.INFO.S",
    "consumer next S C": "$JS.API.CONSUMER.MSG.NEXT.S.C",
    "kv get B k": "$JS.API.STREAM.MSG.GET.KV_B",
    "kv put B k v": "$KV.B.k",
    "object put O file.txt": "$JS.API.STREAM.INFO.OBJ_O",
    "pub Secret.a 1": "Secret.a",
    "pub Secret.a 1 --ack": "Secret.a",
    "request Secret.a 1": "Secret.a",
    "request Secret.a 1 --replies 0": "Secret.a",
    "sub Secret.a": "Secret.a",
    "reply Secret.a 1": "Secret.a",
}
WITHOUT_JETSTREAM = (
    *("stream info S", "consumer next S C", "kv ls", "kv get B k", "kv put B k v", "kv history B k"),
    *("object ls O", "object put O file.txt", "pub s.a 1 --ack"),
)


@pytest.fixture(scope="module", params=[Eyotd, NewerNatsServer], ids=["eyotd", "nats-server"])
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with request.param(CONFIG, tmp_path_factory.mktemp("server")) as server:
        folder = tmp_path_factory.mktemp("app")
        (folder / "file.txt").write_text("x")
        app = Tool(server, folder)
        for line in ("stream add S --subjects s.>", "consumer add S C", "kv add B --history 3", "kv put B k v",
                     "kv put B gone v", "kv del B gone", "pub s.a 1 --ack", "object add O", "object put O file.txt",
                     "object put O file.txt --name gone", "object del O gone -f"):  # fmt: skip
            app(*_as("app", line))
        yield server


@pytest.fixture
def eyot(running: ServerProcess, tmp_path: Path) -> Tool:
    (tmp_path / "file.txt").write_text("x")
    return Tool(running, tmp_path)


def _as(user: str, line: str) -> tuple[str, ...]:
    return ("--user", user, "--password", user, *line.split())


def one_line(eyot: Tool, user: str, line: str) -> str:
    """Run a command that fails, and return what it says after `eyot: `."""
    done = eyot.run(*_as(user, line))
    told = done.stderr.decode()
    assert (done.returncode, done.stdout, told.count("\n")) == (1, b"", 1), (line, done)
    assert told.startswith("eyot: "), (line, told)
    return told.removeprefix("eyot: ").rstrip("\n")


def test_what_is_missing_is_named_with_the_next_step(eyot: Tool) -> None:
    told = {line: one_line(eyot, "app", line) for line in FAILURES}
    assert {line: text for line, text in told.items() if not text.startswith(FAILURES[line])} == {}


def test_mistakes_on_the_command_line_have_a_status_of_their_own(eyot: Tool) -> None:
    statuses = {line: eyot.run(*_as("app", line)).returncode for line in MISTAKES}
    assert statuses == dict.fromkeys(MISTAKES, 2)


def test_what_a_user_may_not_do_is_told_at_once(eyot: Tool) -> None:
    told = {line: one_line(eyot, "denied", line) for line in DENIED}
    for line, subject in DENIED.items():
        action = "Subscription" if line.split()[0] in ("sub", "reply") else "Publish"
        assert told[line] == (
            f'Permissions Violation for {action} to "{subject}": name another login by --user, --creds, --nkey or --context, '
            "or give this one the permission"
        ), line


def test_an_account_without_jetstream_is_told_so(eyot: Tool) -> None:
    assert {line: one_line(eyot, "plain", line) for line in WITHOUT_JETSTREAM} == dict.fromkeys(
        WITHOUT_JETSTREAM, NO_JETSTREAM
    )


def test_a_domain_that_cannot_be_reached_and_a_wrong_password(eyot: Tool) -> None:
    elsewhere = "no responders on $JS.elsewhere.API: domain elsewhere cannot be reached, or this account may not use it"
    for line in ("stream ls", "kv get B k", "kv put B k v", "kv history B k", "object ls O", "consumer next S C"):
        assert one_line(eyot, "app", f"--domain elsewhere {line}").startswith(elsewhere), line
    wrong = one_line(eyot, "nobody", "stream ls")
    assert wrong.endswith("Authorization Violation: --user, --creds, --nkey or --context names who logs in")
