"""A certificate authority and certificates for tests, made on the spot."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)
_CA_USAGE = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """As strict clients (Python 3.13's) want it, writes `ca.pem` into a directory, and on demand `<name>.pem` with `<name>-key.pem` for 127.0.0.1 and localhost."""

    def __init__(self, directory: Path, name: str = "Test CA") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(True, None), critical=True)
        builder = builder.add_extension(_CA_USAGE, critical=True)
        self.ca_file = directory / "ca.pem"
        self.ca_file.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        name: str,
        *,
        subject: x509.Name | None = None,
        names: list[x509.GeneralName] | None = None,
        seconds: float | None = None,
        starts_in: float | None = None,
    ) -> tuple[Path, Path]:
        """Certificate and key file of a server or client; `names` instead of those of this machine; good for so many `seconds`.

        It is good for a day already, or `starts_in` so many seconds.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = subject or x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        hosts: list[x509.GeneralName] = [
            x509.DNSName("localhost"),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        ]
        builder = self._builder(
            subject, key, _DAY if seconds is None else datetime.timedelta(seconds=seconds), starts_in
        )
        if names is None or names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names or hosts), critical=False)
        certificate, key_file = self.directory / f"{name}.pem", self.directory / f"{name}-key.pem"
        certificate.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return certificate, key_file

    def block(self, name: str, extra: str = "") -> str:
        """A `tls { }` block with a new certificate of that name."""
        certificate, key_file = self.issue(name)
        return f'tls {{ cert_file: "{certificate}", key_file: "{key_file}", ca_file: "{self.ca_file}"; {extra} }}'

    def _builder(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        good_for: datetime.timedelta = _DAY,
        starts_in: float | None = None,
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY if starts_in is None else now + datetime.timedelta(seconds=starts_in))
            .not_valid_after(now + good_for)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
