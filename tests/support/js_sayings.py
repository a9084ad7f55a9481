"""What can be said to JetStream, drawn at random: a seed decides a whole conversation.

Most of what is drawn is in order, for only what is accepted leads anywhere; each saying may carry one or two members that
are not.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

from support.js_side import DELIVERED, REPUBLISHED
from support.js_talk import Ack, Quiet, Saying, Step

S = 10**9
FAR, LONG_AGO = "2036-01-01T00:00:00Z", "2020-01-01T00:00:00Z"
STREAMS = ("A", "B", "C")
CONSUMERS = ("c1", "c2", "c3")
TOKENS = ("a", "b", "c.d", "c.e", "f")

#: Members of a stream's configuration: (values in order, values that may be refused).
STREAM_MEMBERS: dict[str, tuple[list[Any], list[Any]]] = {
    "description": (["d", ""], ["d" * 4097, 7, None]),
    "retention": (["limits", "interest", "workqueue"], ["sometimes", "", None, 1]),
    "max_consumers": ([-1, 0, 2, 5], [-2, 1, "1"]),
    "max_msgs": ([-1, 0, 5, 100], [-2, 1, 1.5]),
    "max_bytes": ([-1, 0, 10_000, 400], [-2, 1, "x"]),
    "max_age": ([0, 3600 * S], [-1, 1, 99_000_000, 1 << 63]),
    "max_msgs_per_subject": ([-1, 0, 1, 2, 5], [-2, True]),
    "max_msg_size": ([-1, 0, 100, 1 << 20], [-2, 1, 1 << 31, 1 << 33]),
    "discard": (["old", "new"], ["never", ""]),
    "storage": (["file", "memory"], ["any", "tape", "Memory"]),
    "num_replicas": ([0, 1], [-1, 2, 3, 5, 6]),
    "no_ack": ([False, True], ["yes"]),
    "duplicate_window": ([0, 60 * S, S], [-1, 50_000_000, 7200 * S, 3601 * S]),
    "placement": ([{}, {"cluster": ""}], [{"cluster": "x"}, {"tags": ["t"]}, {"preferred": "x"}, None]),
    "compression": (["none", "s2"], ["zip", ""]),
    "first_seq": ([0, 10], [-1, 1 << 64]),
    "subject_transform": (
        [{"src": ">", "dest": "t.>"}, {"src": "*.a", "dest": "t.a.{{wildcard(1)}}"}, {"src": "", "dest": ""}],
        [
            {"src": "x..", "dest": "y"},
            {"src": "*.*", "dest": "t.{{wildcard(3)}}"},
            {"dest": "t.>"},
            {"src": "a.>", "dest": "x.*"},
        ],
    ),
    "republish": (
        [
            {"src": ">", "dest": f"{REPUBLISHED}.>"},
            {"dest": f"{REPUBLISHED}.>", "headers_only": True},
            {"src": "*.a", "dest": f"{REPUBLISHED}.{{{{wildcard(1)}}}}"},
        ],
        [
            {"src": ">", "dest": "a.>"},
            {"src": "*.a", "dest": "x.*.*"},
            {"src": "nobody.>", "dest": f"{REPUBLISHED}.>"},
            {"dest": ""},
            {"src": ">", "dest": "x..y"},
        ],
    ),
    "allow_direct": ([True, False], [None]),
    "mirror_direct": ([False], [True]),
    "discard_new_per_subject": ([False], [True]),
    "sealed": ([False], [True]),
    "deny_delete": ([False, True], []),
    "deny_purge": ([False], [True]),
    "allow_rollup_hdrs": ([True, False], []),
    "consumer_limits": (
        [
            {},
            {"max_ack_pending": 10},
            {"inactive_threshold": 3600 * S},
            {"inactive_threshold": 3600 * S, "max_ack_pending": 20},
        ],
        [{"max_ack_pending": -1}, {"inactive_threshold": -1}, {"max_ack_pending": "x"}, {"unknown": 1}],
    ),
    "allow_msg_ttl": ([True, False], []),
    "subject_delete_marker_ttl": ([0, 3600 * S], [-1, 1, 500_000_000, 1_500_000_000]),
    "allow_msg_counter": ([False], [True]),
    "allow_atomic": ([True, False], []),
    "allow_msg_schedules": ([True, False], []),
    "persist_mode": (["default", ""], ["async", "never"]),
    "allow_batched": ([True, False], []),
    "metadata": (
        [{}, {"k": "v"}, {"_nats.x": "y"}],
        [{"k": "v" * 131_073}, {"k": 1}, {"_nats.level": "9"}, {"_nats.req.level": "9"}],
    ),
    "mirror": (
        [],
        [
            {"name": "A"},
            {"name": "Z"},
            {"name": ""},
            {"name": "A", "filter_subject": "x..y"},
            {"name": "A", "opt_start_seq": 3, "opt_start_time": LONG_AGO},
        ],
    ),
    "sources": (
        [],
        [
            [{"name": "Z"}],
            [{"name": ""}],
            [{"name": "Z"}, {"name": "Z"}],
            [{"name": "Z", "filter_subject": "q", "subject_transforms": [{"src": "q", "dest": "r"}]}],
        ],
    ),
    "unknown": ([], [1]),
    "pedantic": ([True], ["x"]),
    "template_owner": ([], ["x"]),
    "subjects": (
        [],
        [
            [],
            ["a.>", "a.x"],
            ["x", "x"],
            [""],
            ["x y"],
            [">"],
            ["$JS.>"],
            ["$SYS.>"],
            ["$JS.EVENT.>"],
            ["$KV.x.>"],
            "x",
            ["a.>", "b.q"],
            [1],
            ["$JS.API.INFO"],
            ["$SYS.ACCOUNT.>"],
        ],
    ),
    "name": ([], ["", "X", "a.b", "a b", 1]),
}
CONSUMER_MEMBERS: dict[str, tuple[list[Any], list[Any]]] = {
    "description": (["d", ""], ["d" * 4097]),
    "deliver_policy": (["all", "last", "new", "last_per_subject"], ["by_start_sequence", "by_start_time", "first", ""]),
    "opt_start_seq": ([], [0, 1, 5, -1]),
    "opt_start_time": ([], [LONG_AGO, FAR, "yesterday", "0001-01-01T00:00:00Z"]),
    "ack_policy": (["explicit", "all", "none"], ["some", "", "flow_control"]),
    "ack_wait": ([0, 30 * S, 3600 * S], [-1, 1, 1 << 63]),
    "max_deliver": ([-1, 0, 1, 2, 5], [-2]),
    "backoff": ([[], [60 * S], [60 * S, 120 * S]], [[-1], [S, 0], [1, 2, 3], "x", [60 * S] * 6]),
    "filter_subject": (["", "*.a", "*.>", ">", "a.a"], ["x..y", "nobody", "a b", "*.c.*"]),
    "filter_subjects": (
        [["*.a", "*.b"], ["a.a", "b.a", "c.a"], []],
        [["*.a", "*.a"], ["*.a", "a.a"], [""], ["x..y"], "x", ["*.*.d", "*.c.>"]],
    ),
    "replay_policy": (["instant"], ["slow", ""]),
    "rate_limit_bps": ([0], [1 << 30, -1]),
    "sample_freq": (["", "100", "100%", "0"], ["x", "-5", "1000", "5.5", "%"]),
    "max_waiting": ([0, 1, 2, 512], [-1, 1 << 20]),
    "max_ack_pending": ([0, -1, 1, 3, 100], [-2, 1 << 40]),
    "flow_control": ([], [True]),
    "headers_only": ([False, True], []),
    "max_batch": ([0, 2, 10], [-1]),
    "max_expires": ([0, 60 * S], [-1, 1, 500_000]),
    "max_bytes": ([0, 200, 1000], [-1]),
    "deliver_subject": ([f"{DELIVERED}.x", f"{DELIVERED}.y"], ["x..y", "a.a", "*.x", "> x", "$JS.x"]),
    "deliver_group": ([], ["g", "g.*", "g h"]),
    "idle_heartbeat": ([0], [-1, 1, 100_000_000, 3600 * S, 60 * S]),
    "inactive_threshold": ([0, 3600 * S], [1 << 62, 7200 * S]),
    "num_replicas": ([0, 1], [-1, 2, 6]),
    "mem_storage": ([False, True], []),
    "direct": ([], [True]),
    "sourcing": ([], [True]),
    "metadata": ([{}, {"k": "v"}], [{"k": "v" * 131_073}, {"_nats.x": "y"}, {"_nats.req.level": "9"}]),
    "pause_until": ([None], [FAR, LONG_AGO, "x"]),
    "priority_groups": ([], [["g"], ["g", "h"], [""], ["g g"], ["g" * 17], "g"]),
    "priority_policy": ([], ["none", "overflow", "pinned_client", "prioritized", "x"]),
    "priority_timeout": ([], [0, 60 * S, -1]),
    "durable_name": ([], ["c1", "other", "a.b", ""]),
    "name": ([], ["c2", "other", "a.b", "a/b", ""]),
    "unknown": ([], [1]),
}
PULL_MEMBERS: dict[str, tuple[list[Any], list[Any]]] = {
    "max_bytes": ([0, 150, 1000], [-1, 1, 1 << 40]),
    "group": ([], ["g", "h", "", "x"]),
    "min_pending": ([], [1, 3, -1]),
    "min_ack_pending": ([], [1, 3, -1]),
    "priority": ([], [0, 5, 9, 10, -1]),
    "id": ([], ["nobody", ""]),
    "unknown": ([], [1]),
    "idle_heartbeat": ([0], [10_000_000_000, -1, 20_000_000]),
    "batch": ([], [-1, 0, "x", 1 << 33]),
    "expires": ([], [-1, "1s"]),
}
ACKS = (b"", b"+ACK", b"+ACK", b"+ACK", b"+OK", b"-NAK", b'-NAK {"delay": 3600000000000}', b"-NAK 1h", b"-NAK x", b'-NAK {"delay":-1}',
        b"+WPI", b"+WPI x", b"+TERM", b"+TERM because", b"+TERM  two words", b"-ack", b"nonsense")  # fmt: skip


class Talker:
    """Draws a conversation of `length` steps."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.configs: dict[str, dict[str, Any]] = {}
        self.consumers: dict[tuple[str, str], dict[str, Any]] = {}
        self.batches: dict[str, int] = {}
        self.published = 0
        self.wild = self.random.choice((0.05, 0.15, 0.4))

    def steps(self, length: int) -> list[Step]:
        steps: list[Step] = [self.create(name) for name in self.random.sample(STREAMS, 2)]
        kinds = [self.create, self.update, self.publish, self.consumer, self.pull, self.ack, self.message, self.direct,
                 self.remove, self.ask_stream, self.ask_consumer, self.lists, self.batch, self.odd]  # fmt: skip
        weights = [3, 6, 30, 9, 16, 14, 5, 8, 5, 6, 6, 2, 5, 1]
        while len(steps) < length:
            kind = self.random.choices(kinds, weights)[0]
            step = kind()
            steps.append(step)
            if kind in (self.publish, self.ack, self.consumer, self.update, self.remove) and any(
                each.get("deliver_subject") for each in self.consumers.values()
            ):
                steps.append(Quiet())
        steps += [
            Quiet(),
            *[
                self.api(f"STREAM.INFO.{name}", {"subjects_filter": ">", "deleted_details": True}, reads=True)
                for name in STREAMS
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

    # Sayings

    def api(self, words: str, body: Any = None, reads: bool = False) -> Saying:
        payload = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        header = b""
        if self.random.random() < 0.01:
            level = self.random.choice((b"0", b"1", b"4", b"5", b"x", b"-1"))
            header = b"NATS/1.0\r\nNats-Required-Api-Level: %b\r\n\r\n" % level
        return Saying(f"$JS.API.{words}", payload, header, reads=reads)

    def create(self, name: str = "") -> Saying:
        name = name or self.random.choice(STREAMS)
        config: dict[str, Any] = {"name": name, "subjects": [f"{name.lower()}.>"]}
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

    def update(self) -> Saying:
        name = self.random.choice(list(self.configs))
        config = self.configs[name] | self._drawn(STREAM_MEMBERS, self.random.choice((1, 1, 2, 3)))
        if self.random.random() < 0.7:
            self.configs[name] = {**config, "name": name}
        return self.api(f"STREAM.UPDATE.{name}", config)

    def publish(self) -> Saying:
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
                    self.random.choice((f"{name.lower()}.a", f"{name.lower()}.>", "x..", "")),
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
                        self.random.choice((f"{name.lower()}.a", f"{name.lower()}.t", "x.y", f"{name.lower()}.*")),
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
        return Saying(self._subject(name), payload, _block(header))

    def batch(self) -> Saying:
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
        return Saying(self._subject(name), b"" if header[-1][0] == "Nats-Incr" else b"batch", _block(header))

    def consumer(self) -> Saying:
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

    def pull(self) -> Saying:
        stream, name = self._some_consumer()
        batch = self.random.choice((1, 1, 2, 3, 10))
        body: Any = {"batch": batch}
        if self.random.random() < 0.75:
            body["no_wait"] = True
        if "no_wait" not in body or self.random.random() < 0.2:
            body["expires"] = 150_000_000
        if self.random.random() < 0.35:
            body |= self._drawn(PULL_MEMBERS, 1)
        config = self.consumers.get((stream, name), {})
        if config.get("priority_groups") and self.random.random() < 0.9:
            body["group"] = "g"
        if self.random.random() < 0.03:
            body = self.random.choice((b"", b"1", b"x", b"[]", b'{"batch":', b"5x", b"0", b"-1"))
        return Saying(
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

    def message(self) -> Saying:
        name = self._stream()
        body = self.random.choice((
            {"seq": self._near()}, {"last_by_subj": self._filter(name)}, {"seq": self._near(), "next_by_subj": self._filter(name)},
            {"next_by_subj": self._filter(name)}, {"start_time": LONG_AGO}, {"start_time": FAR}, {}, {"seq": 1, "last_by_subj": "x"},
            {"start_time": LONG_AGO, "next_by_subj": self._filter(name)}, {"seq": 2, "batch": 3}, {"seq": 3, "no_hdr": True}, {"seq": 0},
            {"seq": -1}, {"multi_last": [">"]}, {"last_by_subj": self._filter(name), "no_hdr": True}, {"start_time": FAR, "seq": 3},
        ))  # fmt: skip
        return self.api(f"STREAM.MSG.GET.{name}", body, reads=True)

    def direct(self) -> Saying:
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
            return Saying(
                f"$JS.API.DIRECT.GET.{name}.{self._subject(name)}",
                payload if self.random.random() < 0.1 else b"",
                answers=1,
            )
        many = isinstance(body, dict) and ("batch" in body or "multi_last" in body)
        return Saying(f"$JS.API.DIRECT.GET.{name}", payload, answers=99 if many else 1, reads=True)

    def remove(self) -> Saying:
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

    def ask_stream(self) -> Saying:
        body = self.random.choice((None, None, {}, {"deleted_details": True}, {"subjects_filter": ">"}, {"subjects_filter": "*.a"},
                                   {"subjects_filter": "x"}, {"subjects_filter": ">", "offset": 1}, {"offset": -1}, {"x": 1}, b"x"))  # fmt: skip
        return self.api(f"STREAM.INFO.{self._stream()}", body, reads=True)

    def ask_consumer(self) -> Saying:
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

    def lists(self) -> Saying:
        page = self.random.choice((None, {}, {"offset": 1}, {"offset": 99}, {"offset": -1}))
        of_streams = self.random.choice((page, {"subject": self._filter("A")}, {"subject": "x..y"}, {"x": 1}))
        return self.random.choice((
            self.api("INFO", reads=True), self.api("STREAM.NAMES", of_streams, reads=True), self.api("STREAM.LIST", of_streams, reads=True),
            self.api(f"CONSUMER.NAMES.{self._stream()}", page, reads=True), self.api(f"CONSUMER.LIST.{self._stream()}", page, reads=True),
            self.api("INFO", {"x": 1}, reads=True), self.api("INFO", {}, reads=True),
        ))  # fmt: skip

    def odd(self) -> Saying:
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

    def _drawn(self, members: dict[str, tuple[list[Any], list[Any]]], count: int) -> dict[str, Any]:
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
        return f"{name.lower()}.{self.random.choice(TOKENS)}"

    def _filter(self, name: str) -> str:
        return self.random.choice(
            (self._subject(name), f"{name.lower()}.>", "*.a", ">", "nobody", f"{name.lower()}.c.*")
        )

    def _near(self) -> Any:
        return self.random.choice((0, 1, 2, 3, self.random.randrange(12), self.random.randrange(30), 99))


def _block(fields: list[tuple[str, Any]]) -> bytes:
    if not fields:
        return b""
    return b"NATS/1.0\r\n" + b"".join(f"{name}: {value}\r\n".encode() for name, value in fields) + b"\r\n"
