"""Random operations on JetStream: a seed decides a whole conversation.

Most operations are valid, because only accepted ones have effects; each may have one or two invalid members.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any, ClassVar

from support.jetstream.differential import Ack, Operation, Quiet, Step
from support.jetstream.members import ACKS, CONSUMER_MEMBERS, FAR, LONG_AGO, PULL_MEMBERS, STREAM_MEMBERS, Members, S
from support.servers.newer_nats_server import LEVEL_OF_NOBODY

CONSUMERS = ("c1", "c2", "c3")


class Talker:
    """Draws a conversation of `length` steps. Other scenarios (`scenarios.py`) say other things about other streams."""

    streams: tuple[str, ...] = ("A", "B", "C")
    tokens: tuple[str, ...] = ("a", "b", "c.d", "c.e", "f")
    #: Of each kind of saying how much, by its name.
    weights: ClassVar[dict[str, int]] = {
        "create": 3, "update": 6, "publish": 30, "consumer": 9, "pull": 16, "ack": 14, "message": 5, "direct": 8, "remove": 5,
        "ask_stream": 6, "ask_consumer": 6, "lists": 2, "batch": 5, "odd": 1,
    }  # fmt: skip

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        #: Who talks, as fields of CONNECT.
        self.connect: dict[str, str] = {}
        self.configs: dict[str, dict[str, Any]] = {}
        self.consumers: dict[tuple[str, str], dict[str, Any]] = {}
        self.batches: dict[str, int] = {}
        self.published = 0
        self.wild = self.random.choice((0.05, 0.15, 0.4))

    def steps(self, length: int) -> list[Step]:
        steps: list[Step] = self.beginning()
        kinds, weights = [getattr(self, name) for name in self.weights], list(self.weights.values())
        while len(steps) < length:
            kind = self.random.choices(kinds, weights)[0]
            step = kind()
            steps.append(step)
            if kind in (self.publish, self.ack, self.consumer, self.update, self.remove) and any(
                each.get("deliver_subject") for each in self.consumers.values()
            ):
                steps.append(Quiet())
            if isinstance(step, Operation) and b"Nats-Schedule: @at 2020" in step.header:
                steps.append(Quiet(0.6))  # nats-server has nothing due within a quarter of a second
        steps += [
            Quiet(),
            *[
                self.api(f"STREAM.INFO.{name}", {"subjects_filter": ">", "deleted_details": True}, reads=True)
                for name in self.streams
            ],
        ]
        steps += [self.api(f"CONSUMER.INFO.{stream}.{name}", reads=True) for stream, name in self.consumers]
        return [
            *steps,
            *[
                self.api(f"STREAM.MSG.GET.{name}", {"seq": seq}, reads=True)
                for name in self.configs
                for seq in range(1, 14)
            ],
        ]

    def beginning(self) -> list[Step]:
        return [self.create(name) for name in self.random.sample(self.streams, 2)]

    # Sayings

    def api(self, words: str, body: Any = None, reads: bool = False) -> Operation:
        payload = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        header = b""
        if self.random.random() < 0.01:
            level = self.random.choice((b"0", b"1", b"4", LEVEL_OF_NOBODY, b"x", b"-1"))
            header = b"NATS/1.0\r\nNats-Required-Api-Level: %b\r\n\r\n" % level
        return Operation(f"$JS.API.{words}", payload, header, reads=reads)

    def prefix(self, name: str) -> str:
        """What a stream's subjects begin with."""
        return name.lower()

    def plain_config(self, name: str) -> dict[str, Any]:
        return {"name": name, "subjects": [f"{self.prefix(name)}.>"]}

    def create(self, name: str = "") -> Operation:
        name = name or self.random.choice(self.streams)
        config = self.plain_config(name)
        config |= self._drawn(STREAM_MEMBERS, self.random.choice((0, 2, 4, 6)))
        if self.random.random() < 0.1:
            config |= {
                "allow_msg_counter": True,
                "retention": "limits",
                "discard": "old",
                "allow_msg_ttl": False,
                "allow_msg_schedules": False,
            }
        self.configs[name] = config
        return self.api(f"STREAM.CREATE.{name}", config)

    def update(self) -> Operation:
        name = self.random.choice(list(self.configs))
        config = self.configs[name] | self._drawn(STREAM_MEMBERS, self.random.choice((1, 1, 2, 3)))
        if config.get("republish") == {"dest": ""}:
            del config["republish"]  # nats-server publishes what it stores to itself, until the headers are too long
        if self.random.random() < 0.7:
            self.configs[name] = {**config, "name": name}
        return self.api(f"STREAM.UPDATE.{name}", config)

    def publish(self) -> Operation:
        name = self.random.choice(list(self.configs))
        chance = self.random.random
        header: list[tuple[str, Any]] = []
        if chance() < 0.15:
            header.append(("Nats-Msg-Id", self.random.choice(("i1", "i2", "i3", ""))))
        if chance() < 0.05:
            header.append(("Nats-Expected-Stream", self.random.choice((name, "X", ""))))
        if chance() < 0.07:
            header.append(("Nats-Expected-Last-Sequence", self._near()))
        if chance() < 0.1:
            header.append(("Nats-Expected-Last-Subject-Sequence", self._near()))
        if chance() < 0.03:
            header.append(
                (
                    "Nats-Expected-Last-Subject-Sequence-Subject",
                    self.random.choice((f"{self.prefix(name)}.a", f"{self.prefix(name)}.>", "x..", "")),
                )
            )
        if chance() < 0.04:
            header.append(("Nats-Expected-Last-Msg-Id", self.random.choice(("i1", "i2", "", "zz"))))
        if chance() < 0.06:
            header.append(("Nats-Rollup", self.random.choice(("sub", "all", "SUB", "x", ""))))
        if chance() < 0.06:
            header.append(
                (
                    "Nats-TTL",
                    self.random.choice(("1h", "never", "0", "3600", "500ms", "x", "-1", "", "1h30m", "1.5h", "9s")),
                )
            )
        counts = self.configs[name].get("allow_msg_counter") is True
        if chance() < (0.9 if counts else 0.02):
            header.append(("Nats-Incr", self.random.choice(("1", "+5", "-3", "0", "x", "", "1" * 30, "1.5"))))
        if chance() < 0.05:
            header.append(
                (
                    "Nats-Schedule",
                    self.random.choice(
                        (f"@at {FAR}", "@every 1h", "0 0 5 * * *", "@daily", "x", "@at x", "@every 1ms")
                    ),
                )
            )
            if chance() < 0.9:
                header.append(
                    (
                        "Nats-Schedule-Target",
                        self.random.choice(
                            (f"{self.prefix(name)}.a", f"{self.prefix(name)}.t", "x.y", f"{self.prefix(name)}.*")
                        ),
                    )
                )
            if chance() < 0.2:
                header.append(("Nats-Schedule-TTL", self.random.choice(("1h", "x", "never"))))
        if chance() < 0.1:
            header.append(("Own", self.random.choice(("value", "", " spaced "))))
        if chance() < 0.02:
            header.append(("Nats-Required-Api-Level", self.random.choice(("0", "9", "x", "4"))))
        self.published += 1
        payload = (
            b"" if counts and chance() < 0.9 else b"%d" % self.published + b"x" * self.random.choice((0, 0, 5, 90, 200))
        )
        return Operation(self._subject(name), payload, block(header))

    def batch(self) -> Operation:
        """The next message of a batch, mostly."""
        name = self.random.choice(list(self.configs))
        which = self.random.choice(("x", "y"))
        seq = self.batches.get(name + which, 0) + 1
        if self.random.random() < 0.1:
            seq += self.random.choice((-1, 1))
        self.batches[name + which] = seq
        header: list[tuple[str, Any]] = [("Nats-Batch-Id", which), ("Nats-Batch-Sequence", seq)]
        if self.random.random() < 0.4:
            header.append(("Nats-Batch-Commit", self.random.choice(("1", "1", "1", "eob", "0", "x"))))
            self.batches[name + which] = 0
        if self.random.random() < 0.2:
            header.append(("Nats-Expected-Last-Subject-Sequence", self._near()))
        if self.random.random() < 0.1:
            header.append(("Nats-Msg-Id", self.random.choice(("i1", "i4"))))
        if self.random.random() < 0.1:
            header.append(("Nats-Expected-Last-Sequence", self._near()))
        if self.random.random() < 0.05:
            header.append(("Nats-Rollup", self.random.choice(("sub", "all"))))
        if self.configs[name].get("allow_msg_counter") is True:
            header.append(("Nats-Incr", "2"))
        return Operation(self._subject(name), b"" if header[-1][0] == "Nats-Incr" else b"batch", block(header))

    def consumer(self) -> Operation:
        stream = self.random.choice(list(self.configs))
        name = self.random.choice(CONSUMERS)
        old = self.consumers.get((stream, name))
        config: dict[str, Any] = {"name": name, "ack_policy": "explicit"}
        if self.random.random() < 0.7:
            config["durable_name"] = name
        else:
            config["inactive_threshold"] = 3600 * S
        if old is not None and self.random.random() < 0.6:
            config = dict(old)
        drawn = self._drawn(CONSUMER_MEMBERS, self.random.choice((0, 1, 2, 4)))
        if self.random.random() < 0.75:
            drawn.pop("deliver_subject", None)
        if drawn.get("deliver_policy") == "by_start_sequence":
            drawn["opt_start_seq"] = self.random.choice((1, 3, 9))
        if self.random.random() < 0.06:
            drawn |= {
                "priority_groups": ["g"],
                "priority_policy": self.random.choice(("overflow", "prioritized", "pinned_client")),
            }
        config |= drawn
        if "filter_subjects" in config and "filter_subject" in config and self.random.random() < 0.8:
            config.pop("filter_subject")
        request: dict[str, Any] = {"stream_name": stream, "config": config}
        if self.random.random() < 0.2:
            request["action"] = self.random.choice(("create", "update", "", "both"))
        if self.random.random() < 0.1:
            request["pedantic"] = True
        if self.random.random() < 0.01:
            request["stream_name"] = "X"
        self.consumers[stream, name] = config
        words = f"CONSUMER.CREATE.{stream}.{name}"
        if self.random.random() < 0.1:
            words = f"CONSUMER.DURABLE.CREATE.{stream}.{name}"
        elif self.random.random() < 0.05:
            words = f"CONSUMER.CREATE.{stream}"
            if self.random.random() < 0.7:
                config.pop("durable_name", None)
        elif self.random.random() < 0.05 and isinstance(config.get("filter_subject"), str):
            words += f".{self.random.choice((config['filter_subject'] or '>', 'a.a'))}".replace(" ", "_")
        return self.api(words, request)

    def pull(self) -> Operation:
        stream, name = self._some_consumer()
        batch = self.random.choice((1, 1, 2, 3, 10))
        body: Any = {"batch": batch}
        if self.random.random() < 0.75:
            body["no_wait"] = True
        if "no_wait" not in body or self.random.random() < 0.2:
            body["expires"] = 150_000_000
        if self.random.random() < 0.35:
            body |= self._drawn(PULL_MEMBERS, self.random.choice((1, 1, 2)))
        config = self.consumers.get((stream, name), {})
        if config.get("priority_groups") and self.random.random() < 0.9:
            body["group"] = "g"
        if self.random.random() < 0.03:
            body = self.random.choice((b"", b"1", b"x", b"[]", b'{"batch":', b"5x", b"0", b"-1"))
        return Operation(
            f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}",
            body if isinstance(body, bytes) else json.dumps(body).encode(),
            answers=99,
        )

    def ack(self) -> Ack:
        if self.random.random() < 0.05:
            return Ack(
                self.random.randrange(8),
                self.random.choice((b"+NXT", b"+NXT 2", b'+NXT {"batch":2,"no_wait":true}', b"+NXT x")),
                2,
            )
        return Ack(self.random.randrange(8), self.random.choice(ACKS), 1)

    def message(self) -> Operation:
        name = self._stream()
        body = self.random.choice((
            {"seq": self._near()}, {"last_by_subj": self._filter(name)}, {"seq": self._near(), "next_by_subj": self._filter(name)},
            {"next_by_subj": self._filter(name)}, {"start_time": LONG_AGO}, {"start_time": FAR}, {}, {"seq": 1, "last_by_subj": "x"},
            {"start_time": LONG_AGO, "next_by_subj": self._filter(name)}, {"seq": 2, "batch": 3}, {"seq": 3, "no_hdr": True}, {"seq": 0},
            {"seq": -1}, {"multi_last": [">"]}, {"last_by_subj": self._filter(name), "no_hdr": True}, {"start_time": FAR, "seq": 3},
        ))  # fmt: skip
        return self.api(f"STREAM.MSG.GET.{name}", body, reads=True)

    def direct(self) -> Operation:
        name = self._stream()
        body: Any = self.random.choice((
            {"seq": self._near()}, {"last_by_subj": self._filter(name)}, {"seq": self._near(), "next_by_subj": self._filter(name)},
            {"next_by_subj": self._filter(name)}, {"start_time": LONG_AGO}, {"start_time": FAR}, {}, {"seq": 1, "last_by_subj": "x"},
            {"seq": 1, "batch": 3}, {"seq": self._near(), "batch": 5, "next_by_subj": self._filter(name)}, {"batch": 2},
            {"seq": 1, "batch": 50, "max_bytes": 150}, {"multi_last": [self._filter(name)]}, {"multi_last": ["*.a", "*.b", "*.a"]},
            {"multi_last": [">"], "batch": 2}, {"multi_last": [">"], "up_to_seq": 1}, {"multi_last": [">"], "up_to_time": FAR},
            {"multi_last": [">"], "up_to_time": LONG_AGO}, {"multi_last": [">"], "up_to_time": FAR, "up_to_seq": 4},
            {"multi_last": []}, {"multi_last": [">"], "seq": self._near()}, {"batch": 3, "next_by_subj": self._filter(name)},
            {"batch": 3, "start_time": LONG_AGO}, {"batch": -1, "seq": 1}, {"max_bytes": 300, "seq": 1}, {"seq": 1, "no_hdr": True}, b"x",
            {"start_time": LONG_AGO, "next_by_subj": self._filter(name)}, {"last_by_subj": self._filter(name), "batch": 2},
        ))  # fmt: skip
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        if self.random.random() < 0.15:
            return Operation(
                f"$JS.API.DIRECT.GET.{name}.{self._subject(name)}",
                payload if self.random.random() < 0.1 else b"",
                answers=1,
            )
        many = isinstance(body, dict) and ("batch" in body or "multi_last" in body)
        return Operation(f"$JS.API.DIRECT.GET.{name}", payload, answers=99 if many else 1, reads=True)

    def remove(self) -> Operation:
        name = self._stream()
        chance = self.random.random()
        if chance < 0.45:
            body = self.random.choice(
                ({"seq": self._near()}, {"seq": self._near(), "no_erase": True}, {}, {"seq": -1}, {"seq": 1, "x": 2})
            )
            return self.api(f"STREAM.MSG.DELETE.{name}", body)
        if chance < 0.8:
            body = self.random.choice((
                None, {}, {"filter": self._filter(name)}, {"seq": self._near()}, {"keep": 2}, {"filter": self._filter(name), "keep": 1},
                {"seq": 2, "keep": 1}, {"filter": self._filter(name), "seq": self._near()}, {"filter": "x..y"}, {"keep": -1}, {"keep": 0}, {"x": 1},
            ))  # fmt: skip
            return self.api(f"STREAM.PURGE.{name}", body)
        if chance < 0.93:
            stream, consumer = self._some_consumer()
            return self.api(f"CONSUMER.DELETE.{stream}.{consumer}", self.random.choice((None, None, {}, {"x": 1})))
        return self.api(f"STREAM.DELETE.{name}", self.random.choice((None, None, {}, {"x": 1}, b"x")))

    def ask_stream(self) -> Operation:
        body = self.random.choice((None, None, {}, {"deleted_details": True}, {"subjects_filter": ">"}, {"subjects_filter": "*.a"},
                                   {"subjects_filter": "x"}, {"subjects_filter": ">", "offset": 1}, {"offset": -1}, {"x": 1}, b"x"))  # fmt: skip
        return self.api(f"STREAM.INFO.{self._stream()}", body, reads=True)

    def ask_consumer(self) -> Operation:
        stream, name = self._some_consumer()
        chance = self.random.random()
        if chance < 0.7:
            return self.api(
                f"CONSUMER.INFO.{stream}.{name}", self.random.choice((None, None, None, {}, {"x": 1})), reads=True
            )
        if chance < 0.85:
            body = self.random.choice(
                ({"pause_until": FAR}, {"pause_until": LONG_AGO}, {}, None, {"pause_until": "x"}, {"x": 1})
            )
            return self.api(f"CONSUMER.PAUSE.{stream}.{name}", body)
        if chance < 0.93:
            return self.api(
                f"CONSUMER.RESET.{stream}.{name}",
                self.random.choice((None, {}, {"seq": self._near()}, {"x": 1}, {"seq": -1})),
            )
        return self.api(
            f"CONSUMER.UNPIN.{stream}.{name}",
            self.random.choice(({"group": "g"}, {"group": "x"}, {}, None, {"group": ""})),
        )

    def lists(self) -> Operation:
        page = self.random.choice((None, {}, {"offset": 1}, {"offset": 99}, {"offset": -1}))
        of_streams = self.random.choice((page, {"subject": self._filter("A")}, {"subject": "x..y"}, {"x": 1}))
        return self.random.choice((
            self.api("INFO", reads=True), self.api("STREAM.NAMES", of_streams, reads=True), self.api("STREAM.LIST", of_streams, reads=True),
            self.api(f"CONSUMER.NAMES.{self._stream()}", page, reads=True), self.api(f"CONSUMER.LIST.{self._stream()}", page, reads=True),
            self.api("INFO", {"x": 1}, reads=True), self.api("INFO", {}, reads=True),
        ))  # fmt: skip

    def odd(self) -> Operation:
        """What clients hardly say."""
        name, consumer = self._some_consumer()
        words = self.random.choice((
            f"STREAM.LEADER.STEPDOWN.{name}", f"CONSUMER.LEADER.STEPDOWN.{name}.{consumer}", f"STREAM.PEER.REMOVE.{name}", "META.LEADER.STEPDOWN",
            "SERVER.REMOVE", f"STREAM.CREATE.{name}", f"STREAM.UPDATE.{name}", "STREAM.CREATE.a/b", f"STREAM.INFO.{name}.x", "NOTHING",
            f"CONSUMER.CREATE.{name}.{consumer}", f"STREAM.SNAPSHOT.{name}", f"STREAM.RESTORE.{name}", "STREAM.TEMPLATE.NAMES", "STREAM.INFO.*",
            f"CONSUMER.INFO.{name}.a.b", f"STREAM.MSG.GET.{name}", f"STREAM.MSG.DELETE.{name}", f"DIRECT.GET.{name}", "ACCOUNT.PURGE.A",
        ))  # fmt: skip
        return self.api(words, self.random.choice((None, {}, b"x", {"name": name}, {"x": 1}, b"[]", b"null", b'"x"')))

    # Parts

    def _drawn(self, members: Members, count: int) -> dict[str, Any]:
        drawn: dict[str, Any] = {}
        for name in self.random.sample(sorted(members), count):
            fine, doubtful = members[name]
            wild = doubtful and self.random.random() < self.wild
            if wild or fine:
                drawn[name] = self.random.choice(doubtful if wild else fine)
        return drawn

    def _stream(self) -> str:
        return self.random.choice(list(self.configs) if self.random.random() < 0.97 else ("Z",))

    def _some_consumer(self) -> tuple[str, str]:
        if self.consumers and self.random.random() < 0.97:
            return self.random.choice(list(self.consumers))
        return self._stream(), self.random.choice(CONSUMERS)

    def _subject(self, name: str) -> str:
        return f"{self.prefix(name)}.{self.random.choice(self.tokens)}"

    def _filter(self, name: str) -> str:
        return self.random.choice(
            (self._subject(name), f"{self.prefix(name)}.>", "*.a", ">", "nobody", f"{self.prefix(name)}.c.*")
        )

    def _near(self) -> Any:
        return self.random.choice((0, 1, 2, 3, self.random.randrange(12), self.random.randrange(30), 99))


def block(fields: list[tuple[str, Any]]) -> bytes:
    """A header block of these fields, b"" of none."""
    if not fields:
        return b""
    return b"NATS/1.0\r\n" + b"".join(f"{name}: {value}\r\n".encode() for name, value in fields) + b"\r\n"
