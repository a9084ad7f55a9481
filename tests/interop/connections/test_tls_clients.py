"""TLS of client connections: the same certificates and configurations on `eyotd` and on Debian's `nats-server`."""

from __future__ import annotations

import hashlib
import shutil
import signal
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from support.clients.raw_client import RawClient
from support.servers.eyotd import Eyotd
from support.servers.server_process import Start
from support.trust.certificates import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


def context(authority: Authority, pair: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=str(authority.ca_file))
    if pair is not None:
        made.load_cert_chain(*pair)
    return made


def refused(port: int, tls: ssl.SSLContext | None) -> bool:
    """Does the server refuse a client with this TLS?"""
    try:
        with RawClient(port, tls=tls) as client:
            return client.ask(b"SUB a 1\r\nPUB a 0\r\n\r\n") != b"MSG a 1 0\r\n\r\n"
    except (ssl.SSLError, OSError, AssertionError):
        return True


def name(*parts: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in parts])


SUBJECT = name(
    (NameOID.COUNTRY_NAME, "DE"), (NameOID.ORGANIZATION_NAME, "Fleet, Inc"), (NameOID.COMMON_NAME, "device-7")
)
WITH_DOMAIN = name(
    (NameOID.DOMAIN_COMPONENT, "org"), (NameOID.DOMAIN_COMPONENT, "example"), (NameOID.COMMON_NAME, "device-7")
)


@pytest.mark.parametrize(
    ("user", "subject", "names"),
    [
        ("device@example.org", SUBJECT, [x509.DNSName("dns"), x509.RFC822Name("device@example.org")]),
        ("device.example.org", SUBJECT, [x509.DNSName("device.example.org"), x509.RFC822Name("x@y.z")]),
        ("urn:device:7", SUBJECT, [x509.UniformResourceIdentifier("urn:device:7")]),
        ("CN=device-7,O=Fleet\\\\\\\\, Inc,C=DE", SUBJECT, []),
        ("C=DE,CN=device-7,O=Fleet\\\\\\\\, Inc", SUBJECT, []),
        ("CN=device-7,DC=example,DC=org", WITH_DOMAIN, []),
        ("DC=org,DC=example,CN=device-7", WITH_DOMAIN, []),
    ],
    ids=["e-mail", "dns", "uri", "subject", "subject in another order", "domain", "domain in another order"],
)
def test_the_certificate_names_the_user(
    start: Start, authority: Authority, user: str, subject: x509.Name, names: list[x509.GeneralName]
) -> None:
    server = start(
        authority.block("server", "verify_and_map: true")
        + f"""
        authorization {{ users: [
            {{ user: "{user.replace(chr(92) * 4, chr(92) * 2)}", permissions {{ publish: mine }} }}
            {{ user: other, password: other }}
        ] }}"""
    )
    pair = authority.issue("client", subject=subject, names=names)
    with RawClient(server.client_port, tls=context(authority, pair)) as client:
        assert client.ask(b"SUB mine 1\r\nPUB mine 0\r\n\r\n") == b"MSG mine 1 0\r\n\r\n"
        assert b"Permissions Violation" in client.ask(b"PUB other 0\r\n\r\n")
    stranger = authority.issue("stranger", names=[x509.DNSName("stranger")])
    with RawClient(server.client_port, tls=context(authority, stranger), user="other", **{"pass": "other"}) as client:
        assert client.rest().endswith(b"-ERR 'Authorization Violation'\r\n")
    assert refused(server.client_port, context(authority))


def test_certificates_are_asked_for(start: Start, authority: Authority, tmp_path: Path) -> None:
    server = start(authority.block("server", "verify: true"))
    handshake = RawClient(server.client_port, connect=None).info
    assert (handshake["tls_required"], handshake["tls_verify"]) == (True, True)
    assert refused(server.client_port, context(authority))
    assert refused(server.client_port, None)
    foreign = Authority(tmp_path / "other").issue("client")
    assert refused(server.client_port, context(authority, foreign))
    assert not refused(server.client_port, context(authority, authority.issue("client")))


def test_pinned_certificates(start: Start, authority: Authority) -> None:
    pinned, other = authority.issue("pinned"), authority.issue("other")
    key = x509.load_pem_x509_certificate(pinned[0].read_bytes()).public_key()
    digest = hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()
    server = start(authority.block("server", f'verify: true, pinned_certs: ["{digest}"]'))
    assert not refused(server.client_port, context(authority, pinned))
    assert refused(server.client_port, context(authority, other))


def test_plain_and_tls_on_one_port(start: Start, authority: Authority) -> None:
    server = start("allow_non_tls: true\n" + authority.block("server"))
    info = RawClient(server.client_port, connect=None).info
    assert info["tls_available"]
    assert not info.get("tls_required")
    assert not refused(server.client_port, None)
    assert not refused(server.client_port, context(authority))


def test_a_new_certificate_without_restart(start: Start, authority: Authority) -> None:
    server = start(authority.block("server"))

    def serial() -> int:
        with RawClient(server.client_port, tls=context(authority)) as client:
            client.ask()
            assert isinstance(client.sock, ssl.SSLSocket)
            der = client.sock.getpeercert(binary_form=True)
            assert der is not None
            return x509.load_der_x509_certificate(der).serial_number

    before = serial()
    with RawClient(server.client_port, tls=context(authority)) as stays:
        stays.ask()
        authority.issue("server")
        server.signal(signal.SIGHUP)
        server.wait_log("Reloaded server configuration")
        assert serial() != before
        assert stays.ask(b"SUB a 1\r\nPUB a 0\r\n\r\n") == b"MSG a 1 0\r\n\r\n"
    key = authority.directory / "server-key.pem"
    shutil.move(key, key.with_suffix(".away"))
    server.signal(signal.SIGHUP)
    server.wait_log("Failed to reload server configuration: .*error parsing X509 certificate/key pair")
    assert serial() != before


def test_a_least_version(authority: Authority, tmp_path: Path) -> None:
    with Eyotd(authority.block("server", 'min_version: "1.3"'), tmp_path) as server:
        old = context(authority)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        assert refused(server.client_port, old)
        assert not refused(server.client_port, context(authority))


def test_too_many_handshakes_in_a_second(authority: Authority, tmp_path: Path) -> None:
    with Eyotd(authority.block("server", "connection_rate_limit: 2"), tmp_path) as server:
        answers = []
        clients = [RawClient(server.client_port, connect=None) for _ in range(12)]
        for client in clients:
            client.sock.settimeout(0.5)
            try:
                answers.append(client.until(b"\r\n"))
            except TimeoutError:
                answers.append(b"")
            client.sock.close()
        assert b"-ERR 'Connection throttling is active. Please try again later.'\r\n" in answers
        assert b"" in answers
