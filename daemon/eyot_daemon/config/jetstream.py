"""`jetstream { }` and Eyot's own `eyot { }` block as typed values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from eyot_daemon.config.bridges import BridgeOptions
from eyot_daemon.config.mqtt import MqttBounds
from eyot_sync.policy.policy import SyncPolicies
from eyot_wire.device_requests import DEFAULT_ANSWERS


class EncryptionOptions(Struct, frozen=True):
    """`jetstream { key, prev_key, cipher }`: the source of the store's `StoreKeys`. repr() leaves the keys out."""

    key: bytes
    previous: bytes = b""
    cipher: Literal["aes", "chacha"] = "aes"

    def __repr__(self) -> str:
        return f"EncryptionOptions(cipher={self.cipher!r})"


class JetStreamLimits(Struct, frozen=True, kw_only=True):
    """`jetstream { limits { } }`; 0 = nats-server's default."""

    ack_pending_max: int = 0
    ha_assets_max: int = 0
    request_batch_max: int = 0
    duplicate_window_s: float = 0.0
    batch_inflight_per_stream_max: int = 0
    batch_inflight_total_max: int = 0
    batch_size_max: int = 0
    batch_timeout_s: float = 0.0


class JetStreamOptions(Struct, frozen=True, kw_only=True):
    """`jetstream { }`. Eyot flushes before it acknowledges; `sync_interval` is accepted and changes nothing about that."""

    store_dir: str = ""  # "": see `Options.store_dir_path`
    domain: str = ""
    sync_interval_s: float = 120.0
    sync_always: bool = False
    memory_max: int = -1  # bytes; -1 = not configured
    file_max: int = -1
    extension_hint: Literal["", "will_extend", "no_extend"] = ""
    strict: bool = True
    unique_tag: str = ""
    limits: JetStreamLimits = JetStreamLimits()
    request_queue_limit: int = 0  # requests to an account's API that wait; 0 = as many as a bound of bytes holds
    encryption: EncryptionOptions | None = None
    buffered_msgs_max: int = (
        0  # of one stream, published and not on flash; 0 = nats-server's default, negative = no bound
    )
    buffered_bytes_max: int = 0


class EyotStoreOptions(Struct, frozen=True, kw_only=True):
    """`eyot { store { } }`; 0 and "" stand for the store's own default.

    `map_size`: the largest size of the LMDB file, bytes. `committer`: how a group becomes durable. `journal_size`: the
    journal's largest size, bytes. `backlog_size`: uncommitted bytes from which publishers wait. `key_file`, `prev_key_file`: files with the store's encryption key, "": none.
    """

    map_size: int = 0
    committer: Literal["", "journal", "lmdb"] = ""
    journal_size: int = 0
    backlog_size: int = 0
    key_file: str = ""
    prev_key_file: str = ""


class EyotStatusOptions(Struct, frozen=True, kw_only=True):
    """`eyot { status { } }`: the device's own status, published on `subject` in `account` again and again.

    `streams`: how many streams a status tells of.
    """

    subject: bytes
    every_s: float = 60.0
    account: str = "$G"
    streams: int = 20


class EyotHttpOptions(Struct, frozen=True, kw_only=True):
    """`eyot { http { } }`: the local page beside the monitoring pages.

    `page`: whether it is served. `hosts`: names under which browsers may ask for it, beside addresses and the machine's own name.
    `users`: users of the configuration, with passwords, who may log in there and act; none: the page shows and never acts.
    """

    page: bool = False
    hosts: tuple[str, ...] = ()
    users: tuple[str, ...] = ()


class EyotDeviceOptions(Struct, frozen=True, kw_only=True):
    """`eyot { device { } }`: reports that the daemon gives when it is asked over NATS, as `eyot --device` does.

    `name`: the token of the request subject; "": the `server_name`. `answers`: which reports, of `ANSWERS`.
    """

    name: str = ""
    account: str = "$G"
    answers: tuple[str, ...] = DEFAULT_ANSWERS


class EyotFlashOptions(Struct, frozen=True, kw_only=True):
    """`eyot { flash { } }`.

    `endurance_bytes`: what can be written to the store's device in its life; 0: estimated by its size. `budget_bytes`: what
    the daemon should write in a day, 0: as much as it likes. `max_window_s`: how long commits wait at most to keep to it.
    """

    endurance_bytes: int = 0
    budget_bytes: int = 0
    max_window_s: float = 1.0


class EyotOptions(Struct, frozen=True, kw_only=True):
    """`eyot { }`: options that nats-server does not have.

    `profile`: the name of the defaults that the other options were read with, one of `PROFILES`.
    `max_pending_total`: unsent bytes of all client connections together, 0: no bound.
    `control_socket`: path of the Unix socket, "": see `control_path`. `sync`: which links run, when and how much.
    `bridges`: the MQTT brokers that streams are forwarded to, and topics taken in from.
    `monitoring_jsonp`: pages answer `?callback=`, which lets any web site read them in an operator's browser.
    """

    profile: str = "standard"
    max_pending_total: int = 0
    control_socket: str = ""
    store: EyotStoreOptions = EyotStoreOptions()
    sync: SyncPolicies = SyncPolicies()
    status: EyotStatusOptions | None = None
    mqtt: MqttBounds = MqttBounds()
    bridges: tuple[BridgeOptions, ...] = ()
    monitoring_jsonp: bool = False
    http: EyotHttpOptions = EyotHttpOptions()
    flash: EyotFlashOptions = EyotFlashOptions()
    device: EyotDeviceOptions | None = None

    def control_path(self, env: Mapping[str, str]) -> Path | None:
        """Return the control socket's path; None: no socket.

        As configured, else in systemd's RuntimeDirectory, where `eyot` looks for it.
        """
        if self.control_socket:
            return Path(self.control_socket)
        runtime = env.get("RUNTIME_DIRECTORY", "").split(":")[0]
        return Path(runtime) / "control.sock" if runtime else None
