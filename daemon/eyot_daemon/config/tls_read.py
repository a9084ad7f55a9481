"""Reading `tls { }` blocks."""

from __future__ import annotations

import re

from eyot_daemon.config.reader import Block, expect_boolean, expect_duration
from eyot_daemon.config.tls import CURVES, INSECURE_CIPHERS, TlsOptions
from eyot_wire.conf import ConfError

#: Options of Go's TLS that Python's ssl cannot set.
_CURVES_OF_GO = ("X25519MLKEM768",)
_FALLBACK_AUTO_S = 0.05
_WINDOWS_ONLY = (
    "cert_store",
    "cert_match_by",
    "cert_match",
)
_VERSIONS = {"1.2": "1.2", "1.3": "1.3", "tls1.2": "1.2", "tls1.3": "1.3"}


def read_tls(parent: Block, *keys: str, client: bool = False) -> TlsOptions | None:
    """Read the block under one of these keys, None if absent. `client`: for a remote that this server connects to."""
    block = parent.block(*keys)
    if block is None:
        return None
    for key in _WINDOWS_ONLY:
        if key in block:
            raise block.error("certificate stores are a matter of Windows; use cert_file and key_file", key)
    block.ignore("cert_match_skip_invalid", "ca_certs_match")  # of certificate stores
    ocsp_peer = block.entry("ocsp_peer")
    if ocsp_peer is not None and ocsp_peer.value.plain() is not False:
        raise block.error("OCSP is not offered by eyotd", "ocsp_peer")
    known_urls = block.entry("verify_cert_and_check_known_urls")
    if known_urls is not None and known_urls.value.plain() is not False:
        raise block.error("is a matter of clusters, which are the hub's job", "verify_cert_and_check_known_urls")
    if client:
        _refuse_listeners_own(block)
    (cert_file, key_file), *more_certs = _read_certificates(block)
    first, fallback_s = _read_handshake_first(block)
    tls = TlsOptions(
        cert_file=cert_file,
        key_file=key_file,
        ca_file=block.string("ca_file"),
        verify=block.boolean("verify"),
        verify_and_map=block.boolean("verify_and_map"),
        check_known_urls=block.boolean("verify_cert_and_check_known_urls"),
        insecure=block.boolean("insecure"),
        more_certs=tuple(more_certs),
        cipher_suites=_read_ciphers(block),
        curve=_read_curves(block),
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
    """Refuse options that only a listener can honour."""
    for key in ("verify_and_map", "connection_rate_limit"):
        entry = block.entry(key)
        if entry is not None and entry.value.plain() not in (False, 0, []):
            raise block.error("is not offered by eyotd for remotes", key)


def _read_ciphers(block: Block) -> tuple[str, ...]:
    allowed = block.boolean("allow_insecure_cipher_suites")
    names = block.strings("cipher_suites")
    insecure = [name for name in names if name.upper() in INSECURE_CIPHERS]
    if insecure and not allowed:
        message = "insecure cipher suites configured without 'allow_insecure_cipher_suites' option set: "
        raise block.error(message + ", ".join(insecure), "cipher_suites")
    return names


def can_keep_to(curve: str) -> bool:
    """Return whether Python's ssl supports the curve with this OpenSSL name: Debian 12's supports NIST's only."""
    import ssl  # imported only when curves are configured

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ecdh_curve(curve)
    except (ssl.SSLError, ValueError):
        return False
    return True


def _read_curves(block: Block) -> str:
    """Return the configured curve, "" for OpenSSL's own choice. Python's ssl accepts one only."""
    keys = ("curve_preferences", "curves")
    curves = block.strings(*keys)
    for curve in curves:
        if curve.upper() not in (*CURVES, *_CURVES_OF_GO):
            raise block.error(f"unrecognized curve preference {curve}", *keys)
    usable = (curve for curve in curves if curve.upper() in CURVES and can_keep_to(CURVES[curve.upper()]))
    chosen = next(usable, None)
    entry = block.entry(*keys)
    if entry is not None and chosen is None:
        block.reading.note(entry, "none of these is to be had here, OpenSSL chooses")
    elif entry is not None and len(curves) > 1:
        block.reading.note(entry, f"eyotd keeps to one curve: {chosen}, the first of these that is to be had here")
    return chosen or ""


def _read_certificates(block: Block) -> list[tuple[str, str]]:
    """`cert_file` and `key_file`, or those of `certs`; at least one pair."""
    certificates = block.blocks("certs", "certificates")
    cert_file, key_file = block.string("cert_file"), block.string("key_file")
    if not certificates:
        return [(cert_file, key_file)]
    if cert_file or key_file:
        raise block.error("cannot combine 'cert_file' option with 'certs' option", "certs", "certificates")
    pairs = [(one.string("cert_file"), one.string("key_file")) for one in certificates]
    for one, (cert_file, key_file) in zip(certificates, pairs, strict=True):
        one.finish()
        if not cert_file or not key_file:
            raise one.error("a certificate needs cert_file and key_file")
    return pairs


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
    if word in ("auto", "auto_fallback"):
        return True, _FALLBACK_AUTO_S
    return True, expect_duration(entry.value, entry.key)


def _read_pinned(block: Block) -> frozenset[str]:
    pinned = frozenset(pin.lower() for pin in block.strings("pinned_certs"))
    for pin in pinned:
        if not re.fullmatch(r"[0-9a-f]{64}", pin):
            message = "does not look like hex-encoded sha256 of DER encoded SubjectPublicKeyInfo"
            raise block.error(f"error parsing tls config, 'pinned_certs' key {pin} {message}", "pinned_certs")
    return pinned


def _read_min_version(block: Block) -> str:
    entry = block.entry("min_version")
    if entry is None:
        return "1.2"
    version = _VERSIONS.get(str(entry.value.value).lower())
    if version is None:
        raise ConfError("expected a TLS version: 1.2 or 1.3", entry.value.position, entry.key)
    return version
