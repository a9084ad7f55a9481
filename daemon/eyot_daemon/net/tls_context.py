"""`ssl.SSLContext`s from `tls { }` blocks."""

from __future__ import annotations

import ssl

import msgspec

from eyot_daemon.config.tls import CIPHERS, CURVES, INSECURE_CIPHERS, TlsOptions
from eyot_daemon.net.tls_chain import send_only_own
from eyot_daemon.net.tls_names import choose_by_name, dns_names

_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class TlsError(Exception):
    """A certificate, key or setting that cannot be used; the text names the file."""


class TlsSettingError(TlsError):
    """A setting that OpenSSL does not have here."""


def server_context(tls: TlsOptions) -> ssl.SSLContext:
    """Return the context of a listener. Raises TlsError."""
    context = _server_context(tls)
    if tls.more_certs:
        contexts = []
        for cert_file, key_file in tls.more_certs:
            alone = msgspec.structs.replace(tls, cert_file=cert_file, key_file=key_file, more_certs=())
            contexts.append((dns_names(cert_file), _server_context(alone)))
        choose_by_name(context, dns_names(tls.cert_file), contexts)
    return context


def _server_context(tls: TlsOptions) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    send_only_own(context)
    _apply(context, tls)
    if tls.verify or tls.verify_and_map:
        context.verify_mode = ssl.CERT_REQUIRED
        # A resumed session would be accepted without another check of the client's certificate.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
        if not tls.ca_file:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    return context


def monitoring_context(tls: TlsOptions) -> ssl.SSLContext:
    """Return the context of the HTTPS pages: the server's certificate, without client certificates. Raises TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    send_only_own(context)
    _apply(context, tls)
    return context


def client_context(tls: TlsOptions | None) -> ssl.SSLContext:
    """Return the context for outgoing connections; without a block the system's authorities are trusted. Raises TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if tls is None:
        tls = TlsOptions()
    _apply(context, tls)
    if not tls.ca_file:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if tls.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _words(error: OSError) -> str:
    """Return the system's words, without the number that Python puts in front."""
    return str(error) if isinstance(error, ssl.SSLError) or not error.strerror else error.strerror


def _apply(context: ssl.SSLContext, tls: TlsOptions) -> None:
    context.minimum_version = _VERSIONS[tls.min_version]
    # OpenSSL keeps one certificate of each kind of key, the last: so the first is loaded last.
    for cert_file, key_file in (*reversed(tls.more_certs), (tls.cert_file, tls.key_file)):
        if not cert_file:
            continue
        try:
            context.load_cert_chain(cert_file, key_file)
        except OSError as error:
            text = f"error parsing X509 certificate/key pair: {cert_file}, {key_file}: {_words(error)}"
            raise TlsError(text) from None
    if tls.ca_file:
        try:
            context.load_verify_locations(tls.ca_file)
        except OSError as error:
            raise TlsError(f"failed to parse root ca certificate {tls.ca_file}: {_words(error)}") from None
    if tls.curve:
        try:
            context.set_ecdh_curve(CURVES[tls.curve.upper()])
        except (ssl.SSLError, ValueError) as error:
            raise TlsSettingError(f"curve {tls.curve} is not supported by Python's ssl here: {error}") from None
    ciphers = [cipher_name(name) for name in tls.cipher_suites]
    if any(ciphers):
        try:
            context.set_ciphers(":".join(filter(None, ciphers)))
        except ssl.SSLError as error:
            raise TlsSettingError(f"cipher suites are not supported by OpenSSL here: {error}") from None


def cipher_name(name: str) -> str:
    """OpenSSL's name of a cipher suite, "" for those of TLS 1.3. Raises TlsError."""
    known = CIPHERS.get(name.upper(), INSECURE_CIPHERS.get(name.upper()))
    if known is None:
        raise TlsSettingError(f'unrecognized cipher "{name}"')
    return known
