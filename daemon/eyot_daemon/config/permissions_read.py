"""Reading `permissions { }` blocks."""

from __future__ import annotations

from eyot_daemon.config.permissions import (
    RESPONSE_EXPIRES_S_DEFAULT,
    RESPONSE_MAX_DEFAULT,
    Permissions,
    ResponsePermission,
    SubjectPermission,
)
from eyot_daemon.config.reader import Block, expect_boolean, expect_string, wrong_type
from eyot_wire import subject
from eyot_wire.conf import ConfError, ConfMap, ConfValue


def read_permissions(block: Block) -> Permissions:
    """`publish`/`pub`/`import`, `subscribe`/`sub`/`export`, `allow_responses`."""
    publish = _read_direction(block, "publish", "pub", "import", queues=False)
    subscribe = _read_direction(block, "subscribe", "sub", "export", queues=True)
    responses = _read_responses(block)
    block.finish()
    if responses is not None and publish.allow is None:
        # nats-server: with allow_responses and no publish list only replies may be published.
        publish = SubjectPermission(allow=(), deny=publish.deny)
    return Permissions(publish=publish, subscribe=subscribe, allow_responses=responses)


def read_permissions_of(block: Block, *keys: str) -> Permissions | None:
    """Return the permissions under one of these keys, None if absent."""
    nested = block.block(*keys)
    return None if nested is None else read_permissions(nested)


def read_subjects(value: ConfValue, key: str, *, queues: bool = False) -> tuple[bytes, ...]:
    """Read a subject or an array of subjects; `queues`: an entry may be `subject queue`."""
    if isinstance(value.value, tuple):
        return tuple(_read_subject(element, key, queues) for element in value.value)
    if isinstance(value.value, str):
        return (_read_subject(value, key, queues),)
    raise wrong_type("a subject or an array of subjects", value, key)


def _read_subject(value: ConfValue, key: str, queues: bool) -> bytes:
    text = expect_string(value, key)
    parts = text.encode().split()
    if len(parts) != 1 and not (queues and len(parts) == 2):
        raise ConfError(f'subject "{text}" is not a valid subject', value.position, key)
    for part in parts:
        if not subject.is_valid(part):
            raise ConfError(f'subject "{text}" is not a valid subject', value.position, key)
    return b" ".join(parts)


def _read_direction(block: Block, *keys: str, queues: bool) -> SubjectPermission:
    entry = block.entry(*keys)
    if entry is None:
        return SubjectPermission()
    if not isinstance(entry.value.value, ConfMap):
        return SubjectPermission(allow=read_subjects(entry.value, entry.key, queues=queues))
    direction = block.nested(entry.value, entry.key)
    allow = direction.entry("allow")
    deny = direction.entry("deny")
    direction.finish()
    return SubjectPermission(
        allow=None if allow is None else read_subjects(allow.value, allow.key, queues=queues),
        deny=() if deny is None else read_subjects(deny.value, deny.key, queues=queues),
    )


def _read_responses(block: Block) -> ResponsePermission | None:
    entry = block.entry("allow_responses", "publish_allow_responses", "allow_response")
    if entry is None:
        return None
    if not isinstance(entry.value.value, ConfMap):
        return ResponsePermission() if expect_boolean(entry.value, entry.key) else None
    limits = block.nested(entry.value, entry.key)
    count = limits.integer("max", "max_msgs", "max_messages", "max_responses", default=0)
    expires_s = limits.seconds("expires", "expiration", "ttl", default=0.0, minimum=float("-inf"))
    limits.finish()
    return ResponsePermission(
        max_messages=count or RESPONSE_MAX_DEFAULT, expires_s=expires_s or RESPONSE_EXPIRES_S_DEFAULT
    )
