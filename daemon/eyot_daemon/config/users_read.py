"""Reading `users [ ]`, of accounts, of `authorization { }` and of leaf listeners, and `authorization { }` itself."""

from __future__ import annotations

from eyot_daemon.config.accounts import GLOBAL_ACCOUNT, AuthCalloutOptions, AuthorizationOptions, UserOptions
from eyot_daemon.config.permissions_read import read_permissions_of
from eyot_daemon.config.reader import Block
from eyot_wire.trust import nkey

CONNECTION_TYPES = frozenset({"STANDARD", "WEBSOCKET", "LEAFNODE", "LEAFNODE_WS", "MQTT", "MQTT_WS", "IN_PROCESS"})


def read_users(parent: Block, account: str, *keys: str) -> tuple[UserOptions, ...]:
    """Read the users of one account; each name and nkey is recorded as `user:NAME` and refused if it occurs twice."""
    return tuple(_read_user(block, account, unique="user") for block in parent.blocks(*keys))


def read_leaf_users(parent: Block) -> tuple[UserOptions, ...]:
    """Users of `leafnodes { authorization { } }`: each may name its account; their names are their own."""
    return tuple(
        _read_user(block, block.string("account", default=GLOBAL_ACCOUNT), unique="leaf user")
        for block in parent.blocks("users")
    )


def _read_user(block: Block, account: str, *, unique: str) -> UserOptions:
    refuse_proxy_required(block)
    user = UserOptions(
        account=account,
        user=block.string("user", "username"),
        password=block.string("pass", "password"),
        nkey=block.string("nkey"),
        permissions=read_permissions_of(block, "permissions", "permission", "authorization"),
        connection_types=_read_connection_types(block),
    )
    block.finish()
    if not user.user and not user.nkey:
        raise block.error("User entry requires a user", "user", "username")
    if user.nkey:
        if not nkey.is_public(user.nkey, "U"):
            raise block.error("Not a valid public nkey for a user", "nkey")
        if user.user or user.password:
            raise block.error("Nkey users do not take usernames or passwords", "nkey")
    _check_unique(block, user.user or user.nkey, unique)
    return user


def _check_unique(block: Block, name: str, unique: str) -> None:
    place = f"{unique}:{name}"
    if place in block.reading.places:
        what = "Duplicate nkey" if "nkey" in block else "Duplicate user"
        raise block.error(f'{what} "{name}" detected', "user", "username", "nkey")
    block.remember(place, "user", "username", "nkey")


def _read_connection_types(block: Block) -> frozenset[str]:
    keys = ("allowed_connection_types", "connection_types", "clients")
    names = [name.upper() for name in block.strings(*keys)]
    unknown = [name for name in names if name not in CONNECTION_TYPES]
    if unknown:
        raise block.error(f"invalid connection types {' '.join(unknown)}", *keys)
    return frozenset(names)


def refuse_proxy_required(block: Block) -> None:
    """Refuse a rule that only trusted proxies could enforce: a configuration must not suggest that it is enforced."""
    if block.boolean("proxy_required"):
        raise block.error("trusted proxies are not offered by eyotd, so nobody could connect", "proxy_required")


def _read_callout(block: Block | None) -> AuthCalloutOptions | None:
    if block is None:
        return None
    callout = AuthCalloutOptions(
        issuer=block.string("issuer"),
        account=block.string("account", "acc", default=GLOBAL_ACCOUNT),
        auth_users=block.strings("auth_users", "users"),
        xkey=block.string("xkey", "key"),
        allowed_accounts=block.strings("allowed_accounts"),
    )
    block.finish()
    if not nkey.is_public(callout.issuer, "A"):
        raise block.error("Expected callout user to be a valid public account nkey", "issuer")
    if not callout.auth_users:
        raise block.error("auth_callout needs auth_users: somebody must answer", "auth_users")
    if callout.xkey and not nkey.is_public(callout.xkey, "X"):
        raise block.error("Expected callout xkey to be a valid public xkey", "xkey", "key")
    return callout


def read_authorization(block: Block | None) -> AuthorizationOptions:
    """Top-level `authorization { }`; its users belong to the global account."""
    if block is None:
        return AuthorizationOptions()
    refuse_proxy_required(block)
    defaults = read_permissions_of(block, "default_permission", "default_permissions", "permissions")
    authorization = AuthorizationOptions(
        user=block.string("user", "username"),
        password=block.string("pass", "password"),
        token=block.string("token"),
        timeout_s=block.timeout("timeout", default=2.0),
        users=read_users(block, GLOBAL_ACCOUNT, "users"),
        default_permissions=defaults,
        auth_callout=_read_callout(block.block("auth_callout", "auth_hook")),
    )
    block.finish()
    if authorization.token and (authorization.user or authorization.password):
        raise block.error("Cannot have a user/pass and token", "token")
    if authorization.users and authorization.token:
        raise block.error("Can not have a token and a users array", "users")
    if authorization.users and (authorization.user or authorization.password):
        raise block.error("Can not have a single user/pass and a users array", "users")
    if authorization.password and not authorization.user:
        raise block.error("a password needs a user", "pass", "password")
    return authorization
