"""The messages of a leaf handshake: the two INFOs, CONNECT, and their checks. Pure functions.

`lang` always stays empty: a peer regards a CONNECT with a language as a client on the wrong port. Without `compression`
in INFO and with `off` in CONNECT neither side switches to S2.
"""

from __future__ import annotations

import base64
import re
import secrets

import msgspec

from eyot_sync.leaf import errors
from eyot_sync.leaf.compression import NOT_SUPPORTED, OFF
from eyot_sync.leaf.events import LeafIdentity, LeafOptions, UserRules
from eyot_sync.leaf.permissions import SubjectRule
from eyot_wire.info import LeafConnect, LeafInfo, SubjectPermission

#: The protocol level from which on a server supports message traces.
TRACES = 3
# This server: asynchronous INFO (1), the INFO of 2.10's routes (2), message traces (3).
PROTO = TRACES
_NONCE_BYTES = 11
# nats-server reads each number of a version into 64 bits: a version beyond that is malformed.
_VERSION_END = 1 << 63


def new_nonce() -> bytes:
    """Return 15 base64url characters, as nats-server makes them.

    A foreseeable nonce could be signed in advance and used for a later login. The randomness is therefore the system's,
    even where other randomness has a seed.
    """
    return base64.urlsafe_b64encode(secrets.token_bytes(_NONCE_BYTES)).rstrip(b"=")


def first_info(identity: LeafIdentity, options: LeafOptions, nonce: bytes) -> LeafInfo:
    """Return the accepting side's first INFO."""
    info = _common_info(identity, options)
    info.nonce = nonce.decode()
    if options.compression.mode not in ("", NOT_SUPPORTED):
        info.compression = options.compression.mode
    return info


def second_info(
    identity: LeafIdentity, options: LeafOptions, *, account: str, is_system: bool, user: UserRules
) -> LeafInfo:
    """Return the accepting side's answer to CONNECT: the account and the link's permissions, from the leaf node's side."""
    info = _common_info(identity, options)
    info.connect_info = True
    info.remote_account = account
    info.acc_is_sys = is_system
    info.import_ = _subject_list(user.subscribe)
    publish = user.publish
    if user.replies is not None and publish.allow == ():
        # Replies only: the hub alone knows which, so the leaf node must not filter them.
        publish = SubjectRule(None, publish.deny)
    info.export = _subject_list(publish)
    if 0 <= user.payload_max < info.max_payload:
        # An Eyot leaf node drops and counts larger messages, for which the link would be closed.
        info.max_payload = user.payload_max
    return info


def user_rules(info: LeafInfo) -> UserRules:
    """Return the permissions in that answer, for the soliciting side."""
    return UserRules(publish=_subject_rule(info.export), subscribe=_subject_rule(info.import_))


def connect_for(identity: LeafIdentity, options: LeafOptions, nonce: bytes) -> LeafConnect:
    """Return the soliciting side's CONNECT, with a signed nonce when the credentials can sign."""
    credentials = options.credentials
    connect = LeafConnect(
        version=identity.version,
        server_id=identity.server_id,
        name=identity.server_name,
        cluster=identity.cluster,
        domain=identity.domain,
        jetstream=identity.jetstream,
        headers=identity.headers,
        is_hub=options.is_hub,
        deny_pub=_texts(options.deny_imports),
        isolate=options.request_isolation,
        compress_mode=OFF,
        remote_account=options.account,
        protocol=PROTO,
        eyot_silence_s=int(options.times.silence_max_s) if options.asks_for_quiet else 0,
    )
    if credentials.sign is not None:
        connect.sig = base64.urlsafe_b64encode(credentials.sign(nonce)).rstrip(b"=").decode()
        connect.jwt = credentials.jwt
        connect.nkey = credentials.nkey
    elif credentials.token:
        connect.auth_token = credentials.token
    elif credentials.user:
        connect.user = credentials.user
        if credentials.password is None:
            # A URL with a lone user part may mean a token: send both and let the hub choose.
            connect.auth_token = credentials.user
        else:
            connect.password = credentials.password
    return connect


def encode_info(info: LeafInfo) -> bytes:
    return b"INFO %b\r\n" % msgspec.json.encode(info)


def encode_connect(connect: LeafConnect) -> bytes:
    return b"CONNECT %b\r\n" % msgspec.json.encode(connect)


def wrong_port(info: LeafInfo) -> bool:
    """Is this the INFO of something else than a leaf node port? Hubs since 2.15 leave the list out when they do not advertise."""
    return not info.client_id or (info.leafnode_urls is None and not info.info_on_connect)


def connect_refusal(connect: LeafConnect, identity: LeafIdentity) -> str:
    """Return the -ERR text for a CONNECT that is refused with any credentials; "" if none."""
    if connect.lang:
        return errors.WRONG_PORT_CLIENT
    if connect.gateway:
        return errors.gateway_rejected(connect.gateway)
    if " " in connect.cluster:
        return errors.CLUSTER_SPACES
    if connect.cluster and connect.cluster == identity.cluster:
        return errors.SAME_CLUSTER
    return ""


def version_below(version: str, minimum: str) -> bool:
    """Compare `major.minor.patch`; a malformed version counts as too old."""
    wanted = _version(minimum)
    return wanted is not None and (_version(version) or (0, 0, 0)) < wanted


def _version(text: str) -> tuple[int, ...] | None:
    found = re.match(r"v?([0-9]{1,19})\.([0-9]{1,19})\.([0-9]{1,19})(?![0-9])", text)
    numbers = tuple(int(part) for part in found.groups()) if found else (_VERSION_END,)
    return numbers if max(numbers) < _VERSION_END else None


def _common_info(identity: LeafIdentity, options: LeafOptions) -> LeafInfo:
    return LeafInfo(
        server_id=identity.server_id,
        server_name=identity.server_name,
        version=identity.version,
        proto=PROTO,
        host=identity.host,
        port=identity.port,
        ip=f"{identity.host}:{identity.port}",
        headers=identity.headers,
        auth_required=True,
        tls_required=options.tls_required,
        tls_verify=options.tls_verify,
        max_payload=identity.max_payload,
        jetstream=identity.jetstream,
        domain=identity.domain,
        cluster=identity.cluster,
        client_id=options.client_id,
        leafnode_urls=list(options.leafnode_urls),
        info_on_connect=True,
        api_lvl=identity.api_level,
    )


def _subject_list(rule: SubjectRule) -> SubjectPermission | None:
    if rule.allow is None and not rule.deny:
        return None
    allow = None if rule.allow is None else _texts(rule.allow)
    return SubjectPermission(allow=allow, deny=_texts(rule.deny) or None)


def _texts(subjects: tuple[bytes, ...]) -> list[str]:
    return [subject.decode("utf-8", "replace") for subject in subjects]


def _subject_rule(subjects: SubjectPermission | None) -> SubjectRule:
    if subjects is None:
        return SubjectRule()
    allow = None if subjects.allow is None else tuple(subject.encode() for subject in subjects.allow)
    return SubjectRule(allow, tuple(subject.encode() for subject in subjects.deny or ()))


def accepted_peer(connect: LeafConnect) -> tuple[str, str, str, str]:
    """Server id, name, version and JetStream domain of a peer that dialled."""
    return connect.server_id, connect.name, connect.version, connect.domain


def solicited_peer(info: LeafInfo) -> tuple[str, str, str, str]:
    """Return the identity of a peer that was dialled."""
    return info.server_id, info.server_name, info.version, info.domain
