"""The client of drivers and executors: every way to log in, TLS, several servers, and errors that say what is wrong."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from eyot_hub.connection import Connection, ConnectOptions
from eyot_hub.errors import ConnectionFailed, NoAnswer, NoResponders, OptionError, Refused
from eyot_wire.trust.nkey import Signer, encode_seed
from support.servers.nats_server import NatsServer
from support.servers.server_process import free_port


def opened(server: NatsServer, **options: object) -> Connection:
    return Connection.open(ConnectOptions((f"127.0.0.1:{server.client_port}",), timeout_s=3.0, **options))  # type: ignore[arg-type]


def works(connection: Connection) -> bool:
    with pytest.raises(NoResponders):
        connection.request("nobody.there")
    connection.close()
    return True


def test_user_and_password(tmp_path: Path) -> None:
    with NatsServer('authorization { user: me, password: "right" }', tmp_path) as server:
        assert works(opened(server, user="me", password="right"))
        for wrong in ({"user": "me", "password": "wrong"}, {}, {"token": "x"}):
            with pytest.raises(
                Refused, match=r"Authorization Violation: the options user and password.* say who logs in"
            ):
                opened(server, **wrong)


def test_token(tmp_path: Path) -> None:
    with NatsServer('authorization { token: "geheim" }', tmp_path) as server:
        assert works(opened(server, token="geheim"))
        with pytest.raises(Refused, match="Authorization Violation") as caught:
            opened(server, token="falsch")
        assert "falsch" not in str(caught.value)


def test_nkey(tmp_path: Path) -> None:
    seed = encode_seed("U", bytes(range(32)))
    path = tmp_path / "user.nk"
    path.write_text(seed + "\n")
    with NatsServer(f"authorization {{ users: [ {{ nkey: {Signer(seed).public_key} }} ] }}", tmp_path) as server:
        assert works(opened(server, nkey=str(path)))
        other = tmp_path / "other.nk"
        other.write_text(encode_seed("U", bytes(32)))
        with pytest.raises(Refused):
            opened(server, nkey=str(other))
        other.write_text("SUnothing")
        with pytest.raises(OptionError, match="option 'nkey' names a file without usable credentials"):
            opened(server, nkey=str(other))
        with pytest.raises(OptionError, match="option 'nkey' names a file that cannot be read"):
            opened(server, nkey=str(tmp_path / "none"))


def certificate(folder: Path, name: str, issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None = None):  # type: ignore[no-untyped-def]
    """A certificate for 127.0.0.1, signed by `issuer` or itself; written as NAME.pem and NAME.key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .sign(issuer[1] if issuer else key, hashes.SHA256())
    )
    (folder / f"{name}.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / f"{name}.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return made, key


def test_tls_with_certificates(tmp_path: Path) -> None:
    ca = certificate(tmp_path, "ca")
    for name in ("server", "client"):
        certificate(tmp_path, name, ca)
    config = f'tls {{ cert_file: "{tmp_path}/server.pem", key_file: "{tmp_path}/server.key", ca_file: "{tmp_path}/ca.pem", verify: true }}'
    with NatsServer(config, tmp_path / "server") as server:
        mine = {"tls_cert": str(tmp_path / "client.pem"), "tls_key": str(tmp_path / "client.key")}
        assert works(opened(server, tls_ca=str(tmp_path / "ca.pem"), **mine))
        with pytest.raises(Refused, match=r"TLS with 127\.0\.0\.1"):
            opened(server)
        with pytest.raises((Refused, ConnectionFailed)):
            opened(server, tls_ca=str(tmp_path / "ca.pem"))
        with pytest.raises(OptionError, match="option 'tlsCa'"):
            opened(server, tls_ca=str(tmp_path / "none.pem"))


def test_tls_that_is_not_offered(tmp_path: Path) -> None:
    with NatsServer("", tmp_path) as server, pytest.raises(Refused, match="does not offer TLS"):
        opened(server, tls=True)


def test_the_first_server_is_away(tmp_path: Path) -> None:
    with NatsServer("", tmp_path) as server:
        dead = free_port()
        servers = (f"127.0.0.1:{dead}", f"nats://127.0.0.1:{server.client_port}")
        for _ in range(4):
            assert works(Connection.open(ConnectOptions(servers)))
        with pytest.raises(ConnectionFailed, match=f"127.0.0.1:{dead}: .*refused"):
            Connection.open(ConnectOptions(servers[:1]))


def test_nobody_answers_and_permissions(tmp_path: Path) -> None:
    config = 'authorization { users: [ {user: me, password: me, permissions: { publish: ["ok"], subscribe: [">"] }} ] }'
    with NatsServer(config, tmp_path) as server:
        connection = opened(server, user="me", password="me")
        with pytest.raises(Refused, match=r'Permissions Violation for Publish to "not\.ok"'):
            connection.request("not.ok")
        silent = opened(server, user="me", password="me")
        silent.send(b"SUB ok 1\r\n")
        with pytest.raises(NoAnswer):
            opened(server, user="me", password="me").request("ok", timeout_s=0.2)


def test_something_else_listens(tmp_path: Path) -> None:
    import socket
    import threading

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            peer, _ = listener.accept()
            peer.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
            peer.recv(1000)
            peer.close()

        thread = threading.Thread(target=greet)
        thread.start()
        with pytest.raises(ConnectionFailed, match="does not speak the NATS protocol"):
            Connection.open(ConnectOptions((f"127.0.0.1:{listener.getsockname()[1]}",), timeout_s=3.0))
        thread.join()
