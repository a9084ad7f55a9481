"""Reading `tls { }` blocks."""

from __future__ import annotations

import re

from eyot_daemon.options_reader import Block, expect_boolean, expect_duration
from eyot_daemon.options_tls import TlsOptions
from eyot_wire.conf import ConfError

_FALLBACK_AUTO_S = 0.05
_WINDOWS_ONLY = (
    "cert_store",
    "cert_match_by",
    "cert_match",
    "cert_match_skip_invalid",
    "ca_certs_match",
)
_VERSIONS = {"1.2": "1.2", "1.3": "1.3", "tls1.2": "1.2", "tls1.3": "1.3"}


def read_tls(parent: Block, *keys: str, client: bool = False) -> TlsOptions | None:
    """The block under one of these keys, None if absent. `client`: for a remote this server dials."""
    block = parent.block(*keys)
    if block is None:
        return None
    for key in _WINDOWS_ONLY:
        if key in block:
            raise block.error("certificate stores are a matter of Windows; use cert_file and key_file", key)
    if block.entry("ocsp_peer") is not None:
        raise block.error("OCSP is not offered by eyotd", "ocsp_peer")
    known_urls = block.entry("verify_cert_and_check_known_urls")
    if known_urls is not None and known_urls.value.plain() is not False:
        raise block.error("is a matter of clusters, which are the hub's job", "verify_cert_and_check_known_urls")
    if client:
        _refuse_listeners_own(block)
    cert_file, key_file = _read_certificate(block)
    first, fallback_s = _read_handshake_first(block)
    tls = TlsOptions(
        cert_file=cert_file,
        key_file=key_file,
        ca_file=block.string("ca_file"),
        verify=block.boolean("verify"),
        verify_and_map=block.boolean("verify_and_map"),
        check_known_urls=block.boolean("verify_cert_and_check_known_urls"),
        insecure=block.boolean("insecure"),
        cipher_suites=block.strings("cipher_suites"),
        curve_preferences=_read_curves(block),
        timeout_s=block.timeout("timeout", default=2.0),
        connection_rate_limit=block.integer("connection_rate_limit", default=0, minimum=0),
        pinned_certs=_read_pinned(block),
        handshake_first=first,
        handshake_first_fallback_s=fallback_s,
        min_version=_read_min_version(block),
    )
    block.finish()
    if not client and not tls.cert_file:
        raise block.error("missing 'cert_file' in TLS configuration")
    if bool(tls.cert_file) != bool(tls.key_file):
        missing = "key_file" if tls.cert_file else "cert_file"
        raise block.error(f"missing '{missing}' in TLS configuration")
    return tls


def _refuse_listeners_own(block: Block) -> None:
    """What only a listener can keep must not look as if a remote kept it."""
    for key in ("verify_and_map", "pinned_certs", "connection_rate_limit"):
        entry = block.entry(key)
        if entry is not None and entry.value.plain() not in (False, 0, []):
            raise block.error("is not offered by eyotd for remotes", key)


def _read_curves(block: Block) -> tuple[str, ...]:
    keys = ("curve_preferences", "curves")
    curves = block.strings(*keys)
    for curve in curves:
        if curve.upper() not in ("CURVEP256", "CURVEP384", "CURVEP521", "X25519"):
            raise block.error(f"unrecognized curve preference {curve}", *keys)
    if len(curves) > 1:
        raise block.error("only one curve can be preferred with eyotd", *keys)
    return curves


def _read_certificate(block: Block) -> tuple[str, str]:
    """`cert_file` and `key_file`, or the first of `certs`."""
    certificates = block.blocks("certs", "certificates")
    cert_file, key_file = block.string("cert_file"), block.string("key_file")
    if not certificates:
        return cert_file, key_file
    if cert_file or key_file:
        raise block.error("cannot combine 'cert_file' option with 'certs' option", "certs", "certificates")
    if len(certificates) > 1:
        raise block.error("only one certificate for each listener is offered by eyotd", "certs", "certificates")
    pair = certificates[0].string("cert_file"), certificates[0].string("key_file")
    certificates[0].finish()
    return pair


def _read_handshake_first(block: Block) -> tuple[bool, float | None]:
    entry = block.entry("handshake_first", "first", "immediate")
    if entry is None:
        return False, None
    if not isinstance(entry.value.value, str):
        return expect_boolean(entry.value, entry.key), None
    word = entry.value.value.lower()
    if word in ("true", "on"):
        return True, None
    if word in ("false", "off"):
        return False, None
    if word == "auto":
        return True, _FALLBACK_AUTO_S
    return True, expect_duration(entry.value, entry.key)


def _read_pinned(block: Block) -> frozenset[str]:
    pinned = frozenset(pin.lower() for pin in block.strings("pinned_certs"))
    for pin in pinned:
        if not re.fullmatch(r"[0-9a-f]{64}", pin):
            raise block.error("expected SHA-256 sums as 64 hexadecimal digits", "pinned_certs")
    return pinned


def _read_min_version(block: Block) -> str:
    entry = block.entry("min_version")
    if entry is None:
        return "1.2"
    version = _VERSIONS.get(str(entry.value.value).lower())
    if version is None:
        raise ConfError("expected a TLS version: 1.2 or 1.3", entry.value.position, entry.key)
    return version
