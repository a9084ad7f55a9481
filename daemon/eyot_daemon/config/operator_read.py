"""Reading `operator`, `trusted_keys`, `resolver`, `resolver_preload`, `resolver_pinned_accounts`, `default_sentinel`."""

from __future__ import annotations

import re
from pathlib import Path

from eyot_daemon.config.operator import OperatorOptions, ResolverOptions
from eyot_daemon.config.reader import Block, expect_string
from eyot_daemon.config.tls_read import read_tls
from eyot_daemon.version import VERSION
from eyot_wire.conf import ConfEntry, ConfError, ConfMap
from eyot_wire.trust import nkey
from eyot_wire.trust.jwt import JwtError, decode
from eyot_wire.trust.jwt_account import OperatorClaims, decode_account, decode_operator

_OPERATOR_KEYS = ("operator", "operators", "roots", "root", "root_operators", "root_operator")
_RESOLVER_KEYS = ("resolver", "account_resolver", "accounts_resolver")
_TRUSTED_KEYS = ("trusted", "trusted_keys")
_DECORATED = re.compile(r"-{3,}[^\n]*-{3,}\n([A-Za-z0-9_\-.=]+)\n-{3,}")
_MEMORY = ("mem", "memory")
_URL = re.compile(r"url\(\s*\"?(https?://[^\s\"()]+)\"?\s*\)", re.IGNORECASE)
#: nats-server's default for the number of cached tokens.
_CACHE_LIMIT = 1000


def read_operator(block: Block) -> OperatorOptions | None:
    """Operator mode as configured, None without. Raises ConfError."""
    for place, keys in (("operator", _OPERATOR_KEYS), ("resolver", _RESOLVER_KEYS)):
        block.remember(place, *keys)
    operators = tuple(_read_operator(text, entry) for text, entry in _operator_texts(block))
    trusted = block.strings(*_TRUSTED_KEYS)
    for key in trusted:
        if not nkey.is_public(key, "O"):
            raise block.error(f'trusted key "{key}" is required to be a valid public operator nkey', *_TRUSTED_KEYS)
    options = OperatorOptions(
        operators=operators,
        trusted_keys=trusted + tuple(key for operator in operators for key in operator.trusted_keys),
        resolver=_read_resolver(block),
        preload=_read_preload(block),
        pinned=_read_pinned(block),
        default_sentinel=_read_sentinel(block),
    )
    if not options.trusted_keys:
        if options.default_sentinel:
            raise block.error("default sentinel requires operators and accounts", "default_sentinel")
        return None
    if operators and trusted:
        raise block.error("conflicting options for 'trusted_keys' and 'operator'", *_TRUSTED_KEYS)
    if options.resolver is None:
        raise block.error("operators require an account resolver to be configured", *_OPERATOR_KEYS, *_TRUSTED_KEYS)
    return options


def system_account_of(operator: OperatorOptions, block: Block, configured: str | None) -> str | None:
    """Return the system account: the configured one, else the operator's; None if neither names one. Raises ConfError."""
    named = [one.body.system_account for one in operator.operators if one.body.system_account]
    if configured is None:
        return named[0] if named and len(operator.operators) == 1 else None
    if named and configured not in named:
        message = "system_account in config and operator JWT must be identical"
        raise block.error(message, "system_account", "system")
    return configured


def _operator_texts(block: Block) -> list[tuple[str, ConfEntry]]:
    entry = block.entry(*_OPERATOR_KEYS)
    return [] if entry is None else [(text, entry) for text in block.strings(*_OPERATOR_KEYS)]


def _read_operator(text: str, entry: ConfEntry) -> OperatorClaims:
    """Read the token itself, or a file that holds it, decorated or bare."""
    try:
        if not text.startswith("eyJ"):
            text = Path(text).read_text(encoding="utf-8")
        decorated = _DECORATED.search(text)
        operator = decode_operator(decorated[1] if decorated is not None else text)
    except (JwtError, OSError, UnicodeDecodeError) as error:
        raise ConfError(f"error parsing operator JWT: {error}", entry.value.position, entry.key) from None
    wanted = operator.body.assert_server_version
    if wanted and _version(wanted) > _version(VERSION):
        message = f"operator {operator.claims.sub} expects server version {wanted}, this is {VERSION}"
        raise ConfError(message, entry.value.position, entry.key)
    return operator


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall("[0-9]{1,9}", text)[:3])


def _read_resolver(block: Block) -> ResolverOptions | None:
    entry = block.entry(*_RESOLVER_KEYS)
    tls = read_tls(block, "resolver_tls", client=True)
    if entry is None:
        return None
    if isinstance(entry.value.value, ConfMap):
        return _read_directory(block.nested(entry.value, entry.key))
    text = expect_string(entry.value, entry.key).strip().lower()
    if text in _MEMORY:
        return ResolverOptions(kind="memory")
    found = _URL.fullmatch(expect_string(entry.value, entry.key).strip())
    if found is not None:
        return ResolverOptions(kind="url", url=found[1] if found[1].endswith("/") else f"{found[1]}/", tls=tls)
    message = "error parsing account resolver, should be MEM, a map or URL(url)"
    raise ConfError(message, entry.value.position, entry.key)


def _read_directory(block: Block) -> ResolverOptions:
    kind = block.string("type").lower()
    allow_delete, hard_delete = block.boolean("allow_delete"), block.boolean("hard_delete")
    limit, directory = block.integer("limit", default=0, minimum=0), block.string("dir")
    # Eyot does not compare its store with other servers' stores and sends them no requests.
    block.seconds("interval", default=0.0)
    block.seconds("timeout", default=0.0)
    ttl_s = block.seconds("ttl", default=0.0)
    block.finish()
    if kind in _MEMORY:
        return ResolverOptions(kind="memory")
    if kind not in ("full", "cache"):
        raise block.error("error parsing account resolver, type should be FULL, CACHE or MEMORY", "type")
    if not directory:
        raise block.error("dir has no value and needs to point to a directory", "dir")
    if Path(directory).exists() and not Path(directory).is_dir():
        raise block.error("dir needs to point to an accessible directory", "dir")
    if hard_delete and not allow_delete:
        raise block.error("hard_delete has no effect without delete", "hard_delete")
    if kind == "cache":
        if allow_delete or hard_delete:
            raise block.error("CACHE does not accept allow_delete or hard_delete", "allow_delete", "hard_delete")
        return ResolverOptions(kind="cache", directory=directory, limit=limit or _CACHE_LIMIT, ttl_s=ttl_s)
    return ResolverOptions(
        kind="full", directory=directory, allow_delete=allow_delete, hard_delete=hard_delete, limit=limit
    )


def _read_preload(block: Block) -> tuple[tuple[str, str], ...]:
    # Keys are public keys: the map is read directly, since a Block ignores case.
    entry = block.entry("resolver_preload")
    if entry is None:
        return ()
    if not isinstance(entry.value.value, ConfMap):
        message = "preload should be a map of account_public_key:account_jwt"
        raise ConfError(message, entry.value.position, entry.key)
    tokens = []
    for named in entry.value.value:
        token = expect_string(named.value, named.key)
        try:
            if decode_account(token).name != named.key:
                raise JwtError("it is another account's")
        except JwtError as error:
            raise ConfError(f"invalid account JWT: {error}", named.value.position, named.key) from None
        tokens.append((named.key, token))
    return tuple(tokens)


def _read_pinned(block: Block) -> frozenset[str] | None:
    entry = block.entry("resolver_pinned_accounts")
    if entry is None:
        return None
    pinned = block.strings("resolver_pinned_accounts")
    for key in pinned:
        if not nkey.is_public(key, "A"):
            raise block.error(f'pinned account key "{key}" is not a valid public account nkey', entry.key)
    return frozenset(pinned)


def _read_sentinel(block: Block) -> str:
    token = block.string("default_sentinel")
    if not token:
        return ""
    try:
        user = decode(token)
    except JwtError:
        raise block.error("default sentinel JWT not valid", "default_sentinel") from None
    scoped = bool(user.nats.issuer_account) and user.nats.is_empty
    if user.kind != "user" or not (user.nats.bearer_token or scoped):
        raise block.error("default sentinel must be a bearer token", "default_sentinel")
    return token
