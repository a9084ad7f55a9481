"""Which user a certificate names: `verify_and_map`, by nats-server's rules."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from eyot_daemon.auth.configured import AuthResult, ConfigAuthenticator
from eyot_daemon.auth.login import Peer
from eyot_daemon.config.accounts import AuthorizationOptions, UserOptions
from eyot_daemon.config.options import Options
from eyot_daemon.config.tls import TlsOptions
from eyot_daemon.net.cert_names import find_user
from eyot_wire.info import ClientConnect

KEY = ec.generate_private_key(ec.SECP256R1())
TYPES = {
    "CN": NameOID.COMMON_NAME,
    "O": NameOID.ORGANIZATION_NAME,
    "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "ST": NameOID.STATE_OR_PROVINCE_NAME,
    "DC": NameOID.DOMAIN_COMPONENT,
    "E": NameOID.EMAIL_ADDRESS,
}
Part = tuple[tuple[str, str], ...]


def certificate(*parts: Part, names: tuple[x509.GeneralName, ...] = ()) -> bytes:
    """A certificate (DER) whose subject has these parts, the first one first."""
    subject = x509.Name(
        [
            x509.RelativeDistinguishedName([x509.NameAttribute(TYPES[kind], value) for kind, value in part])
            for part in parts
        ]
    )
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(KEY.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.DER)


def one(kind: str, value: str) -> Part:
    return ((kind, value),)


@pytest.mark.parametrize(
    "user",
    [
        "CN=bob,ST=BE,O=Acme",
        "O=Acme,CN=bob,ST=BE",
        "cn=bob, st=BE , o=Acme",
        " CN = bob,ST=BE,O=Acme  ",
        "CN=\\62ob,ST=BE,O=Acme",
        "CN=bob,ST=BE,O=Acme,",
    ],
)
def test_a_distinguished_name_in_any_order_and_case_of_types(user: str) -> None:
    cert = certificate(one("O", "Acme"), one("ST", "BE"), one("CN", "bob"))
    assert find_user(cert, [user]) == user


@pytest.mark.parametrize(
    "user",
    [
        "CN=Bob,ST=BE,O=Acme",
        "CN=bob,ST=BE",
        "CN=bob,ST=BE,O=Acme,O=Acme",
        "CN=bob+ST=BE,O=Acme",
        "CN=bob,ST=BE,O=\\Acme",
        "CN=#626f62,ST=BE,O=Acme",
        "bob",
        "=",
        "CN=bob,ST=BE,Acme",
    ],
)
def test_another_distinguished_name(user: str) -> None:
    cert = certificate(one("O", "Acme"), one("ST", "BE"), one("CN", "bob"))
    assert find_user(cert, [user]) is None


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ('q"u', 'q\\"u'),
        ("a,b", "a\\,b"),
        (" lead", "\\ lead"),
        ("#x", "\\#x"),
        ("tail ", "tail\\ "),
        ("a+b", "a\\+b"),
        ("é", "é"),
        ("é", "\\c3\\a9"),
    ],
)
def test_characters_that_are_escaped(value: str, written: str) -> None:
    user = f"CN={written}"
    assert find_user(certificate(one("CN", value)), [user]) == user


def test_the_order_tells_two_users_apart() -> None:
    users = ["CN=bob,OU=a,OU=b", "CN=bob,OU=b,OU=a"]
    for user, first, second in ((users[0], "b", "a"), (users[1], "a", "b")):
        cert = certificate(one("OU", first), one("OU", second), one("CN", "bob"))
        assert find_user(cert, users) == user
        assert find_user(cert, users[::-1]) == user


def test_a_part_with_two_attributes() -> None:
    cert = certificate(one("O", "Acme"), (("CN", "bob"), ("OU", "x")))
    assert find_user(cert, ["OU=x+CN=bob,O=Acme"]) == "OU=x+CN=bob,O=Acme"
    assert find_user(cert, ["OU=x,CN=bob,O=Acme"]) is None


def test_alternative_names_come_first() -> None:
    names = (x509.DNSName("dev.a.org"), x509.UniformResourceIdentifier("urn:x"), x509.RFC822Name("bob@a.org"))
    cert = certificate(one("CN", "bob"), names=names)
    users = ["CN=bob", "urn:x", "dev.a.org", "bob@a.org"]
    while users:
        assert find_user(cert, users) == users[-1]
        users.pop()


def test_a_user_who_may_not_come_this_way_is_passed_over() -> None:
    cert = certificate(one("CN", "bob"), names=(x509.RFC822Name("bob@a.org"),))
    users = (
        UserOptions(user="bob@a.org", account="$G", connection_types=frozenset({"WEBSOCKET"})),
        UserOptions(user="CN=bob", account="$G", connection_types=frozenset({"STANDARD"})),
    )
    authenticator = ConfigAuthenticator(
        Options(authorization=AuthorizationOptions(users=users), tls=TlsOptions(verify_and_map=True))
    )
    peer = Peer(host="x", port=1, connection_type="STANDARD", tls_version="TLSv1.3", certificate=cert)
    found = authenticator.client(ClientConnect(), "", peer)
    assert isinstance(found, AuthResult)
    assert found.user == "CN=bob"
