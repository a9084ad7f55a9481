"""Where the store's key comes from: nats-server's options, a file, a credential of systemd's."""

from pathlib import Path
from typing import Any

import pytest

from eyot_daemon.config.jetstream import EncryptionOptions, EyotStoreOptions, JetStreamOptions
from eyot_daemon.config.options import Options
from eyot_daemon.config.read import read_options
from eyot_daemon.jetstream.running import RunningJetStream
from eyot_daemon.router.broker import Broker
from eyot_store.records.store_cipher import StoreKeys
from eyot_wire.conf import parse_text
from support.manual_clock import ManualClock
from support.servers.eyotd import Eyotd


def part(tmp_path: Path, store: EyotStoreOptions, env: dict[str, str], **options: Any) -> RunningJetStream:
    broker = Broker(Options(), clock=ManualClock())
    return RunningJetStream(broker, JetStreamOptions(store_dir=str(tmp_path), **options), store, env)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("jetstream { key: abc }", EncryptionOptions(b"abc")),
        ("jetstream { ek: abc, cipher: aes }", EncryptionOptions(b"abc")),
        ("jetstream { encryption_key: abc, cipher: chachapoly }", EncryptionOptions(b"abc", cipher="chacha")),
        ("jetstream { key: $JS_KEY, prev_key: old, cipher: ChaCha }", EncryptionOptions(b"from", b"old", "chacha")),
        ("jetstream { store_dir: x }", None),
    ],
)
def test_nats_servers_options(text: str, keys: EncryptionOptions | None) -> None:
    options = read_options(parse_text(text, "t.conf", {"JS_KEY": "from"})).options
    assert options.jetstream is not None
    assert options.jetstream.encryption == keys
    assert "abc" not in repr(options)


def test_a_file_and_a_credential(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"in a file\n")
    (tmp_path / "old").write_bytes(b"before\n")
    from_file = EyotStoreOptions(key_file=str(tmp_path / "key"), prev_key_file=str(tmp_path / "old"))
    assert part(tmp_path, from_file, {})._keys() == StoreKeys(b"in a file", b"before")
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    env = {"CREDENTIALS_DIRECTORY": str(credentials)}
    assert part(tmp_path, EyotStoreOptions(), env)._keys() is None
    (credentials / "eyot-store-key").write_bytes(b"from systemd")
    assert part(tmp_path, EyotStoreOptions(), env)._keys() == StoreKeys(b"from systemd")
    assert part(tmp_path, from_file, env)._keys() == StoreKeys(b"in a file", b"before")
    configured = part(tmp_path, from_file, env, encryption=EncryptionOptions(b"configured"))
    assert configured._keys() == StoreKeys(b"configured")


def test_a_key_file_without_a_key(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"\n")
    with pytest.raises(OSError, match="holds no key"):
        part(tmp_path, EyotStoreOptions(key_file=str(tmp_path / "key")), {})._keys()
    with pytest.raises(FileNotFoundError):
        part(tmp_path, EyotStoreOptions(key_file=str(tmp_path / "none")), {})._keys()


def test_the_log_tells_whether_the_store_is_encrypted(tmp_path: Path) -> None:
    """And that the first start with a key has rewritten it: nobody has to look into the files."""
    (tmp_path / "key").write_text("a key of any length\n")
    config = 'jetstream { store_dir: "%WORKDIR%/js" }\n'
    key = f'eyot {{ store {{ key_file: "{tmp_path / "key"}" }} }}\n'
    for more in ("", key, key):
        with Eyotd(config + more, tmp_path / "server") as server:
            server.stop()
    assert [line.partition("[INF] ")[2] for line in server.log().splitlines() if "encrypted" in line] == [
        "The store was not encrypted: it was rewritten, and is encrypted with AES-GCM",
        "The store is encrypted with AES-GCM",
    ]
