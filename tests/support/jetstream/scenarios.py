"""Random conversations about one part of JetStream each: batches, priority groups, counters and schedules, the rules of updates."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

from support.jetstream import imports as js_imports
from support.jetstream import limits as js_limits
from support.jetstream.buckets import Buckets, Expiring
from support.jetstream.differential import CONFIG, Operation, Quiet, Restart, Step
from support.jetstream.imports import Imported
from support.jetstream.limits import Limits, Tiers
from support.jetstream.members import FAR, STREAM_MEMBERS, Members, S
from support.jetstream.odd_json import OddJson
from support.jetstream.operations import Talker, block


class Batches(Talker):
    """Atomic and fast batches, on streams that take them, mostly."""

    weights: ClassVar[dict[str, int]] = {
        "update": 1,
        "batch": 30,
        "fast": 40,
        "publish": 8,
        "ask_stream": 4,
        "message": 2,
        "consumer": 1,
        "pull": 3,
    }

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.gaps: dict[str, str] = {}

    def plain_config(self, name: str) -> dict[str, Any]:
        chance = self.random.random
        config = super().plain_config(name) | {"allow_atomic": chance() < 0.9, "allow_batched": chance() < 0.9}
        config |= {"allow_rollup_hdrs": chance() < 0.5, "allow_msg_ttl": chance() < 0.5}
        if chance() < 0.2:
            config |= {"discard": "new", "max_msgs": self.random.choice((3, 10)), "storage": "memory"}
        if chance() < 0.2:
            config |= {"discard": "new", "max_msgs_per_subject": 2, "discard_new_per_subject": True}
        if chance() < 0.2:
            config["allow_msg_schedules"] = True
        return config

    def create(self, name: str = "") -> Operation:
        name = name or self.random.choice(self.streams)
        config = self.plain_config(name) | self._drawn(STREAM_MEMBERS, self.random.choice((0, 0, 1)))
        if self.random.random() < 0.15:
            config = {
                "name": name,
                "subjects": config["subjects"],
                "allow_atomic": True,
                "allow_batched": True,
                "allow_msg_counter": True,
            }
        self.configs[name] = config
        return self.api(f"STREAM.CREATE.{name}", config)

    def fast(self) -> Operation:
        """The next message of a fast batch, mostly."""
        name = self.random.choice(list(self.configs))
        which = self.random.choice(("f", "g"))
        seq = self.batches.get(name + which, 0) + 1
        if self.random.random() < 0.06:
            seq += self.random.choice((1, 2))  # nats-server does not end a batch that goes back after a refused message
        operation = "0" if seq == 1 else "1"
        if self.random.random() < 0.25:
            operation = self.random.choice(("2", "3", "4", "2", "3", "4", "4", "0", "1", "5", "x"))
        self.batches[name + which] = 0 if operation in "23" else seq - (operation == "4")
        # The flow a batch is begun with stays, though every message says one; gaps must be asked for in the same way, or nats-server
        # leaves a batch without its end.
        gaps = self.gaps[name + which] = (
            self.gaps.get(name + which, "fail") if seq > 1 else self.random.choice(("ok", "fail", "fail"))
        )
        tail = f".{which}.{self.random.choice((2, 2, 3, 10, 0, 'x'))}.{gaps}.{seq}.{operation}.$FI"
        if self.random.random() < 0.02:
            tail = self.random.choice((".$FI", ".1.0.$FI", f".{'i' * 65}.2.ok.1.0.$FI", ".f.2.what.1.0.$FI"))
        header: list[tuple[str, Any]] = []
        if self.random.random() < 0.15:
            header.append(("Nats-Msg-Id", self.random.choice(("i1", "i2", "i3"))))
        if self.random.random() < 0.1:
            header.append(("Nats-Expected-Last-Sequence", self._near()))
        if self.random.random() < 0.1:
            header.append(("Nats-Rollup", self.random.choice(("sub", "all", "x"))))
        if self.configs[name].get("allow_msg_counter") is True:
            header.append(("Nats-Incr", "1"))
        payload = b"" if self.configs[name].get("allow_msg_counter") is True else b"fast"
        return Operation(self._subject(name), payload, block(header), answers=3, tail=tail)


class Priorities(Talker):
    """Consumers with priority groups, pauses, resets; all that is said to consumers."""

    weights: ClassVar[dict[str, int]] = {
        "publish": 20,
        "consumer": 8,
        "pull": 30,
        "ack": 18,
        "ask_consumer": 20,
        "remove": 1,
        "wait": 2,
    }

    def plain_config(self, name: str) -> dict[str, Any]:
        return super().plain_config(name) | {"allow_direct": True}

    def create(self, name: str = "") -> Operation:
        name = name or self.random.choice(self.streams)
        self.configs[name] = self.plain_config(name)
        return self.api(f"STREAM.CREATE.{name}", self.configs[name])

    def consumer(self) -> Operation:
        stream, name = self.random.choice(list(self.configs)), self.random.choice(("c1", "c2", "c3"))
        config: dict[str, Any] = {
            "name": name, "durable_name": name, "ack_policy": "explicit", "ack_wait": self.random.choice((3600 * S, 30 * S)),
            "max_deliver": self.random.choice((-1, -1, 2)), "max_ack_pending": self.random.choice((1000, 3)),
        }  # fmt: skip
        if self.random.random() < 0.75:
            config["priority_groups"] = ["g"]
            config["priority_policy"] = self.random.choice(("overflow", "prioritized", "pinned_client"))
            if config["priority_policy"] == "pinned_client":
                config["priority_timeout"] = self.random.choice((3600 * S, 60 * S))
        old = self.consumers.get((stream, name), config)
        if "pinned_client" in (old.get("priority_policy"), config.get("priority_policy")) and old is not config:
            # nats-server goes on serving the pinned client alone, whatever the policy is changed to.
            policy = ("priority_groups", "priority_policy", "priority_timeout")
            config = {key: each for key, each in config.items() if key not in policy} | {
                key: old[key] for key in policy if key in old
            }
        if self.random.random() < 0.2:
            config["pause_until"] = FAR
        self.consumers[stream, name] = config
        return self.api(f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config})

    def wait(self) -> Step:
        return Quiet()


class Measured(Talker):
    """Counters and schedules."""

    weights: ClassVar[dict[str, int]] = {
        "publish": 40,
        "batch": 3,
        "update": 3,
        "ask_stream": 4,
        "message": 6,
        "direct": 5,
        "remove": 4,
        "pass_time": 2,
    }

    def create(self, name: str = "") -> Operation:
        name = name or self.random.choice(self.streams)
        config = self.plain_config(name) | {"allow_direct": True, "storage": self.random.choice(("file", "memory"))}
        if name == "A":
            config |= {"allow_msg_counter": True, "max_msgs_per_subject": self.random.choice((-1, 1, 3))}
        else:
            config |= {"allow_msg_schedules": True, "allow_msg_ttl": self.random.random() < 0.7}
        self.configs[name] = config
        return self.api(f"STREAM.CREATE.{name}", config)

    def publish(self) -> Operation:
        name = self.random.choice(list(self.configs))
        if name == "A" or self.random.random() < 0.3:
            return super().publish()
        prefix = self.prefix(name)
        pattern = self.random.choice((f"@at {FAR}", "@at 2020-01-01T00:00:00Z", "@every 1h", "0 0 5 * * *", "@daily", "x", "@at x", "@every 1ms",
                                      "@hourly", "* * * * *", "0 0 25 * * *", "@every x", "0 */5 * * * MON-FRI", "@midnight"))  # fmt: skip
        header: list[tuple[str, Any]] = [("Nats-Schedule", pattern)]
        may: tuple[tuple[float, str, tuple[str, ...]], ...] = (
            (0.95, "Nats-Schedule-Target", (f"{prefix}.t", f"{prefix}.t", f"{prefix}.a", "x.y", f"{prefix}.*", "")),
            (0.15, "Nats-Schedule-TTL", ("1h", "x", "never", "")),
            (0.1, "Nats-Schedule-Rollup", ("sub", "all", "")),
            (0.15, "Nats-Schedule-Source", (f"{prefix}.a", f"{prefix}.t", "x.y", "")),
            (0.15, "Nats-Schedule-Time-Zone", ("Europe/Berlin", "Nowhere/X", "UTC", "")),
            (0.1, "Nats-Rollup", ("sub", "all", "x")),
            (0.05, "Nats-Scheduler", (f"{prefix}.a", "")),
            (0.05, "Nats-Schedule-Next", ("purge", "x")),
            (0.1, "Nats-TTL", ("1h", "x")),
        )
        header += [
            (field, self.random.choice(values)) for chance, field, values in may if self.random.random() < chance
        ]
        if self.random.random() < 0.1:
            header = [("Nats-Scheduler", self.random.choice((f"{prefix}.a", f"{prefix}.b", "nobody", f"{prefix}.*"))),
                      ("Nats-Schedule-Next", self.random.choice(("purge", "purge", "x")))]  # fmt: skip
        return Operation(self._subject(name), b"scheduled", block(header))

    def pass_time(self) -> Step:
        return Quiet(1.2)


class Rules(Talker):
    """One stream with some members, changed in some others: which pairs may be."""

    weights: ClassVar[dict[str, int]] = {"create": 10, "update": 30, "wipe": 10, "publish": 4}

    def wipe(self) -> Operation:
        name = self.random.choice(list(self.configs))
        return self.api(f"STREAM.DELETE.{name}")


class Archives(Talker):
    """What STREAM.SNAPSHOT and STREAM.RESTORE are asked with options that nobody asks for."""

    weights: ClassVar[dict[str, int]] = {
        "publish": 12,
        "archive": 14,
        "ask_stream": 2,
        "remove": 2,
        "create": 2,
        "consumer": 2,
    }

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.taken: set[str] = set()

    def _drawn(self, members: Members, count: int) -> dict[str, Any]:
        # nats-server has no backups of what is in memory.
        return super()._drawn({name: each for name, each in members.items() if name != "storage"}, count)

    def archive(self) -> Operation:
        name = self._stream()
        chosen = self.random.choice
        if self.random.random() < 0.5:
            # Once only: how long the first backup that nobody takes is in the way of the next is a race in nats-server.
            nowhere = () if name in self.taken else ("s",) * 4
            body: Any = {"deliver_subject": chosen((*nowhere, "s.*", "", "s t", "s..t", 1, None))}
            if body["deliver_subject"] == "s":
                self.taken.add(name)
            more = {"no_consumers": True, "jsck": chosen((True, False, 1)), "chunk_size": chosen((0, 512, 1024, -1, 1 << 30, "x")),
                    "window_size": chosen((0, 1, 1024, -1, 1 << 40)), "x": 1}  # fmt: skip
            body |= {key: more[key] for key in self.random.sample(sorted(more), chosen((0, 0, 1, 2)))}
            return self.api(f"STREAM.SNAPSHOT.{name}", chosen((body, body, body, None, {}, b"x", [])))
        # A name of its own, for what is begun is never ended; or not the one of the subject.
        own = f"R{self.random.randrange(1 << 30)}"
        name = own if self.random.random() < 0.5 else name
        config = {**self.plain_config(own), **self._drawn(STREAM_MEMBERS, chosen((0, 1, 2)))}
        body = {"config": config, "state": {"messages": 0}}
        if self.random.random() < 0.3:
            body |= chosen(({"state": None}, {"x": 1}, {"state": "x"}))
        return self.api(f"STREAM.RESTORE.{name}", chosen((body, body, body, None, {}, b"x", [])))


SCENARIOS: dict[str, Callable[[int], Talker]] = {
    "all": Talker, "buckets": Buckets, "expiring": Expiring, "batches": Batches, "priorities": Priorities, "measured": Measured,
    "rules": Rules, "archives": Archives, "json": OddJson,
    "limits": Limits, "tiers": Tiers, "imported": Imported,
}  # fmt: skip


def config_of(scenario: str) -> str:
    """What both servers are configured with for conversations of this theme."""
    match scenario:
        case "limits":
            return js_limits.CONFIG
        case "imported":
            return js_imports.CONFIG
        case "tiers":
            return js_limits.tiers_config()
    return CONFIG


def interrupted(steps: list[Step], kill: bool) -> list[Step]:
    """The same conversation with a restart in its middle; what a server still has to write it has written."""
    # A consumer that was set beyond the end of its stream is set back by nats-server's start.
    steps = [
        step
        for step in steps
        if not (isinstance(step, Operation) and ".CONSUMER.RESET." in step.subject and b"seq" in step.payload)
    ]
    # `first_seq` that an update has changed comes into force there, and what was before it is lost, as are sealed counters.
    steps = [
        _restorable(step) if isinstance(step, Operation) and ".STREAM.UPDATE." in step.subject else step
        for step in steps
    ]
    half = len(steps) // 2
    return [*steps[:half], Quiet(1.5), Restart(kill), *steps[half:]]


def _restorable(update: Operation) -> Operation:
    try:
        config = json.loads(update.payload)
    except ValueError:
        return update
    config.pop("first_seq", None)
    if config.get("allow_msg_counter"):
        config.pop("sealed", None)
    return replace(update, payload=json.dumps(config).encode())
