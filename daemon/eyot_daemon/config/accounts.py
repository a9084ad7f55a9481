"""Accounts and users of the configuration: `accounts { }` and `authorization { }` as typed values.

The broker builds its accounts from these Structs. `config/accounts_read.py` reads them from a configuration.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from eyot_daemon.config.permissions import Permissions

GLOBAL_ACCOUNT = "$G"
SYSTEM_ACCOUNT_DEFAULT = "$SYS"

ConnectionType = Literal["STANDARD", "WEBSOCKET", "LEAFNODE", "LEAFNODE_WS", "MQTT", "MQTT_WS", "IN_PROCESS"]
ResponseType = Literal["singleton", "stream", "chunked"]


class UserOptions(Struct, frozen=True, kw_only=True):
    """One user: either `user` with `password` (plain text or bcrypt), or `nkey` (public key `U...`)."""

    account: str
    user: str = ""
    password: str = ""
    nkey: str = ""
    permissions: Permissions | None = None  # None: the account's default_permissions, then authorization's
    connection_types: frozenset[str] = frozenset()  # empty: all


class LatencyOptions(Struct, frozen=True, kw_only=True):
    """Service latency sampling of an export: `sampling` in percent (1..100), 0: only requests whose headers ask for it."""

    subject: bytes
    sampling: int = 100


class ExportOptions(Struct, frozen=True, kw_only=True):
    """One export of an account. `accounts` None: public; otherwise exactly these account names may import.

    With `token_required` an import needs an activation. `revocations` map an importing account (or "*") to the second
    since the epoch up to which its activations are revoked.
    """

    kind: Literal["stream", "service"]
    subject: bytes
    accounts: tuple[str, ...] | None = None
    token_required: bool = False
    revocations: tuple[tuple[str, int], ...] = ()
    response_type: ResponseType = "singleton"
    response_threshold_s: float = 120.0
    latency: LatencyOptions | None = None
    account_token_position: int = 0
    allow_trace: bool = False


class ImportOptions(Struct, frozen=True, kw_only=True):
    """One import of an account.

    `subject` is the exporter's subject. `to` is the local subject (b"": equal to `subject`; for a stream it may be a
    transform with `$1`). `prefix` (streams only): messages arrive as `prefix.subject`. `activated_at`: when the
    exporter issued the valid activation of this import, in seconds since the epoch; None: there is none.
    """

    kind: Literal["stream", "service"]
    account: str
    subject: bytes
    to: bytes = b""
    prefix: bytes = b""
    share: bool = False
    allow_trace: bool = False
    activated_at: int | None = None


class MappingDestination(Struct, frozen=True, kw_only=True):
    """One weighted destination of a mapping; `weight` in percent; `cluster` empty: everywhere."""

    subject: str
    weight: int = 100
    cluster: str = ""


class MappingOptions(Struct, frozen=True, kw_only=True):
    """`mappings { source: destinations }`, in order of declaration."""

    source: str
    destinations: tuple[MappingDestination, ...]


class AccountLimits(Struct, frozen=True, kw_only=True):
    """`limits { }` of an account; -1 = no limit."""

    connections_max: int = -1
    subscriptions_max: int = -1
    payload_max: int = -1
    leafnodes_max: int = -1


class AccountJetStreamOptions(Struct, frozen=True, kw_only=True):
    """JetStream limits of one account, in bytes and counts; -1 = no limit (the server's own still hold), of counts 0 as well.

    An account may have tiers instead: limits by the number of a stream's replicas, `R1` being all that one server can have. Then the
    other fields are those of `R1`, if there is such a tier.
    """

    memory_max: int = -1
    file_max: int = -1
    streams_max: int = -1
    consumers_max: int = -1
    ack_pending_max: int = -1
    memory_stream_bytes_max: int = -1
    file_stream_bytes_max: int = -1
    max_bytes_required: bool = False
    tiers: tuple[tuple[str, AccountJetStreamOptions], ...] = ()

    def of_replicas(self, replicas: int) -> AccountJetStreamOptions | None:
        """Return the limits for streams and consumers with this many replicas; None: the account has other tiers only."""
        return dict(self.tiers).get(f"R{replicas or 1}") if self.tiers else self

    def stream_bytes_max(self, storage: str) -> int:
        return self.file_stream_bytes_max if storage == "file" else self.memory_stream_bytes_max


class AccountOptions(Struct, frozen=True, kw_only=True):
    """One account. Its users are in `Options.users` too (one list over all accounts)."""

    name: str
    name_tag: str = ""  # display name, where `name` is a public key
    nkey: str = ""
    users: tuple[UserOptions, ...] = ()
    jetstream: AccountJetStreamOptions | None = None  # None: JetStream is off for this account
    exports: tuple[ExportOptions, ...] = ()
    imports: tuple[ImportOptions, ...] = ()
    mappings: tuple[MappingOptions, ...] = ()
    limits: AccountLimits = AccountLimits()
    default_permissions: Permissions | None = None
    trace_destination: bytes = b""
    trace_sampling: int = 100


class AuthCalloutOptions(Struct, frozen=True, kw_only=True):
    """`authorization { auth_callout { } }`.

    `account`: the account of the service, which connects as one of `auth_users`. `issuer`: the key that signs its
    answers.
    """

    issuer: str  # public nkey of an account, A...
    account: str = GLOBAL_ACCOUNT
    auth_users: tuple[str, ...] = ()
    xkey: str = ""  # public curve key, X...: requests and answers are sealed
    allowed_accounts: tuple[str, ...] = ()


#: How long a connection may take to log in.
LOGIN_TIMEOUT_DEFAULT_S = 2.0


class AuthorizationOptions(Struct, frozen=True, kw_only=True):
    """Top-level `authorization { }`. A single `user`+`password` or `token`, or `users` (all in account `$G`)."""

    user: str = ""
    password: str = ""
    token: str = ""
    timeout_s: float = LOGIN_TIMEOUT_DEFAULT_S
    users: tuple[UserOptions, ...] = ()
    default_permissions: Permissions | None = None
    auth_callout: AuthCalloutOptions | None = None
