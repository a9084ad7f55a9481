"""Reading `eyot { bridges { } }`."""

from __future__ import annotations

from typing import Final, Literal
from urllib.parse import unquote, urlsplit

from eyot_daemon.config.bridges import PORTS, BridgeOptions
from eyot_daemon.config.leaf import URL_RULES, LeafUrl
from eyot_daemon.config.reader import Block, expect_array, expect_string
from eyot_daemon.config.tls_read import read_tls
from eyot_sync.bridge.topic_rules import EVERYTHING, TopicRule, subscription_of
from eyot_wire.conf import ConfEntry, ConfError, ConfMap, ConfValue
from eyot_wire.mqtt import topics

_SCHEMES: Final = {
    "mqtt": "mqtt",
    "tcp": "mqtt",
    "mqtts": "mqtts",
    "ssl": "mqtts",
    "tls": "mqtts",
    "ws": "ws",
    "wss": "wss",
}
_UINT16_MAX: Final = 65_535
_EXPIRY_S_MAX: Final = 2**32 - 1
_QOS_MAX: Final = 2
_VERSIONS: Final[dict[str, Literal["auto", "5.0", "3.1.1"]]] = {
    "auto": "auto",
    "5": "5.0",
    "5.0": "5.0",
    "3.1.1": "3.1.1",
}
_STARTS: Final[dict[str, Literal["all", "new"]]] = {"all": "all", "new": "new"}
_REFUSED: Final[dict[str, Literal["retry", "skip"]]] = {"retry": "retry", "skip": "skip"}


def read_bridges(block: Block | None) -> tuple[BridgeOptions, ...]:
    """Read the block; no bridges if absent."""
    if block is None:
        return ()
    found = []
    for entry in block.all():
        if not entry.key or any(character in entry.key for character in ".*> \t/"):
            raise ConfError("expected a name without spaces, dots, slashes and wildcards", entry.position, entry.key)
        found.append(_read_bridge(entry.key, block.nested(entry.value, entry.key)))
    return tuple(found)


def _read_bridge(name: str, block: Block) -> BridgeOptions:
    block.remember(f"bridge:{name}", "url", "urls")
    block.remember(f"bridge:account:{name}", "account")
    block.remember(f"bridge:client_id:{name}", "client_id")
    user, password, password_file = _read_credentials(block.block("credentials"))
    qos = block.integer("qos", default=1, minimum=0, maximum=_QOS_MAX)
    out, incoming = _read_topics(block.block("topics"))
    version = block.entry("protocol_version")
    bridge = BridgeOptions(
        name=name,
        urls=_read_urls(block),
        account=block.string("account", default="$G"),
        client_id=block.string("client_id"),
        user=user,
        password=password,
        password_file=password_file,
        tls=read_tls(block, "tls", client=True),
        alpn=block.strings("alpn"),
        streams=block.strings("streams", "stream"),
        out=out,
        incoming=incoming,
        qos=qos,
        start=_STARTS[block.choice("start", allowed=tuple(_STARTS), default="all")],
        protocol_version="auto" if version is None else _read_version(version),
        keep_alive_s=_whole_seconds(block, "keep_alive", default=60, most=_UINT16_MAX),
        session_expiry_s=_whole_seconds(block, "session_expiry", default=30 * 86_400, most=_EXPIRY_S_MAX),
        inflight_max=block.integer("max_inflight", default=100, minimum=1, maximum=_UINT16_MAX),
        refused=_REFUSED[block.choice("refused", allowed=tuple(_REFUSED), default="retry")],
        retry_s=block.seconds("retry", default=10.0, minimum=0.1),
        reconnect_s=block.seconds("reconnect", default=1.0, minimum=0.1),
        dial_timeout_s=block.seconds("dial_timeout", default=10.0, minimum=0.1),
        disabled=block.boolean("disabled"),
    )
    _check(block, bridge)
    block.finish()
    return bridge


def _check(block: Block, bridge: BridgeOptions) -> None:
    if not bridge.streams and not bridge.incoming:
        raise block.error("a bridge needs streams to forward, or topics to take in: streams, topics { in }", "streams")
    if bridge.out and not bridge.streams:
        raise block.error("outgoing topics without streams: name the streams to forward", "topics")
    if len(set(bridge.streams)) != len(bridge.streams):
        raise block.error("a stream is named twice", "streams", "stream")
    for stream in bridge.streams:
        if not stream or any(character in stream for character in ".*> \t"):
            raise block.error("expected names of streams, without wildcards", "streams", "stream")
    if bridge.password is not None and bridge.password_file:
        raise block.error("password or password_file, not both", "credentials")
    if any(len(each.encode()) > 255 or not each for each in bridge.alpn):
        raise block.error("expected protocol names of 1 to 255 bytes", "alpn")
    if "\0" in bridge.client_id or len(bridge.client_id.encode()) > _UINT16_MAX:
        raise block.error("is no client identifier of MQTT", "client_id")


def _read_version(entry: ConfEntry) -> Literal["auto", "5.0", "3.1.1"]:
    version = _VERSIONS.get(str(entry.value.value).lower())
    if version is None:
        raise ConfError("expected auto, 5.0 or 3.1.1", entry.value.position, entry.key)
    return version


def _whole_seconds(block: Block, key: str, *, default: int, most: int) -> int:
    """Return a time that MQTT counts in seconds: a bare number, or a duration."""
    seconds = block.timeout(key, default=default)
    if not 0 <= seconds <= most or seconds != int(seconds):
        raise block.error(f"expected whole seconds, at most {most}", key)
    return int(seconds)


def _read_credentials(block: Block | None) -> tuple[str, str | None, str]:
    if block is None:
        return "", None, ""
    user = block.string("user", "username")
    password = block.string("password", "pass") if block.entry("password", "pass") is not None else None
    password_file = block.string("password_file")
    block.finish()
    return user, password, password_file


def _read_urls(block: Block) -> tuple[LeafUrl, ...]:
    entry = block.entry("urls", "url")
    if entry is None:
        raise block.error("a bridge needs a url", "url")
    values = entry.value.value if isinstance(entry.value.value, tuple) else (entry.value,)
    urls = tuple(_read_url(value, entry) for value in values)
    if not urls:
        raise block.error("a bridge needs a url", "urls", "url")
    return urls


def _read_url(value: ConfValue, entry: ConfEntry) -> LeafUrl:
    """One URL. The error repeats nothing of it: it may hold a password."""
    text = expect_string(value, entry.key).strip()
    try:
        parts = urlsplit(text if "://" in text else f"mqtt://{text}")
        host, port = parts.hostname or "", parts.port
        if not host or parts.scheme not in _SCHEMES:
            raise ValueError("no host")
    except ValueError:
        raise ConfError(
            f"error parsing url: expected mqtt, mqtts, ws or wss://[user:password@]host[:port][/path]: {URL_RULES}",
            value.position,
            entry.key,
        ) from None
    scheme = _SCHEMES[parts.scheme]
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    return LeafUrl(
        scheme=scheme,
        host=host,
        port=port or PORTS[scheme],
        user=unquote(parts.username or ""),
        password=None if parts.password is None else unquote(parts.password),
        path=path if scheme in ("ws", "wss") else "",
    )


def _read_topics(block: Block | None) -> tuple[tuple[TopicRule, ...], tuple[TopicRule, ...]]:
    if block is None:
        return (), ()
    out, incoming = _read_rules(block, "out"), _read_rules(block, "in")
    block.finish()
    return out, incoming


def _read_rules(block: Block, direction: str) -> tuple[TopicRule, ...]:
    entry = block.entry(direction)
    if entry is None:
        return ()
    value = entry.value
    values = expect_array(value, entry.key) if isinstance(value.value, tuple) else (value,)
    return tuple(_read_rule(block, each, entry.key, is_out=direction == "out") for each in values)


def _read_rule(block: Block, value: ConfValue, key: str, *, is_out: bool) -> TopicRule:
    """One rule: a filter, or a map of a filter with prefixes and QoS."""
    if not isinstance(value.value, ConfMap):
        rule = TopicRule(filter=expect_string(value, key))
    else:
        rule_block = block.nested(value, key)
        rule = TopicRule(
            filter=rule_block.string("filter", "topic", default=EVERYTHING.filter),
            local_prefix=rule_block.string("local_prefix"),
            remote_prefix=rule_block.string("remote_prefix"),
            qos=rule_block.integer("qos", default=-1, minimum=0, maximum=_QOS_MAX),
            retain=rule_block.boolean("retain") if is_out else False,
        )
        rule_block.finish()
    here, there = rule.local_prefix + rule.filter, subscription_of(rule)
    for prefix in (rule.local_prefix, rule.remote_prefix):
        if "#" in prefix or "+" in prefix:
            raise ConfError("a prefix has no wildcards", value.position, key)
    if topics.filter_subjects(here) is None:
        raise ConfError(f"{here!r} is no topic filter that subjects can have", value.position, key)
    if not topics.is_valid_filter(there) or len(there.encode()) > _UINT16_MAX:
        raise ConfError(f"{there!r} is no topic filter", value.position, key)
    return rule
