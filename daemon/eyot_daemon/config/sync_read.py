"""Reading `eyot { sync { } }`: policies of streams and of remotes."""

from __future__ import annotations

from typing import Literal

from eyot_daemon.config.leaf import LEAF_PORT_DEFAULT
from eyot_daemon.config.reader import Block, expect_array, expect_string
from eyot_sync.policy.policy import (
    PRIORITY_DEFAULT,
    PRIORITY_MAX,
    MeteredPolicy,
    RemotePolicy,
    StreamPolicy,
    StreamRule,
    SyncPolicies,
)
from eyot_sync.policy.windows import Window, parse_window
from eyot_wire.conf import ConfError, ConfValue
from eyot_wire.digits import parse_uint

#: Less than this a month is a mistake in the unit: the handshakes of a day cost more.
_BUDGET_MIN = 64 * 1024
#: A stream slower than this could not finish a message of usual size within a minute.
_BANDWIDTH_MIN = 16
_PING_INTERVAL_S_MIN = 5.0
_USED_UP: dict[str, Literal["disconnect", "hold"]] = {"disconnect": "disconnect", "hold": "hold"}


def read_sync(block: Block | None) -> SyncPolicies:
    """Read the block; no policies if absent."""
    if block is None:
        return SyncPolicies()
    policies = SyncPolicies(streams=_read_streams(block.block("streams")), remotes=_read_remotes(block))
    block.finish()
    return policies


def _read_streams(block: Block | None) -> tuple[StreamRule, ...]:
    if block is None:
        return ()
    rules = []
    for entry in block.all():
        stream = block.nested(entry.value, entry.key)
        if not entry.key or any(character in entry.key for character in ".> \t"):
            raise ConfError("expected the name of a stream, * for any characters", entry.position, entry.key)
        policy = StreamPolicy(
            priority=stream.integer("priority", default=PRIORITY_DEFAULT, minimum=0, maximum=PRIORITY_MAX),
            bandwidth=_read_bandwidth(stream),
            windows=_read_windows(stream),
        )
        stream.remember(f"sync:stream:{entry.key}", "account")
        rules.append(StreamRule(name=entry.key, account=stream.string("account"), policy=policy))
        stream.finish()
    return tuple(rules)


def _read_bandwidth(block: Block) -> int:
    bandwidth = block.size("bandwidth", default=0)
    if "bandwidth" in block and bandwidth < _BANDWIDTH_MIN:
        raise block.error(f"must be at least {_BANDWIDTH_MIN} bytes per second", "bandwidth")
    return bandwidth


def _read_windows(block: Block) -> tuple[Window, ...]:
    entry = block.entry("windows", "window")
    if entry is None:
        return ()
    values = (entry.value,) if isinstance(entry.value.value, str) else expect_array(entry.value, entry.key)
    if not values:
        raise block.error("expected at least one window; without the key there is no restriction", "windows", "window")
    return tuple(_read_window(value, entry.key) for value in values)


def _read_window(value: ConfValue, key: str) -> Window:
    try:
        return parse_window(expect_string(value, key))
    except ValueError as error:
        raise ConfError(str(error), value.position, key) from None


def _read_remotes(block: Block) -> tuple[RemotePolicy, ...]:
    found = []
    for index, remote in enumerate(block.blocks("remotes")):
        host, port = _read_address(remote)
        remote.remember(f"sync:remote:{index}", "url")
        remote.remember(f"sync:metered:{index}", "metered")
        policy = RemotePolicy(
            host=host,
            port=port,
            account=remote.string("account"),
            windows=_read_windows(remote),
            metered=_read_metered(remote.block("metered")),
        )
        remote.finish()
        found.append(policy)
    return tuple(found)


def _read_address(block: Block) -> tuple[str, int]:
    text = block.string("url").rpartition("://")[2].partition("/")[0]
    if not text:
        raise block.error("a remote's policy needs the url of a remote of leafnodes, host:port", "url")
    if "@" in text:
        raise block.error("name the remote by host:port, without credentials", "url")
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        return text.strip("[]"), LEAF_PORT_DEFAULT
    number = parse_uint(port)
    if number is None:
        raise block.error("expected host:port", "url")
    return host.strip("[]"), number


def _read_metered(block: Block | None) -> MeteredPolicy | None:
    if block is None:
        return None
    metered = MeteredPolicy(
        budget=block.size("budget", default=-1),
        reset_day=block.integer("reset_day", default=1, minimum=1, maximum=28),
        reserve=block.size("reserve", default=0),
        used_up=_USED_UP[block.choice("used_up", allowed=tuple(_USED_UP), default="disconnect")],
        ping_interval_s=block.seconds("ping_interval", default=300.0, minimum=_PING_INTERVAL_S_MIN),
    )
    block.finish()
    if metered.budget < _BUDGET_MIN:
        raise block.error("a metered remote needs a budget of at least 64K, bytes a month", "budget")
    if not 0 <= metered.reserve < metered.budget:
        raise block.error("must be less than the budget", "reserve")
    return metered
