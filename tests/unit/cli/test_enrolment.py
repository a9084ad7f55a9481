"""Enrolment without a network between: what the hub's registrar decides, and what the device believes and keeps."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from eyot_cli.enrol import command, facts
from eyot_cli.enrol.asking import Asker
from eyot_cli.enrol.files import Enrolment
from eyot_cli.enrol.fragment import lines_to_add
from eyot_cli.fleet.pace import LINES_MAX, Pace
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.private_files import write_private
from eyot_cli.trust.keystore import new_pair
from eyot_wire.conf.parser import parse_file
from eyot_wire.device_requests import ANSWERS
from eyot_wire.trust.creds import format_creds, parse_creds
from eyot_wire.trust.enrolment import (
    ENROL,
    MAX_REQUEST,
    RENEW,
    SIGNED_BY_KEY,
    SIGNED_BY_TOKEN,
    EnrolmentAnswer,
    EnrolmentError,
    EnrolmentRequest,
    Token,
    check_answer,
    is_device_name,
    parse_token,
    signed_text,
)
from eyot_wire.trust.jwt import decode
from eyot_wire.trust.nkey import Signer, encode_signature
from support.trust.enrolment import URLS, Hub, Places, target


def device(hub: Hub, **members: Any) -> Asker:
    return Asker(target(hub, **members), new_pair("U").seed, {"model": "box"})


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return Hub(tmp_path / "store")


def refused(asker: Asker, token: Token, name: str = "") -> str:
    with pytest.raises(Failure) as raised:
        asker.enrol(token, name)
    return "\n".join(raised.value.lines)


def test_a_device_gets_a_token_of_the_role(hub: Hub) -> None:
    asker = device(hub)
    answer, claims = asker.enrol(hub.token("pump", "--tag", "site:north", "--expiry", "90d"), "")
    assert answer.name == "pump"
    assert answer.leaf_urls == URLS
    assert claims.sub == asker.key
    assert claims.all_tags == ("site:north",)
    assert claims.exp - claims.iat == 90 * 86400
    described = hub.trust.json("describe", "user", "pump", "-a", "A")
    roles = {
        key["role"]: key["key"]
        for key in hub.trust.json("describe", "account", "A")["nats"]["signing_keys"]
        if isinstance(key, dict)
    }
    assert (described["sub"], described["iss"]) == (asker.key, roles["device"])
    assert [(each.name, each.key, each.facts) for each in hub.records().devices()] == [
        ("pump", asker.key, {"model": "box"})
    ]
    listed = json.loads(hub.trust.run("fleet", "ls", "-a", "A", "--json"))
    assert listed[0]["key"] == asker.key
    assert [line["event"] for line in hub.audit()] == ["token", "enrolled"]


def test_a_token_is_used_once_but_the_same_key_gets_its_answer_again(hub: Hub) -> None:
    token, first, second = hub.token("pump"), device(hub), device(hub)
    first.enrol(token, "")
    assert first.enrol(token, "")[1].sub == first.key
    assert "pump is another device already" in refused(second, token)
    assert hub.records().device("pump").key == first.key  # type: ignore[union-attr]
    assert [line["event"] for line in hub.audit()] == ["token", "enrolled", "again", "refused"]


def test_a_stolen_one_time_token_is_useless_after_the_device_was_revoked(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, stolen, thief = hub.token("pump"), device(hub), device(hub)
    stolen.enrol(token, "")
    monkeypatch.setattr("eyot_cli.fleet.revoke.push_accounts", lambda remote, names: None)
    hub.trust.run("fleet", "revoke", "pump", "-a", "A", "-u", "nats://127.0.0.1:1")
    assert "was revoked" in refused(stolen, token)
    assert "used up, last by pump" in refused(thief, token)
    replaced = device(hub)
    assert replaced.enrol(hub.token("pump"), "")[0].name == "pump"
    assert "was revoked" in refused(stolen, token)
    assert "is enrolled with another key" in not_renewed(stolen, "pump")


def not_renewed(asker: Asker, name: str) -> str:
    """Ask for a renewal without credentials: the connection that carries them is not here."""
    with pytest.raises(Failure) as raised:
        asker._ask(f"{RENEW}.{name}", EnrolmentRequest(key=asker.key), parse_creds(asker.seed), {})
    return "\n".join(raised.value.lines)


def test_a_batch_enrols_as_many_as_it_says(hub: Hub) -> None:
    token = hub.token("pump-*", "--count", "2")
    assert "name this one with --name" in refused(device(hub), token)
    assert "the token is for pump-*, not for valve-1" in refused(device(hub), token, "valve-1")
    first = device(hub)
    for asker, name in ((first, "pump-1"), (device(hub), "pump-2")):
        assert asker.enrol(token, name)[0].name == name
    assert "used up, last by pump-2" in refused(device(hub), token, "pump-3")
    assert first.enrol(token, "pump-1")[0].name == "pump-1"
    assert "pump-2 is another device already" in refused(first, token, "pump-2")


def test_what_is_expired_unknown_or_withdrawn_is_refused(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    token, withdrawn = hub.token("pump", "--valid", "1h"), hub.token("valve")
    hub.trust.run("fleet", "withdraw", "valve", "-a", "A")
    assert "unknown or was withdrawn" in refused(device(hub), withdrawn)
    ahead = time.time() + 3601
    monkeypatch.setattr(time, "time", lambda: ahead)
    assert "expired on" in refused(device(hub), token)
    assert "there is no token" in hub.trust.refused("fleet", "withdraw", "nobody", "-a", "A")
    assert "(expired)" in hub.trust.run("fleet", "tokens", "-a", "A")


def test_renewal_keeps_name_key_and_tags(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    asker, token = device(hub), hub.token("pump", "--tag", "site:north")
    clock = [time.time()]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    _, claims = asker.enrol(token, "")
    clock[0] += 60 * 86400
    kept = parse_creds(asker.seed)
    _, renewed = asker.renew(kept, "pump", token.account, token.operator)
    assert (renewed.sub, renewed.all_tags) == (claims.sub, claims.all_tags)
    assert renewed.exp - claims.exp == 60 * 86400
    assert "is enrolled with another key" in not_renewed(device(hub), "pump")
    assert "no device valve is enrolled" in not_renewed(asker, "valve")


def test_a_request_that_is_sent_again_fills_no_log(hub: Hub) -> None:
    """Who heard a request, or holds a token that is used up, can send as many as the link carries."""
    token = hub.token("pump")
    pair, other = new_pair("U"), new_pair("U")
    registrar = hub.registrar()

    def send(subject: str, key: str, seeds: dict[str, str]) -> EnrolmentAnswer:
        payload = msgspec.json.encode(EnrolmentRequest(key=key))
        signed = signed_text(subject, payload)
        headers = {name: encode_signature(Signer(seed).sign(signed)) for name, seed in seeds.items()}
        return registrar.answer(subject, payload, headers)[0]

    enrol = f"{ENROL}.{token.id}", {SIGNED_BY_KEY: pair.seed, SIGNED_BY_TOKEN: token.credentials.seed}
    stolen = f"{ENROL}.{token.id}", {SIGNED_BY_KEY: other.seed, SIGNED_BY_TOKEN: token.credentials.seed}
    first = send(enrol[0], pair.public, enrol[1])
    assert not first.error
    for _ in range(2 * LINES_MAX):
        assert not send(enrol[0], pair.public, enrol[1]).error
        assert "another device already" in send(stolen[0], other.public, stolen[1]).error
    for _ in range(2 * LINES_MAX):
        assert not send(f"{RENEW}.pump", pair.public, {SIGNED_BY_KEY: pair.seed}).error
    lines = hub.audit()
    events = Counter(line["event"] for line in lines)
    assert events["enrolled"] == 1
    assert events["again"] + events["refused"] == LINES_MAX
    assert 1 <= events["renewed"] <= LINES_MAX


def test_lines_that_were_left_out_are_counted() -> None:
    now = [0.0]
    pace = Pace(lambda: now[0])
    assert [pace.take("a") for _ in range(LINES_MAX + 5)] == [0] * LINES_MAX + [None] * 5
    assert pace.take("b") == 0
    now[0] = 60.0
    assert [pace.take("a"), pace.take("a")] == [5, 0]


def test_requests_that_nobody_signed_change_nothing_and_fill_no_log(hub: Hub) -> None:
    token, pair = hub.token("pump"), new_pair("U")
    subject = f"{ENROL}.{token.id}"
    payload = msgspec.json.encode(EnrolmentRequest(key=pair.public))
    good = {SIGNED_BY_KEY: pair.seed, SIGNED_BY_TOKEN: token.credentials.seed}

    def ask(payload: bytes, seeds: dict[str, str], subject: str = subject) -> str:
        signed = signed_text(subject, payload)
        headers = {name: encode_signature(Signer(seed).sign(signed)) for name, seed in seeds.items()}
        return hub.registrar().answer(subject, payload, headers)[0].error

    other = new_pair("U").seed
    for bad in ({}, good | {SIGNED_BY_KEY: other}, good | {SIGNED_BY_TOKEN: other}):
        assert "did not sign" in ask(payload, bad)
    assert "malformed" in ask(b"[]", good)
    assert "at most" in ask(b" " * (MAX_REQUEST + 1), good)
    assert "did not sign" in ask(payload, good, f"{ENROL}.{new_pair('U').public}")
    assert "no device" in ask(payload, good, f"{RENEW}.../../x")
    assert [line["event"] for line in hub.audit()] == ["token"]
    assert not ask(payload, good)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_damaged_is_refused(hub: Hub, seed: int) -> None:
    """One byte of a signed request, of a header or of the subject changed: nothing is enrolled."""
    chance = random.Random(seed)
    token, pair = hub.token("pump"), new_pair("U")
    subject = f"{ENROL}.{token.id}"
    payload = bytearray(msgspec.json.encode(EnrolmentRequest(key=pair.public, facts={"model": "x"})))
    signed = signed_text(subject, bytes(payload))
    headers = {
        SIGNED_BY_KEY: encode_signature(Signer(pair.seed).sign(signed)),
        SIGNED_BY_TOKEN: encode_signature(Signer(token.credentials.seed).sign(signed)),
    }
    what = chance.choice(("payload", "key", "token"))
    if what == "payload":
        payload[chance.randrange(len(payload))] ^= 1 << chance.randrange(7)
    else:
        name = SIGNED_BY_KEY if what == "key" else SIGNED_BY_TOKEN
        text = headers[name]
        at = chance.randrange(len(text) - 2)
        headers[name] = text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]
    assert hub.registrar().answer(subject, bytes(payload), headers)[0].error
    assert not list(hub.records().devices())


def test_a_crash_at_any_write_leaves_a_request_that_can_be_repeated(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file is written or not, in order: the device that asks again is enrolled, once."""
    killed = set()
    for number in range(8):
        name = f"pump-{number}"
        token, asker = hub.token(name), device(hub)
        left = [number]

        def fails(
            path: Path, data: bytes, *args: Any, left: list[int] = left, number: int = number, **more: Any
        ) -> None:
            if not left[0]:
                killed.add(number)
                raise Failure("killed")
            left[0] -= 1
            write_private(path, data, *args, **more)

        with monkeypatch.context() as patch:
            for module in ("fleet.records", "trust.store", "trust.session", "trust.keystore"):
                patch.setattr(f"eyot_cli.{module}.write_private", fails)
            with suppress(Failure):
                asker.enrol(token, "")
        assert asker.enrol(token, "")[1].sub == asker.key
        assert "another device already" in refused(device(hub), token)
    assert len(list(hub.records().devices())) == 8
    assert killed == set(range(len(killed)))
    assert 2 < len(killed) < 8, "each write was the last one once"


def test_the_device_believes_only_a_whole_chain(hub: Hub, tmp_path: Path) -> None:
    other = Hub(tmp_path / "other")
    token = hub.token("pump")
    foreign = device(other).enrol(other.token("pump"), "")[0]
    for members in (
        ("jwt",),
        ("account_jwt",),
        ("operator_jwt",),
        ("jwt", "account_jwt"),
        ("jwt", "account_jwt", "operator_jwt"),
    ):
        swapped = {name: getattr(foreign, name) for name in members}
        asker = device(hub, instead=lambda answer, swapped=swapped: msgspec.structs.replace(answer, **swapped))
        said = refused(asker, hub.token("p" + "-".join(members)))
        assert "not trusted" in said or "not valid" in said, said
    asker = device(hub)
    answer, _ = asker.enrol(token, "")
    check_answer(answer, asker.key, token.account, token.operator)
    for known in (
        (new_pair("U").public, token.account, token.operator),
        (asker.key, new_pair("A").public, token.operator),
        (asker.key, token.account, new_pair("O").public),
    ):
        with pytest.raises(EnrolmentError):
            check_answer(answer, *known)


def test_tokens_that_are_cut_or_mixed_are_refused(hub: Hub) -> None:
    text = hub.trust.json("fleet", "enrol", "pump", "-a", "A")["tokens"][0]["token"]
    other = hub.trust.json("fleet", "enrol", "valve", "-a", "A")["tokens"][0]["token"]
    assert parse_token(f" {text[:80]}\n{text[80:]} ").claims.name == "enrolment of pump"
    jwt, _, seed = text.rpartition(".")
    for wrong in ("", "x", jwt, text[:-1], seed, f"{other.rpartition('.')[0]}.{seed}", text + text):
        with pytest.raises(EnrolmentError) as raised:
            parse_token(wrong)
        assert seed not in str(raised.value)
    user = hub.trust
    user.run("add", "user", "alice", "-a", "A", "-K", "device")
    creds = parse_creds(user.creds("OP", "A", "alice").read_text())
    with pytest.raises(EnrolmentError):
        parse_token(f"{creds.jwt}.{creds.seed}")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("a/b",), "cannot be a device's name"),
        (("pump.1",), "cannot be a device's name"),
        (("pump-*",), "--count goes with a pattern"),
        (("pump", "--count", "2"), "--count goes with a pattern"),
        (("pump", "--valid", "0"), "--valid must lie ahead"),
        (("pump", "--expiry", "2001-01-01"), "--expiry must lie ahead"),
        (("pump", "--role", "nobody"), "no scoped signing key with the role nobody"),
    ],
)
def test_what_no_token_is_made_for(hub: Hub, words: tuple[str, ...], said: str) -> None:
    assert said in hub.trust.refused("fleet", "enrol", *words, "-a", "A")
    assert not list(hub.records().tokens())


def test_an_account_without_scoped_keys_says_how_to_make_one(hub: Hub) -> None:
    hub.trust.run("add", "account", "B")
    hub.trust.run("edit", "account", "B", "--sk", "generate")
    assert "edit signing-key -a B --sk generate --role device" in hub.trust.refused("fleet", "enrol", "x", "-a", "B")


def test_a_token_opens_nothing_but_its_own_request(hub: Hub) -> None:
    token = hub.token("pump")
    grant = token.claims.nats
    assert grant.pub.allow == (f"{ENROL}.{token.id}",)
    assert grant.sub.allow == (f"_INBOX.{token.id}.>",)
    assert grant.allowed_connection_types == ("STANDARD", "WEBSOCKET")
    assert token.credentials.seed not in repr(token)


def test_a_damaged_key_is_told(places: Places, hub: Hub) -> None:
    places.files.folder.mkdir()
    (places.files.folder / "device.seed").write_text("SUx")
    with pytest.raises(Failure, match="remove the file"):
        places.enrol(target(hub), hub.token("pump"))


def test_names() -> None:
    assert all(map(is_device_name, ("pump-17", "A_b", "9", "x" * 128)))
    assert not any(map(is_device_name, ("", ".", "..", "a.b", "a b", "a*", "a/b", "é", "x" * 129, "a\n")))


# -- the device's files ----------------------------------------------------------------------------------------------


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path / "etc")


def test_what_a_device_keeps(hub: Hub, places: Places) -> None:
    done = places.enrol(target(hub), hub.token("pump"))
    creds = parse_creds(places.files.creds.read_text())
    assert Signer(creds.seed).public_key == decode(creds.jwt).sub == done["key"]
    assert {path.name for path in places.files.folder.iterdir()} == {"device.creds", "enrolment.json"}
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in places.files.folder.iterdir())
    conf = parse_file(places.config).plain()
    assert conf["server_name"] == "pump"
    assert conf["jetstream"] == {"domain": "pump"}
    assert conf["eyot"] == {
        "device": {"name": "pump", "answers": list(ANSWERS)},
        "status": {"subject": "fleet.pump.status", "every": "5m"},
    }
    assert conf["leafnodes"] == {"remotes": [{"urls": list(URLS), "credentials": str(places.files.creds)}]}


def test_a_lost_answer_is_asked_for_again_with_the_same_key(hub: Hub, places: Places) -> None:
    def lose(answer: EnrolmentAnswer) -> EnrolmentAnswer:
        raise Failure("the link broke")

    token = hub.token("pump")
    with pytest.raises(Failure, match="the link broke"):
        places.enrol(target(hub, instead=lose), token)
    assert hub.records().device("pump") is not None
    assert not places.fragment.exists()
    done = places.enrol(target(hub), token)
    assert done["key"] == hub.records().device("pump").key  # type: ignore[union-attr]


def test_enrolling_again_keeps_the_key_unless_a_new_one_is_asked_for(
    hub: Hub, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = places.enrol(target(hub), hub.token("pump"))
    assert places.enrol(target(hub), hub.token("pump"))["key"] == first["key"]
    monkeypatch.setattr("eyot_cli.fleet.revoke.push_accounts", lambda remote, names: None)
    hub.trust.run("fleet", "revoke", "pump", "-a", "A", "-u", "nats://127.0.0.1:1")
    token = hub.token("pump")
    with pytest.raises(Failure, match="--new-key"):
        places.enrol(target(hub), token)
    assert places.enrol(target(hub), token, new_key=True)["key"] != first["key"]


def test_renewals_are_due_in_the_last_third(hub: Hub, places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    places.enrol(target(hub), hub.token("pump", "--expiry", "90d"))
    now = time.time()
    for days, due in ((1, False), (59, False), (61, True), (62, False), (125, True)):
        monkeypatch.setattr(time, "time", lambda days=days: now + days * 86400)
        assert command._renew(target(hub), places.files, None, if_due=True, start=False)["renewed"] is due
    present = places.files.enrolment()
    assert present is not None
    assert present.hub == "nats://hub:4222"
    assert decode(parse_creds(places.files.creds.read_text()).jwt).exp == present.expires


def test_a_device_that_is_not_enrolled_cannot_renew(hub: Hub, places: Places) -> None:
    with pytest.raises(Failure, match="not enrolled"):
        command._renew(target(hub), places.files, None, if_due=False, start=False)


def test_settings_of_the_device_stay(places: Places) -> None:
    own = places.fragment.with_name("10-device.conf")
    own.write_text('server_name: "mine"\njetstream { domain: "pump", max_file: 1G }\n')
    assert [line.split()[0] for line in places.write()] == ["leafnodes", "eyot"]
    places.fragment.unlink()
    own.write_text("jetstream { max_file: 1G }\n")
    with pytest.raises(Failure, match='add `domain: "pump"`'):
        places.write()
    own.write_text('leafnodes { listen: "127.0.0.1:7422" }\n')
    with pytest.raises(Failure, match="leafnodes block of its own"):
        places.write()
    own.write_text(f'leafnodes {{ remotes: [ {{ url: "nats://hub:7422", credentials: "{places.files.creds}" }} ] }}\n')
    assert [line.split()[0] for line in places.write()] == ["server_name:", "jetstream", "eyot"]
    own.write_text(own.read_text().replace("leafnodes", "leaf"))
    assert [line.split()[0] for line in places.write()] == ["server_name:", "jetstream", "eyot"]
    own.write_text("jetstream { \n")
    with pytest.raises(Failure, match="not valid"):
        places.write()


def test_what_a_devices_own_block_lacks_is_named(places: Places) -> None:
    own = places.fragment.with_name("10-device.conf")

    def lacking() -> list[str]:
        places.write()
        return [line.split()[0] for line in lines_to_add(places.config, places.fragment, "pump", places.files.creds)]

    assert lacking() == []  # there is no such block: the fragment has it
    own.write_text("eyot { store { map_size: 1G } }\n")
    assert lacking() == ["device", "status", "include"]
    own.write_text("eyot { device { name: pump } }\n")
    assert lacking() == ["status", "include"]
    # The lines as they are named complete the block.
    named = lines_to_add(places.config, places.fragment, "pump", places.files.creds)
    own.write_text("eyot {\n  device { name: pump }\n" + "".join(f"  {line}\n" for line in named) + "}\n")
    assert lacking() == []
    assert parse_file(places.config).plain()["eyot"] == {
        "device": {"name": "pump"},
        "status": {"subject": "fleet.pump.status", "every": "5m"},
    }


def test_names_and_addresses_cannot_leave_their_quotes(places: Places) -> None:
    places.write(urls=('nats-leaf://hub:7422"] } ] }\nsystem_account: X', "tls://b:1"))
    conf = parse_file(places.config).plain()
    assert set(conf) == {"listen", "server_name", "jetstream", "leafnodes", "eyot"}


def test_facts_leave_out_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    (tmp_path / "etc" / "os-release").write_text('NAME=x\nPRETTY_NAME="Debian 12"\n')
    found = facts.hardware_facts(tmp_path)
    assert found["system"] == "Debian 12"
    assert found["architecture"] == os.uname().machine
    assert "model" not in found
    assert len(found["machine"]) == 32
    assert "0123456789abcdef" not in found["machine"]


@pytest.mark.parametrize("tag", ["<b>north</b>", "site: north", 'a"b', "a`b", "x" * 101])
def test_tags_that_can_be_no_labels_are_refused(hub: Hub, tag: str) -> None:
    assert "cannot be a tag" in hub.trust.refused("fleet", "enrol", "pump", "-a", "A", "--tag", tag)
    assert not json.loads(hub.trust.run("fleet", "tokens", "-a", "A", "--json"))


def test_a_clock_that_went_back_signs_nothing(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device would get a token that has expired, and its own would be spent."""
    asker, token = device(hub), hub.token("pump")
    right = time.time
    monkeypatch.setattr(time, "time", lambda: 86_400.0)
    assert "the hub's clock is wrong: it says 1970-01-02" in refused(asker, token)
    monkeypatch.setattr(time, "time", right)
    answer, claims = asker.enrol(token, "")
    login = parse_creds(format_creds(answer.jwt, asker.seed))
    monkeypatch.setattr(time, "time", lambda: 86_400.0)
    with pytest.raises(Failure, match="the hub's clock is wrong"):
        asker.renew(login, "pump", token.account, token.operator)
    assert claims.exp > right()


def test_a_token_is_due_by_a_clock_that_cannot_be() -> None:
    """A device without a clock would else never renew, and its link would be refused when the token expires."""
    day = 86_400
    present = Enrolment(hub="h", name="pump", key="U", account="A", operator="O", issued=1000 * day, expires=1090 * day)
    due = {at: command._is_due(present, float(at * day)) for at in (1, 999, 1000, 1059, 1061, 1089, 1200)}
    assert due == {1: True, 999: True, 1000: False, 1059: False, 1061: True, 1089: True, 1200: True}
    assert not command._is_due(msgspec.structs.replace(present, expires=0), 1.0)
