"""The walks of NATS's documentation (security, activation tokens, signing keys), command by command, with `eyot trust`."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from eyot_cli.trust.store import OperatorStore
from eyot_wire.trust.creds import parse_creds
from eyot_wire.trust.jwt import decode
from eyot_wire.trust.jwt_account import decode_account, decode_activation
from eyot_wire.trust.jwt_rules import Templates
from support.trust.trust_tool import TrustTool


@pytest.fixture
def trust(tmp_path: Path) -> TrustTool:
    return TrustTool(tmp_path / "store")


def walk(trust: TrustTool, text: str, **names: Any) -> str:
    """Run the lines of a walk, which begin with `nsc`; the last one's output."""
    said = ""
    for line in text.strip().splitlines():
        tool, *words = shlex.split(line.strip().format(**names))
        assert tool == "nsc"
        said = trust.run(*words)
    return said


def test_basics(trust: TrustTool) -> None:
    keys = walk(
        trust,
        """
        nsc add operator MyOperator
        nsc edit operator --service-url nats://localhost:4222
        nsc add account MyAccount
        nsc add user MyUser
        nsc add user s --allow-pub "_INBOX.>" --allow-sub q
        nsc add user c --allow-pub q --allow-sub "_INBOX.>"
        nsc describe operator
        nsc describe account
        nsc describe user c
        nsc list keys --show-seeds
        """,
    )
    for name in ("MyOperator", "MyAccount", "MyUser"):
        assert name in keys
    assert parse_creds(trust.creds("MyOperator", "MyAccount", "s").read_text()).seed in keys
    rules = decode(trust.run("describe", "user", "s", "-R").strip()).nats
    assert (rules.pub.allow, rules.sub.allow) == (("_INBOX.>",), ("q",))
    assert trust.json("describe", "operator")["nats"]["operator_service_urls"] == ["nats://localhost:4222"]


def test_streams_and_services(trust: TrustTool, tmp_path: Path) -> None:
    """A public stream, a private one and a private service, each imported by account B."""
    walk(trust, "nsc add operator O\nnsc add account A\nnsc add account B\nnsc add user b")
    a, b = trust.key("account", "A"), trust.key("account", "B")
    file = tmp_path / "activation.jwt"
    walk(
        trust,
        """
        nsc env --account A
        nsc add export --name abc --subject "a.b.c.>"
        nsc add import --src-account {a} --remote-subject "a.b.c.>" --local-subject "abc.>" --account B
        nsc add export --subject "private.abc.*" --private --account A
        nsc generate activation --account A --target-account {b} --subject private.abc.{b} -o {file}
        nsc add import --account B --token {file}
        nsc add export --subject "private.help.*" --private --service --account A
        nsc generate activation --account A --target-account {b} --subject private.help.{b} -o {file}
        nsc add import --account B -u {file} --local-subject private.help --name private.help
        """,
        a=a,
        b=b,
        file=file,
    )
    imports = decode_account(trust.run("describe", "account", "B", "-R").strip()).body.imports or ()
    found = [(each.type, each.subject, each.local_subject, bool(each.token)) for each in imports]
    assert found == [
        ("stream", "a.b.c.>", "abc.>", False),
        ("stream", f"private.abc.{b}", "", True),
        ("service", f"private.help.{b}", "private.help", True),
    ]
    shown = trust.run("describe", "jwt", "-f", file)
    assert f"private.help.{b}" in shown
    assert decode_activation(imports[2].token)[0].iss == a
    assert trust.json("validate", "-A") == {"issues": []}


def test_signing_keys(trust: TrustTool) -> None:
    """An operator's and an account's signing key, made first and added then, each named by its file with -K."""
    walk(trust, "nsc add operator O2")
    made = trust.json("generate", "nkey", "--operator", "--store")["keys"][0]
    walk(trust, "nsc edit operator --sk {key}\nnsc add account A -K {path}", **made)
    assert trust.json("describe", "account")["iss"] == made["key"]
    own = trust.json("generate", "nkey", "--account", "--store")["keys"][0]
    walk(trust, "nsc edit account --sk {key} -K {operator}", key=own["key"], operator=made["path"])
    walk(trust, "nsc add user U -K {path}", **own)
    user = decode(trust.run("describe", "user", "-R").strip())
    assert (user.iss, user.account) == (own["key"], trust.key("account"))


def test_scopes_and_templates(trust: TrustTool) -> None:
    walk(trust, "nsc add operator O\nnsc add account sales\nnsc edit account -n sales --sk generate")
    key = trust.json("describe", "account")["nats"]["signing_keys"][0]
    walk(
        trust,
        """
        nsc edit signing-key --account sales --role team-service --sk {key} --allow-sub "{{{{account-name()}}}}.{{{{tag(team)}}}}.{{{{name()}}}}.>" --allow-pub-response
        nsc add user pam -K team-service --tag team:support
        nsc add user joe -K team-service --tag team:leads
        """,
        key=key,
    )
    scope = decode_account(trust.run("describe", "account", "-R").strip()).scope(key)
    assert scope is not None
    assert scope.template.resp is not None
    for name, expected in (("pam", "sales.support.pam.>"), ("joe", "sales.leads.joe.>")):
        user = decode(trust.run("describe", "user", name, "-R").strip())
        assert Templates(user, "sales", ()).grant(scope.template).sub.allow == (expected,)


def test_all_at_once_and_another_name(trust: TrustTool) -> None:
    trust.run("init", "-n", "shop")
    assert [row["name"] for row in trust.json("list", "accounts")] == ["SYS", "shop"]
    key = trust.key("account", "shop")
    trust.run("rename", "account", "shop", "store")
    assert trust.key("account", "store") == key
    assert trust.json("env")["account"] == "store"
    assert [row["name"] for row in trust.json("list", "users", "-a", "store")] == ["shop"]
    assert trust.creds("shop", "store", "shop").exists()
    folder = trust.folder / "shop" / "accounts"
    assert sorted(each.name for each in folder.iterdir()) == ["SYS", "store"]
    assert sorted(each.name for each in (folder / "store").iterdir()) == ["store.jwt", "users"]
    assert trust.json("validate", "-A") == {"issues": []}
    assert "exists" in trust.refused("rename", "account", "store", "SYS")


def test_changes_wait_for_each_other(trust: TrustTool) -> None:
    """What reads, changes and writes a token holds the operator meanwhile: no change is lost."""
    trust.run("add", "operator", "O")
    trust.run("add", "account", "A")
    holder = OperatorStore(trust.folder / "O")
    holder.lock()
    done = threading.Event()

    def change() -> None:
        other = OperatorStore(trust.folder / "O")
        other.lock()
        done.set()
        other.unlock()

    waiting = threading.Thread(target=change)
    waiting.start()
    assert not done.wait(0.2)
    trust.run("describe", "account")  # reading does not wait
    holder.unlock()
    waiting.join(60)
    assert done.is_set()


@contextmanager
def account_server() -> Iterator[tuple[dict[str, str], str]]:
    """An account server: tokens by account, and its address."""
    held: dict[str, str] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            held[self.path.rpartition("/")[2]] = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._answer(200, b"ok")

        def do_GET(self) -> None:
            token = held.get(self.path.rpartition("/")[2])
            self._answer(404 if token is None else 200, (token or "").encode())

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    try:
        yield held, f"http://127.0.0.1:{httpd.server_port}/jwt/v1"
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()


def test_an_account_server(trust: TrustTool) -> None:
    trust.run("add", "operator", "O", "--sys")
    trust.run("add", "account", "A")
    with account_server() as (held, url):
        trust.run("edit", "operator", "--account-jwt-server-url", url)
        trust.run("push", "-A")
        assert sorted(held) == sorted([trust.key("account", "A"), trust.key("account", "SYS")])
        path = trust.folder / "O" / "accounts" / "A" / "A.jwt"
        assert held[trust.key("account", "A")] == path.read_text()
        trust.run("pull", "-a", "A")
        stranger = TrustTool(trust.folder.parent / "other")
        stranger.run("add", "operator", "X")
        stranger.run("add", "account", "A", "-k", trust.key("account", "A"))
        held[trust.key("account", "A")] = stranger.run("describe", "account", "-R").strip()
        before = path.read_text()
        assert trust.json("pull", "-a", "A")["pulled"] == []
        assert path.read_text() == before, "another operator signed it"
        held.clear()
        assert "answered 404" in trust.refused("pull", "-a", "A")
        assert "nats://" in trust.refused("push", "--prune")


def test_a_managed_operator(trust: TrustTool, tmp_path: Path) -> None:
    """The operator's key is elsewhere: accounts sign themselves until the operator signs them, and come back signed."""
    trust.run("add", "operator", "OP", "--sys")
    file = tmp_path / "OP.jwt"
    file.write_text(trust.run("describe", "operator", "-R"))
    tenant = TrustTool(tmp_path / "tenant")
    tenant.run("add", "operator", "--url", file)
    made = tenant.json("add", "account", "A")
    assert "the account signed itself" in made["warnings"][0]
    tenant.run("add", "user", "U")
    assert tenant.result("validate", "-A").exit_code == 1
    own = tmp_path / "A.jwt"
    own.write_text(tenant.run("describe", "account", "-R"))
    trust.run("import", "account", "--file", own)
    signed = tmp_path / "signed.jwt"
    signed.write_text(trust.run("describe", "account", "A", "-R"))
    tenant.run("import", "account", "--file", signed, "--overwrite")
    assert tenant.json("describe", "account")["iss"] == trust.key("operator")
    assert tenant.json("validate", "-A") == {"issues": []}
    assert "exists already" in tenant.refused("add", "operator", "--url", file)
    tenant.run("add", "operator", "--url", file, "--force")
