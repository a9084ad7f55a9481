"""The fuzzing step of requests: odd requests to JetStream and the system account, odd publishes and acknowledgements.

Every request is answered or refused; none ends in an unexpected exception, and the daemon continues.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from support.clients import hostile
from support.clients.plain_client import PlainClient
from support.links.raw_leaf import Peer
from support.servers.eyotd import Eyotd

CONFIG = """
jetstream { store_dir: "%DIR%/jetstream", max_mem: 64MB, max_file: 256MB }
accounts {
  A { jetstream: enabled, users: [{ user: a, password: a }] }
  SYS { users: [{ user: sys, password: sys }] }
}
system_account: SYS
leafnodes { listen: "127.0.0.1:%LEAF_PORT%", authorization { user: leaf, password: leaf, account: A } }
max_payload: 262144
"""
REQUESTS = 40
#: Steps after which everything is thrown away, so that limits do not refuse all that comes.
NEW_FIXTURE_STEPS = 200

STREAMS = ("S", "M", "NEW", "no such", "S.x", "*")
CONSUMERS = ("pull", "push", "new", "*", ">", "")
STREAM_CONFIG: dict[str, Any] = {
    "name": "S", "subjects": ["s.>"], "storage": "memory", "max_msgs": 500, "allow_direct": True, "allow_msg_ttl": True,
    "allow_rollup_hdrs": True, "allow_msg_schedules": True, "allow_atomic": True, "allow_batched": True, "duplicate_window": 1000000000,
}  # fmt: skip
WORDS: dict[str, tuple[str, ...]] = {
    "INFO": (),
    "STREAM.CREATE.{s}": ("name", "subjects", "retention", "storage", "max_msgs", "max_bytes", "max_age", "discard", "mirror", "sources",
        "republish", "subject_transform", "metadata", "consumer_limits", "placement", "num_replicas", "first_seq", "compression"),
    "STREAM.UPDATE.{s}": ("name", "subjects", "max_msgs", "max_age", "sources", "mirror", "sealed", "republish", "subject_transform"),
    "STREAM.INFO.{s}": ("subjects_filter", "deleted_details", "offset"), "STREAM.NAMES": ("offset", "subject"), "STREAM.LIST": ("offset",),
    "STREAM.PURGE.{s}": ("filter", "seq", "keep"), "STREAM.MSG.GET.{s}": ("seq", "last_by_subj", "next_by_subj", "start_time", "no_hdr"),
    "STREAM.MSG.DELETE.{s}": ("seq", "no_erase"), "STREAM.SNAPSHOT.{s}": ("deliver_subject", "chunk_size", "no_consumers", "jsck", "window_size"),
    "STREAM.RESTORE.{s}": ("config", "state"), "STREAM.DELETE.{s}": (), "STREAM.EYOT_RANGE.{s}": ("first", "last", "max_bytes", "filters"),
    "STREAM.EYOT_FORGET.{s}": ("readers", "reader", "origin"),
    "CONSUMER.CREATE.{s}": ("stream_name", "config", "action", "pedantic"), "CONSUMER.CREATE.{s}.{c}": ("stream_name", "config", "action"),
    "CONSUMER.CREATE.{s}.{c}.s.>": ("stream_name", "config"), "CONSUMER.DURABLE.CREATE.{s}.{c}": ("stream_name", "config"),
    "CONSUMER.INFO.{s}.{c}": (), "CONSUMER.NAMES.{s}": ("offset",), "CONSUMER.LIST.{s}": ("offset",), "CONSUMER.DELETE.{s}.{c}": (),
    "CONSUMER.PAUSE.{s}.{c}": ("pause_until",), "CONSUMER.RESET.{s}.{c}": ("seq",), "CONSUMER.UNPIN.{s}.{c}": ("group",),
    "CONSUMER.MSG.NEXT.{s}.{c}": ("batch", "expires", "no_wait", "max_bytes", "idle_heartbeat", "group", "id", "min_pending", "priority"),
    "DIRECT.GET.{s}": ("seq", "batch", "max_bytes", "multi_last", "up_to_seq", "up_to_time", "next_by_subj", "last_by_subj", "start_time"),
    "DIRECT.GET.{s}.s.1": (), "META.LEADER.STEPDOWN": ("placement",), "SERVER.REMOVE": ("peer",), "ACCOUNT.PURGE.A": (),
}  # fmt: skip
CONSUMER_KEYS = ("durable_name", "name", "ack_policy", "deliver_policy", "opt_start_seq", "opt_start_time", "deliver_subject", "deliver_group",
    "filter_subject", "filter_subjects", "max_deliver", "ack_wait", "backoff", "rate_limit_bps", "flow_control", "idle_heartbeat", "metadata",
    "inactive_threshold", "priority_groups", "priority_policy", "pause_until", "max_ack_pending", "replay_policy", "sample_freq")  # fmt: skip
SYSTEM = (
    "SERVER.PING.{w}",
    "SERVER.PING",
    "ACCOUNT.A.{w}",
    "ACCOUNT.PING.{w}",
    "USER.INFO",
    "SERVER.x.{w}",
    "CLAIMS.UPDATE",
    "CLAIMS.LIST",
)
SYSTEM_WORDS = (
    "VARZ",
    "CONNZ",
    "SUBSZ",
    "LEAFZ",
    "ACCOUNTZ",
    "JSZ",
    "HEALTHZ",
    "STATZ",
    "IDZ",
    "PROFILEZ",
    "EXPVARZ",
    "KICK",
    "INFO",
    "CONNS",
    "X",
)
SYSTEM_KEYS = ("cid", "sort", "auth", "subscriptions", "offset", "limit", "state", "account", "acc", "streams", "consumer", "config", "name",
    "server_name", "tags", "domain", "js-enabled-only", "details", "user", "filter_subject", "test", "raft")  # fmt: skip
LEAF_KEYS = ("name", "cluster", "domain", "version", "headers", "jetstream", "is_hub", "deny_pub", "isolate", "protocol", "remote_account",
    "compression", "compress_mode", "lang", "eyot_silence_s", "nkey", "sig", "jwt", "server_id", "gateway")  # fmt: skip
HEADERS = ("Nats-Msg-Id", "Nats-Expected-Last-Sequence", "Nats-Expected-Last-Subject-Sequence", "Nats-Expected-Stream", "Nats-Rollup", "Nats-TTL",
    "Nats-Expected-Last-Msg-Id", "Nats-Expected-Last-Subject-Sequence-Subject", "Nats-Batch-Id", "Nats-Batch-Sequence", "Nats-Batch-Commit",
    "Nats-Schedule", "Nats-Schedule-Target", "Nats-Schedule-TTL", "Nats-Incr", "Nats-Required-Api-Level", "Nats-Trace-Dest",
    "Nats-Request-Info", "traceparent", "Nats-Stream-Source", "Nats-Schedule-Source", "Nats-Schedule-Time-Zone")  # fmt: skip
TEXTS = ("", "x", "S", "s.>", "s.1", "pull", "*", ">", "a b", ".", "all", "last", "none", "explicit", "memory", "file", "1s", "-1", "0", "1",
    "2026-01-01T00:00:00Z", "@every 1s", "@at 2026-01-01T00:00:00Z", "* * * * * *", "never", "\u00e4\u4e2d", "x" * 300, "9" * 30, "9" * 5000, "-" + "9" * 4000, "S 1 x > s.1 id 5", "S " + "9" * 5000, "sub", "1h")  # fmt: skip
NUMBERS = (0, 1, -1, 2, 5, 1.5, 1000, 2**31, 2**63 - 1, -(2**63), 2**64, 10**30, 1_000_000_000)


class Services:
    """One daemon, asked by a user of an account with JetStream, by one of the system account, and over a leaf link."""

    def __init__(self, folder: Path) -> None:
        self._server = Eyotd(CONFIG.replace("%DIR%", str(folder)), folder)
        self._clients: list[PlainClient] = []
        self._leaf: Peer | None = None
        self._steps = 0

    def start(self) -> None:
        self._server.start()

    def kill(self) -> None:
        self._server.kill()

    def ask(self, seed: int) -> None:
        """Forty odd requests and publishes, then all that came of them, and a PING that is answered."""
        rng = Random(seed)
        if self._steps % NEW_FIXTURE_STEPS == 0:
            self._new_fixture()
        self._steps += 1
        user, system = self._clients
        self._over_the_link(rng)
        for _ in range(REQUESTS):
            client, subject, header, body = self._system(rng) if rng.random() < 0.15 else self._jetstream(rng)
            reply = b"" if rng.random() < 0.1 else b"_INBOX.f "
            if header:
                frame = b"HPUB %b %b%d %d\r\n" % (subject, reply, len(header), len(header) + len(body))
            else:
                frame = b"PUB %b %b%d\r\n" % (subject, reply, len(body))
            (system if client == "sys" else user).send(frame + header + body + b"\r\n")
        try:
            for client in self._clients:
                client.sync()
        finally:
            log = self._server.log()
            assert "Traceback" not in log, log[-6000:]
            assert self._server.running, log[-4000:]

    def _over_the_link(self, rng: Random) -> None:
        """The same from a leaf, and interest that comes and goes; a link that was ended is made anew, with an odd CONNECT."""
        leaf = self._leaf
        if leaf is None or leaf.closed:
            odd = {rng.choice(LEAF_KEYS): _value(rng, 2) for _ in range(rng.randrange(3))}
            leaf = self._leaf = Peer(self._server.leaf_port, user="leaf", **odd)
            leaf.send(b"LS+ _INBOX.>\r\n")
        for _ in range(rng.randrange(REQUESTS // 4)):
            _, subject, header, body = self._jetstream(rng) if rng.random() < 0.8 else self._system(rng)
            reply = rng.choice(
                (
                    b"",
                    b" _INBOX.f",
                    b" _INBOX.f",
                    b" _R_.x.1",
                    b" + _INBOX.f q q2",
                    b" | q",
                    b" $JS.ACK.S.pull.1.1.1.1.1@s.1",
                )
            )
            if header:
                frame = b"HMSG %b%b %d %d\r\n" % (subject, reply, len(header), len(header) + len(body))
            else:
                frame = b"LMSG %b%b %d\r\n" % (subject, reply, len(body))
            leaf.send(frame + header + body + b"\r\n")
            if rng.random() < 0.1:
                interest = (
                    b"LS+ x.%d q 2",
                    b"LS- x.%d",
                    b"LS+ x.%d q -1",
                    b"LS+ $LDS.%d",
                    b"LS+ *.>.%d",
                    b"LS- x.%d q",
                    b"INFO {%d}",
                )
                leaf.send(rng.choice(interest) % rng.randrange(3) + b"\r\n")
        leaf.heard = b""
        leaf.send(b"PING\r\n")
        leaf.until(rb"PONG\r\n")

    def _new_fixture(self) -> None:
        """Both clients, two streams, two consumers."""
        for client in self._clients:
            client.close()
        self._clients = [PlainClient(self._server.client_port, name) for name in ("a", "sys")]
        user, system = self._clients
        for client in self._clients:
            client.send(b"SUB _INBOX.> 1\r\n")
        listed = [json.loads(frame.partition(b"\r\n")[2]) for frame in self._asked(user, "STREAM.NAMES", {})]
        for name in listed[0]["streams"] or ():
            self._asked(user, f"STREAM.DELETE.{name}", {})
        self._asked(user, "STREAM.CREATE.S", STREAM_CONFIG)
        self._asked(
            user, "STREAM.CREATE.M", {"name": "M", "subjects": ["m.>"], "allow_msg_counter": True, "max_msgs": 500}
        )
        for name, more in (("pull", {}), ("push", {"deliver_subject": "_INBOX.push", "idle_heartbeat": 1_000_000_000})):
            config = {"durable_name": name, "ack_policy": "explicit", **more}
            self._asked(user, f"CONSUMER.DURABLE.CREATE.S.{name}", {"stream_name": "S", "config": config})
        system.sync()

    @staticmethod
    def _asked(client: PlainClient, words: str, body: dict[str, Any]) -> list[bytes]:
        text = json.dumps(body).encode()
        client.send(b"PUB $JS.API.%b _INBOX.w %d\r\n%b\r\n" % (words.encode(), len(text), text))
        answers: list[bytes] = []
        while not answers:
            answers = [frame for frame in client.sync() if frame.startswith(b"MSG _INBOX.w ")]
        return answers

    def _jetstream(self, rng: Random) -> tuple[str, bytes, bytes, bytes]:
        way = rng.random()
        if way < 0.25:
            subject = rng.choice((b"s.1", b"s.2", b"s.a.b", b"m.1", b"m.2"))
            return "a", subject, _header(rng), rng.choice((b"", b"1", b"-7", b"x", rng.randbytes(9)))
        if way < 0.35:
            numbers = [rng.choice((b"0", b"1", b"2", b"7", b"x", b"-1", b"9" * 25)) for _ in range(5)]
            subject = b"$JS.ACK.S.%b." % rng.choice((b"pull", b"push")) + b".".join(numbers)
            words = (
                b"",
                b"+ACK",
                b"-NAK",
                b"-NAK ",
                b"+WPI",
                b"+TERM",
                b"+TERM x",
                b"+NXT",
                b"+NXT ",
                b"-NAK 5s",
                b"x",
            )
            return (
                "a",
                subject,
                b"",
                rng.choice(words) + (_body(rng, ("delay", "batch", "expires")) if rng.random() < 0.4 else b""),
            )
        words, keys = rng.choice(tuple(WORDS.items()))
        if words == "STREAM.DELETE.{s}" and rng.random() < 0.9:
            words = "STREAM.INFO.{s}"
        named = words.format(s=rng.choice((*STREAMS[:3], *STREAMS)), c=rng.choice((*CONSUMERS[:3], *CONSUMERS)))
        subject = f"$JS.API.{named}".replace(" ", "_").strip(".").encode()
        return "a", subject, _header(rng) if rng.random() < 0.1 else b"", _body(rng, keys)

    @staticmethod
    def _system(rng: Random) -> tuple[str, bytes, bytes, bytes]:
        words = rng.choice(SYSTEM).format(w=rng.choice(SYSTEM_WORDS))
        keys = (
            tuple(key for key in SYSTEM_KEYS if key != "cid") if words.endswith("KICK") else SYSTEM_KEYS
        )  # kicks nobody
        body = _body(rng, keys)
        if words.startswith("CLAIMS") and rng.random() < 0.8:
            body = b"eyJ0eXAiOiJKV1QiLCJhbGciOiJlZDI1NTE5LW5rZXkifQ." + rng.choice(
                (b"e30.x", b"ey..", b"\xff.\xff", b"W10.e30")
            )
        return rng.choice(("sys", "a")), b"$SYS.REQ." + words.encode(), b"", body


def _header(rng: Random) -> bytes:
    if rng.random() < 0.3:
        return b""
    if rng.random() < 0.1:
        return hostile.damaged(rng, b"NATS/1.0\r\nNats-Msg-Id: 1\r\nNats-TTL: 1s\r\n\r\n")
    lines = [f"{rng.choice(HEADERS)}: {_value(rng, 2)}" for _ in range(rng.randrange(1, 4))]
    return (
        "NATS/1.0\r\n" + "\r\n".join(line.replace("\r", "").replace("\n", "") for line in lines) + "\r\n\r\n"
    ).encode()


def _body(rng: Random, keys: tuple[str, ...]) -> bytes:
    """JSON that has some of `keys`, most of the time; the rest is damaged, deep, no UTF-8, or no JSON."""
    if rng.random() < 0.05:
        return rng.choice((b"", b"{", b"[]", b"null", b"{}{}", b"[" * 5000, b'{"a":' * 5000, rng.randbytes(20)))
    made: dict[str, Any] = {}
    for key in rng.sample(keys, rng.randrange(len(keys) + 1)) if keys else ():
        if key == "config" and rng.random() < 0.8:
            inner = rng.sample(CONSUMER_KEYS, rng.randrange(6))
            made[key] = {name: _value(rng, 3) for name in inner}
        else:
            made[key] = _value(rng, 3)
    text = json.dumps(made, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    return hostile.damaged(rng, text) if rng.random() < 0.15 else text


def _value(rng: Random, depth: int) -> Any:
    way = rng.random()
    if way < 0.4 or not depth:
        return rng.choice(TEXTS)
    if way < 0.75:
        return rng.choice(NUMBERS)
    if way < 0.85:
        return rng.choice((True, False, None))
    if way < 0.93:
        return [_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {
        rng.choice(("name", "subject", "src", "dest", "external", "api", "filter_subject", "x")): _value(rng, depth - 1)
        for _ in range(2)
    }
