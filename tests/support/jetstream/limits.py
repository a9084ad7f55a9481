"""Random conversations in accounts that may not store all they want: limits of accounts, of tiers in operator mode, of the server."""

from __future__ import annotations

from typing import Any, ClassVar

from support.jetstream.differential import Operation
from support.jetstream.members import STREAM_MEMBERS, Members
from support.jetstream.operations import Talker
from support.trust.claims import ACCOUNT_LIMITS, OPERATOR, Key, operator_conf

_MEMBERS: Members = {
    **{name: STREAM_MEMBERS[name] for name in ("retention", "discard", "max_msgs", "max_age", "max_msg_size", "sealed", "num_replicas")},
    "storage": (["file", "memory"], []),
    "max_bytes": ([-1, 0, 400, 1000, 1500, 2000, 2001, 3000], [6000, 60_000, 150_000, -2]),
    "max_consumers": ([-1, 0, 1, 2], [3, -2]),
    "consumer_limits": ([{}, {"max_ack_pending": 5}], [{"max_ack_pending": 6}, {"max_ack_pending": 1000}, {"max_ack_pending": -1}]),
    "allow_atomic": ([True], []),
    "mirror": ([], [{"name": "A"}]),
    "subjects": ([], [[], ["a.>", "b.q"]]),
}  # fmt: skip

#: Limits of the accounts of a configuration; the last is bound by the server's alone.
ACCOUNTS = (
    "max_mem: 4000, max_file: 8000, max_streams: 2, max_consumers: 2",
    "mem_max_stream_bytes: 1000, disk_max_stream_bytes: 2000, max_ack_pending: 20",
    "max_stream_bytes: true, max_mem: 3000, max_file: 5000, max_ack_pending: 5",
    "max_mem: 0, max_file: 3000, max_streams: 0, max_consumers: 0",
    "max_mem: 2000, max_file: 0, max_streams: 1, max_consumers: 1, mem_max_stream_bytes: 1500",
    "max_mem: -1, max_file: -1",
)
CONFIG = f"""
server_name: TALKER
jetstream {{ store_dir: "%WORKDIR%/js", max_mem: 30000, max_file: 50000 }}
accounts {{
  {"".join(f"L{at} {{ jetstream: {{ {limits} }}, users: [{{ user: l{at}, password: l{at} }}] }}, " for at, limits in enumerate(ACCOUNTS))}
}}
"""

#: Limits of the accounts of operator mode: of all, or of each tier.
_TIERS: tuple[dict[str, Any], ...] = (
    {"mem_storage": 4000, "disk_storage": 8000, "streams": 2, "consumer": 2},
    {"mem_storage": -1, "disk_storage": -1, "mem_max_stream_bytes": 1000, "disk_max_stream_bytes": 2000, "max_ack_pending": 20},
    {"tiered_limits": {"R1": {"mem_storage": 4000, "disk_storage": 8000, "streams": 2, "consumer": 2}}},
    {"tiered_limits": {"R1": {"mem_storage": 3000, "disk_storage": 5000, "streams": -1, "consumer": -1, "max_bytes_required": True, "max_ack_pending": 5}}},
    {"tiered_limits": {"R1": {"mem_storage": -1, "disk_storage": -1, "streams": 3, "consumer": 3, "mem_max_stream_bytes": 1000, "disk_max_stream_bytes": 2000},
                       "R3": {"mem_storage": 9000, "disk_storage": 9000, "streams": 1, "consumer": 1}}},
    {"tiered_limits": {"R3": {"mem_storage": 9000, "disk_storage": 9000, "streams": 1, "consumer": 1}}},
)  # fmt: skip
_KEYS = [Key("A", 20 + at) for at in range(len(_TIERS))]
_USER = Key("U", 40)


def tiers_config() -> str:
    """The configuration of operator mode."""
    tokens = [
        OPERATOR.account(key, limits={"streams": -1, "consumer": -1} | ACCOUNT_LIMITS | limits)
        if "tiered_limits" not in limits
        else OPERATOR.account(key, limits=ACCOUNT_LIMITS | limits)
        for key, limits in zip(_KEYS, _TIERS, strict=True)
    ]
    return f'server_name: TALKER\njetstream {{ store_dir: "%WORKDIR%/js" }}\n{operator_conf(*tokens)}'


class Limits(Talker):
    """Streams and consumers up to what their account may have, and beyond; which account, the seed says."""

    weights: ClassVar[dict[str, int]] = {
        "create": 10,
        "update": 12,
        "publish": 30,
        "batch": 3,
        "consumer": 12,
        "remove": 8,
        "pull": 2,
        "ask_stream": 2,
        "info": 8,
    }

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.wild = self.random.choice((0.1, 0.3))
        name = f"l{seed % len(ACCOUNTS)}"
        self.connect = {"user": name, "pass": name}

    def create(self, name: str = "") -> Operation:
        name = name or self.random.choice(self.streams)
        config = self.plain_config(name) | self._drawn(_MEMBERS, self.random.choice((1, 2, 3)))
        if self.random.random() < 0.6:
            config.setdefault("max_bytes", self.random.choice((400, 1000, 2000)))
        self.configs[name] = config
        return self.api(f"STREAM.CREATE.{name}", config)

    def update(self) -> Operation:
        name = self.random.choice(list(self.configs))
        config = self.configs[name] | self._drawn(_MEMBERS, self.random.choice((1, 1, 2)))
        if self.random.random() < 0.7:
            self.configs[name] = {**config, "name": name}
        return self.api(f"STREAM.UPDATE.{name}", config)

    def consumer(self) -> Operation:
        stream, name = self.random.choice(list(self.configs)), self.random.choice(("c1", "c2", "c3", "c4"))
        config: dict[str, Any] = {
            "name": name, "durable_name": name, "ack_policy": self.random.choice(("explicit", "explicit", "all", "none")),
            "mem_storage": self.random.random() < 0.3,
        }  # fmt: skip
        if self.random.random() < 0.6:
            config["max_ack_pending"] = self.random.choice((0, -1, 1, 5, 6, 20, 21, 1000, 1001))
        self.consumers[stream, name] = config
        return self.api(f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": config})

    def info(self) -> Operation:
        return self.api("INFO", reads=True)


class Tiers(Limits):
    """The same in operator mode, where accounts have limits by the number of replicas."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        account = _KEYS[seed % len(_KEYS)]
        self.connect = {"jwt": account.user(_USER, bearer_token=True)}
