"""INFO and CONNECT of the client and leaf protocols as msgspec Structs with nats-server's field names.

Fields with their default value are left out when encoded. Decoding ignores unknown fields and treats null as absent.
"""

from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field

from eyot_wire.go.json import Node, SyntaxFault, values
from eyot_wire.untrusted import decode_json


class ServerInfo(Struct, omit_defaults=True, kw_only=True):
    """INFO from a server to a client. Fields that clients expect in every INFO use a factory and are always encoded."""

    server_id: str = field(default_factory=str)
    server_name: str = field(default_factory=str)
    version: str = field(default_factory=str)
    proto: int = field(default_factory=int)
    git_commit: str = ""
    go: str = field(default_factory=str)
    host: str = field(default_factory=str)
    port: int = field(default_factory=int)
    headers: bool = field(default_factory=bool)
    auth_required: bool = False
    tls_required: bool = False
    tls_verify: bool = False
    tls_available: bool = False
    max_payload: int = field(default_factory=int)  # bytes
    jetstream: bool = False
    ip: str = ""
    client_id: int = 0
    client_ip: str = ""
    nonce: str = ""
    cluster: str = ""
    cluster_dynamic: bool = False
    domain: str = ""
    connect_urls: list[str] = []
    ldm: bool = False
    xkey: str = ""
    api_lvl: int = 0
    connect_info: bool = False  # this INFO answers the first PING after CONNECT (2.12+)
    remote_account: str = ""
    acc_is_sys: bool = False


class _WithSecrets(Struct):
    """A Struct whose repr shows which secrets are present, never their values."""

    def __repr__(self) -> str:
        shown: list[str] = []
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value:
                # A remote's token is sent both as user and as token.
                secret = name in _SECRETS or (name == "user" and value == getattr(self, "auth_token", None))
                shown.append(f"{name}={'***' if secret else repr(value)}")
        return f"{type(self).__name__}({', '.join(shown)})"


_SECRETS = frozenset(("password", "auth_token", "jwt", "sig", "proxy_sig"))


class ClientConnect(_WithSecrets, omit_defaults=True, kw_only=True):
    """CONNECT from a client. The defaults are what nats-server assumes when a field is absent."""

    verbose: bool = True
    pedantic: bool = True
    tls_required: bool = False
    nkey: str = ""
    jwt: str = ""
    sig: str = ""
    auth_token: str = ""
    user: str = ""
    password: str = field(default="", name="pass")
    name: str = ""
    lang: str = ""
    version: str = ""
    protocol: int = 0
    echo: bool = True
    headers: bool = False
    no_responders: bool = False
    account: str = ""
    new_account: bool = False
    proxy_sig: str = ""


class SubjectPermission(Struct, omit_defaults=True):
    """Subjects allowed and denied; `allow` None: everything that is not denied."""

    allow: list[str] | None = None
    deny: list[str] | None = None


class LeafInfo(Struct, omit_defaults=True, kw_only=True):
    """INFO on a leaf link, either direction."""

    server_id: str = ""
    server_name: str = ""
    version: str = ""
    proto: int = 0
    git_commit: str = ""
    go: str = ""
    host: str = ""
    port: int = 0
    headers: bool = False
    auth_required: bool = False
    tls_required: bool = False
    tls_verify: bool = False
    tls_available: bool = False
    max_payload: int = 0
    jetstream: bool = False
    ip: str = ""  # "host:port" of the listener
    client_id: int = 0
    client_ip: str = ""
    nonce: str = ""
    cluster: str = ""
    cluster_dynamic: bool = False
    domain: str = ""
    leafnode_urls: list[str] | None = None  # required in the first INFO; [] differs from absent
    ws_connect_urls: list[str] = []
    info_on_connect: bool = False  # an INFO with connect_info will answer CONNECT
    connect_info: bool = False
    compression: str = ""
    remote_account: str = ""
    import_: SubjectPermission | None = field(default=None, name="import")  # what the spoke may subscribe to
    export: SubjectPermission | None = None  # what the spoke may publish
    acc_is_sys: bool = False
    api_lvl: int = 0
    ldm: bool = False
    xkey: str = ""


class LeafConnect(_WithSecrets, omit_defaults=True, kw_only=True):
    """CONNECT from the soliciting side of a leaf link."""

    version: str = ""
    server_id: str = ""
    name: str = ""
    cluster: str = ""
    domain: str = ""
    jetstream: bool = False
    headers: bool = False
    is_hub: bool = False
    deny_pub: list[str] = []
    isolate: bool = False
    user: str = ""
    password: str = field(default="", name="pass")
    auth_token: str = ""
    jwt: str = ""
    sig: str = ""
    nkey: str = ""
    compress_mode: str = ""
    remote_account: str = ""
    protocol: int = 0
    tls_required: bool = False
    gateway: str = ""
    lang: str = ""  # never sent by a leaf node: non-empty means a client on the wrong port
    # Eyot's extension: seconds of silence after which this leaf node, whose link is metered, may be considered gone.
    eyot_silence_s: int = 0


T = TypeVar("T", ServerInfo, ClientConnect, LeafInfo, LeafConnect)


def decode(json: bytes, struct: type[T]) -> T:
    """Decode the JSON of an INFO or CONNECT. Raises msgspec.DecodeError for malformed JSON and wrong types."""
    try:
        return decode_json(json, struct)
    except msgspec.ValidationError:
        loose = decode_json(json)
        if not isinstance(loose, dict):
            raise
        return msgspec.convert({name: value for name, value in loose.items() if value is not None}, struct)


_CONNECT_FIELDS = frozenset(ClientConnect.__struct_encode_fields__)


def decode_connect(json: bytes, before: ClientConnect | None = None) -> ClientConnect:
    """Decode a client's CONNECT as nats-server does. Errors as in `decode`.

    Names match without regard to case, and text that is not Unicode gets replacement characters. A later CONNECT keeps
    the values of `before` that it does not name.
    """
    said = {} if before is None else msgspec.to_builtins(before)
    for name, value in _members(json).items():
        if value is not None:
            said[name if name in _CONNECT_FIELDS else name.lower()] = value
    return msgspec.convert(said, ClientConnect)


def _members(json: bytes) -> dict[str, Any]:
    """Return the members of a JSON object; `null` has none."""
    try:
        said = decode_json(json)
    except msgspec.DecodeError:
        said = _replaced(json)
    if said is None:
        return {}
    if not isinstance(said, dict):
        raise msgspec.ValidationError("CONNECT is no object")
    return said


def _replaced(json: bytes) -> Any:
    """Decode JSON with text that is not Unicode; the values of its members are opaque unless they are plain."""
    try:
        node = next(values(json, one=True), None)
    except SyntaxFault as fault:
        raise msgspec.DecodeError(str(fault)) from None
    if node is None or node.kind != "object":
        raise msgspec.DecodeError("CONNECT is no object")
    return {name: _plain(member) for name, member in node.value}


def _plain(node: Node) -> Any:
    if node.kind in ("string", "bool"):
        return node.value
    return None if node.kind == "null" else decode_json(node.raw) if node.kind == "number" else node
