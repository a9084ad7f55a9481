"""Random conversations about key-value buckets and object stores, which are streams of a certain shape."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any, ClassVar

from support.jetstream.differential import Operation, Quiet, Step
from support.jetstream.members import FAR, LONG_AGO, STREAM_MEMBERS, Members, S
from support.jetstream.operations import Talker, block

KEYS = ("k", "k.a", "k.b", "other", "x-y", "_z")
_CHANGES: Members = {
    name: STREAM_MEMBERS[name]
    for name in ("description", "max_bytes", "max_msgs_per_subject", "max_msg_size", "max_age", "compression", "allow_direct",
                 "deny_delete", "deny_purge", "allow_rollup_hdrs", "allow_msg_ttl", "subject_delete_marker_ttl", "metadata",
                 "republish", "num_replicas", "storage", "sealed", "discard", "duplicate_window", "sources")
}  # fmt: skip
OPERATIONS = ("DEL", "PURGE", "PURGE", "x", "")


class Buckets(Talker):
    """Keys are put, created, updated, deleted, purged, watched, listed; objects are put in chunks, sealed, linked, listed."""

    streams = ("KV_A", "KV_B", "OBJ_A", "KV_M")
    tokens = KEYS
    weights: ClassVar[dict[str, int]] = {
        "create": 2, "update": 4, "put": 30, "object": 6, "watch": 6, "pull": 6, "ack": 3, "message": 6, "direct": 14, "remove": 5,
        "ask_stream": 8, "ask_consumer": 3, "lists": 3, "publish": 4,
    }  # fmt: skip

    def beginning(self) -> list[Step]:
        names = self.random.sample(self.streams[:3], 2)
        return [self.create(name) for name in names]

    def prefix(self, name: str) -> str:
        return {"KV": f"$KV.{name[3:]}", "OB": f"$O.{name[4:]}.M"}.get(name[:2], name)

    def plain_config(self, name: str) -> dict[str, Any]:
        chosen = self.random.choice
        config: dict[str, Any] = {
            "name": name, "discard": "new", "allow_rollup_hdrs": True, "allow_direct": True, "max_age": chosen((0, 0, 3600 * S)),
            "max_bytes": chosen((-1, 20_000)), "storage": chosen(("file", "memory")), "num_replicas": 1, "deny_delete": True,
        }  # fmt: skip
        if name == "KV_M":
            mirror = {"name": "KV_A"}
            config["storage"] = "file"  # nats-server counts bytes of its own in memory
            return {**config, "mirror": mirror, "mirror_direct": True, "max_msgs_per_subject": chosen((1, 5))}
        if name.startswith("OBJ"):
            return {**config, "subjects": [f"$O.{name[4:]}.C.>", f"$O.{name[4:]}.M.>"], "deny_delete": False}
        config |= {"subjects": [f"$KV.{name[3:]}.>"], "max_msgs_per_subject": chosen((1, 1, 3, 64)), "max_msg_size": -1}
        if self.random.random() < 0.4:
            config |= {"allow_msg_ttl": True, "subject_delete_marker_ttl": chosen((3600 * S, 60 * S, 1_000_000_000))}
        return config

    def create(self, name: str = "") -> Operation:
        name = name or self.random.choice(self.streams)
        config = self.plain_config(name) | self._drawn(_CHANGES, self.random.choice((0, 0, 1, 2)))
        self.configs[name] = config
        return self.api(f"STREAM.CREATE.{name}", config)

    def update(self) -> Operation:
        name = self.random.choice(list(self.configs))
        config = self.configs[name] | self._drawn(_CHANGES, self.random.choice((1, 1, 2)))
        if self.random.random() < 0.6:
            self.configs[name] = config
        return self.api(f"STREAM.UPDATE.{name}", config)

    def lists(self) -> Operation:
        """Without the account's figures, in which nats-server counts the hidden consumers of mirrors."""
        while True:
            listed = super().lists()
            if not listed.subject.endswith(".INFO"):
                return listed

    def put(self) -> Operation:
        """A put, create, update, delete or purge of a key, as clients do it."""
        name = self.random.choice([name for name in self.configs if name.startswith("KV")] or ["KV_A"])
        header: list[tuple[str, Any]] = []
        chance = self.random.random()
        payload = b"v%d" % self.published
        self.published += 1
        if chance < 0.2:  # create
            header.append(("Nats-Expected-Last-Subject-Sequence", 0))
        elif chance < 0.4:
            header.append(("Nats-Expected-Last-Subject-Sequence", self._near()))
        elif chance < 0.6:
            operation = self.random.choice(OPERATIONS)
            header.append(("KV-Operation", operation))
            if operation == "PURGE":
                header.append(("Nats-Rollup", "sub"))
            if self.random.random() < 0.3:
                header.append(("Nats-Expected-Last-Subject-Sequence", self._near()))
            payload = b""
        if self.random.random() < 0.12:
            header.append(("Nats-TTL", self.random.choice(("1h", "never", "2s", "30", "0", "x"))))
        return Operation(self._subject(name), payload, block(header))

    def object(self) -> Operation:
        """A chunk of an object, or the record about it."""
        name = "OBJ_A"
        at = self.random.choice(("NUID1", "NUID2"))
        if self.random.random() < 0.6:
            return Operation(f"$O.A.C.{at}", b"chunk" * self.random.choice((1, 20)))
        title = self.random.choice(("one", "two", "fil\u00e9"))
        encoded = base64.urlsafe_b64encode(title.encode()).decode()
        record: dict[str, Any] = {"name": title, "bucket": "A", "nuid": at, "size": 5, "chunks": 1}
        record["digest"] = "SHA-256=" + base64.urlsafe_b64encode(hashlib.sha256(b"chunk").digest()).decode()
        if self.random.random() < 0.2:
            record = {"name": title, "bucket": "A", "nuid": at, "options": {"link": {"bucket": "B", "name": "x"}}}
        if self.random.random() < 0.2:
            record["deleted"] = True
        self.configs.setdefault(name, {"name": name})
        return Operation(f"$O.A.M.{encoded}", json.dumps(record).encode(), block([("Nats-Rollup", "sub")]))

    def watch(self) -> Operation:
        """An ordered consumer, as watchers, lists of keys and readers of objects use it; asked for its messages by a pull."""
        name = self.random.choice(list(self.configs))
        config: dict[str, Any] = {
            "name": self.random.choice(("c1", "c2", "c3")), "mem_storage": True, "ack_policy": self.random.choice(("none", "explicit")),
            "deliver_policy": self.random.choice(("last_per_subject", "new", "all", "last")), "inactive_threshold": 3600 * S,
            "num_replicas": 1, "headers_only": self.random.random() < 0.3, "max_deliver": self.random.choice((-1, 1)),
            "replay_policy": "instant",
        }  # fmt: skip
        prefix = self.prefix(name)
        if self.random.random() < 0.5:
            config["filter_subject"] = self.random.choice(
                (f"{prefix}.>", f"{prefix}.k.*", f"{prefix}.k", f"$O.{name[4:]}.C.NUID1")
            )
        elif self.random.random() < 0.5:
            config["filter_subjects"] = [f"{prefix}.k", f"{prefix}.k.>"]
        self.consumers[name, config["name"]] = config
        return self.api(f"CONSUMER.CREATE.{name}.{config['name']}", {"stream_name": name, "config": config})

    def direct(self) -> Operation:
        name = self.random.choice(list(self.configs))
        prefix = self.prefix(name)
        if self.random.random() < 0.4:
            return Operation(f"$JS.API.DIRECT.GET.{name}.{self._subject(name)}", reads=True)
        if self.random.random() < 0.5:
            return super().direct()
        body: dict[str, Any] = self.random.choice((
            {"last_by_subj": self._subject(name)}, {"multi_last": [f"{prefix}.>"]}, {"multi_last": [self._subject(name), self._subject(name)]},
            {"multi_last": [f"{prefix}.>"], "up_to_seq": 1}, {"multi_last": [f"{prefix}.k.*"], "up_to_time": FAR},
            {"batch": 3, "seq": self.random.choice((1, 4)), "next_by_subj": f"{prefix}.>"}, {"batch": 2, "start_time": LONG_AGO},
            {"batch": 3, "max_bytes": 90, "seq": 1}, {"multi_last": [f"{prefix}.>"], "batch": 1}, {"multi_last": [f"{prefix}.>"], "max_bytes": 60},
        ))  # fmt: skip
        many = "batch" in body or "multi_last" in body
        return Operation(f"$JS.API.DIRECT.GET.{name}", json.dumps(body).encode(), answers=99 if many else 1, reads=True)


class Expiring(Buckets):
    """The same with little patience: what has a time to live, limits by age and their markers."""

    weights: ClassVar[dict[str, int]] = {
        "put": 14,
        "short": 12,
        "pass_time": 3,
        "direct": 6,
        "ask_stream": 5,
        "watch": 2,
        "pull": 3,
        "remove": 2,
    }

    def plain_config(self, name: str) -> dict[str, Any]:
        config = super().plain_config(name)
        if name.startswith("KV_") and name != "KV_M":
            config |= {"allow_msg_ttl": True, "max_age": self.random.choice((0, 0, 2 * S)), "duplicate_window": S}
            config["subject_delete_marker_ttl"] = self.random.choice((0, S, 3600 * S))
        return config

    def short(self) -> Operation:
        """A message that does not live long."""
        name = self.random.choice([name for name in self.configs if name.startswith("KV")] or ["KV_A"])
        self.published += 1
        return Operation(
            self._subject(name), b"s%d" % self.published, block([("Nats-TTL", self.random.choice(("1", "1s", "2s")))])
        )

    def pass_time(self) -> Quiet:
        return Quiet(2.6)
