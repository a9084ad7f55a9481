"""JetStream that runs: its store opened, its engine started, and both stopped in order."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from eyot_daemon.config.jetstream import EyotStoreOptions, JetStreamOptions
from eyot_daemon.jetstream.engine import JetStream
from eyot_daemon.jetstream.key_files import key_files, key_in
from eyot_daemon.jetstream.server_context import ReadThread
from eyot_daemon.jetstream.sourcing.sourcing import Sourcing
from eyot_daemon.machine import memory_bytes
from eyot_daemon.process.banner import log_jetstream
from eyot_daemon.router.broker import Broker
from eyot_daemon.turn.hand_over import HandOver
from eyot_store.directories import make_directories
from eyot_store.options import StoreOptions
from eyot_store.records.store_cipher import StoreKeys
from eyot_store.store import Store

log = logging.getLogger("eyot")

#: Eyot's own place below `store_dir`, beside what a nats-server may keep there.
STORE_NAME = "eyot"
_BLOCK = 4096
#: The ciphers in nats-server's words.
_CIPHERS = {"aes": "AES-GCM", "chacha": "ChaCha20-Poly1305"}


class RunningJetStream:
    """Store and engine. What is stored is answered while the broker's `Readers` run."""

    def __init__(
        self, broker: Broker, options: JetStreamOptions, store_options: EyotStoreOptions, env: Mapping[str, str]
    ) -> None:
        self.broker = broker
        self.options = options
        self.path = store_path(options, env)
        self.sourcing = Sourcing()
        self._store_options = store_options
        self._env = env
        self._hand_over = HandOver()
        self._store: Store | None = None
        self._engine: JetStream | None = None

    @property
    def engine(self) -> JetStream:
        """The engine, once `start` has run."""
        assert self._engine is not None
        return self._engine

    @property
    def store(self) -> Store:
        """The store, once `start` has run."""
        assert self._store is not None
        return self._store

    def start(self) -> None:
        """Open the store, restore streams and consumers, answer the API. Raises StoreError, OSError."""
        log.info("Starting JetStream")
        log_jetstream(self.options, str(self.path))
        _make_directory(self.path)
        self.broker.readers.add(self._hand_over, self._hand_over)
        options = replace(_store_options(self._store_options), keys=self._keys())
        self._store = Store.open(self.path, notify=self._hand_over.soon, options=options, wake=self._hand_over)
        if self._store.cipher:
            rewritten = "was not encrypted: it was rewritten, and " if self._store.encrypted_now else ""
            log.info("The store %sis encrypted with %s", rewritten, _CIPHERS[self._store.cipher])
        for sentence in self._store.damaged:
            log.error("The store is damaged: %s", sentence)
        for name in self._store.recounted:
            log.warning("Counted the messages of stream %s again: its counters did not fit them", name)
        self._engine = JetStream(
            self.broker,
            self._store,
            self.options,
            sourcing=self.sourcing,
            beside=ReadThread(self._hand_over.soon),
            machine_bytes=memory_bytes(),
        )
        self._engine.start()
        self.broker.flush()

    def _keys(self) -> StoreKeys | None:
        """Return the store's key from the configuration, a file, or a systemd credential; None: not encrypted. Raises OSError."""
        if self.options.encryption is not None:
            configured = self.options.encryption
            return StoreKeys(configured.key, configured.previous, configured.cipher)
        file, previous = key_files(self._store_options, self._env)
        if not file:
            return None
        return StoreKeys(key_in(file), key_in(previous) if previous else b"")

    def reload(self, options: JetStreamOptions) -> None:
        """Apply a changed configuration: limits, and accounts that have JetStream from now on. Raises StoreError."""
        self.options = options
        self.engine.reload(options)

    def disable_accounts(self) -> None:
        """After `reload`: JetStream ends for the accounts that do not have it any more."""
        self.engine.disable_accounts()

    def stop(self) -> None:
        """Stop all tasks, commit submitted transactions, and send their answers."""
        if self._engine is not None:
            self._engine.stop()
            self.broker.flush()
        self.close()
        self.broker.flush()

    def close(self) -> None:
        """Let go of the store; a second call does nothing."""
        if self._store is not None:
            self._store.close()
        if not self._hand_over.closed:
            self.broker.readers.remove(self._hand_over)
            self._hand_over.close()


def store_path(options: JetStreamOptions, env: Mapping[str, str]) -> Path:
    """Where the store is: below `store_dir`, else below systemd's StateDirectory, else below the temporary directory."""
    if options.store_dir:
        return Path(options.store_dir) / STORE_NAME
    state = env.get("STATE_DIRECTORY", "").split(":")[0]
    if state:
        return Path(state) / STORE_NAME
    path = Path(tempfile.gettempdir()) / "nats" / STORE_NAME
    log.warning("No store_dir configured: what JetStream stores in %s does not outlive a reboot", path)
    return path


def _store_options(options: EyotStoreOptions) -> StoreOptions:
    """Return the store's defaults, overridden by the configuration."""
    chosen = StoreOptions()
    if options.map_size:
        chosen = replace(chosen, map_size=min(chosen.map_size, options.map_size), map_size_max=options.map_size)
    if options.committer:
        chosen = replace(chosen, committer=options.committer)
    if options.journal_size:
        segment = options.journal_size // chosen.journal_segments // _BLOCK * _BLOCK
        chosen = replace(chosen, journal_segment_bytes=segment)
    if options.backlog_size:
        hard = options.backlog_size * (chosen.backlog_bytes_hard // chosen.backlog_bytes_soft)
        chosen = replace(chosen, backlog_bytes_soft=options.backlog_size, backlog_bytes_hard=hard)
    return chosen


def _make_directory(path: Path) -> None:
    """Create the store's directory. Raises OSError in nats-server's words: launchers parse them."""
    try:
        make_directories(path, 0o750)
    except (NotADirectoryError, FileExistsError) as error:
        raise OSError("storage directory is not a directory") from error
    except OSError as error:
        raise OSError(f"could not create storage directory - {path}: {error.strerror}") from error
