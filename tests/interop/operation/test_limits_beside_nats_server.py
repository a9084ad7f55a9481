"""Each limit of a configuration at 0, -1, 1, very large, and as text with units: refused by both servers, or of the same effect."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from interop.operation.test_options_beside_nats_server import ours, theirs
from support.clients.raw_client import RawClient
from support.links.leaf_pair import server
from support.servers.newer_nats_server import VERSION
from support.servers.server_process import ServerProcess

_NUMBERS = [
    "0",
    "-1",
    "1",
    "7",
    "2147483647",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "10k",
    "1g",
    '"10KB"',
    "1.5",
    "true",
]
_TIMES = ["0", "-1", "1", '"0s"', '"-1s"', '"1s"', '"1h"', '"5"', "1s", "1.5", "true"]
#: Where each group of limits stands, and the limits.
NUMBERS = {
    "%s": "max_connections max_control_line max_payload max_pending max_subscriptions max_subscription_tokens ping_max "
    "max_closed_clients connect_error_reports reconnect_error_reports max_traced_msg_len logfile_size_limit logfile_max_num",
    "jetstream: { %s }": "max_memory_store max_file_store max_buffered_msgs max_buffered_size request_queue_limit",
    "jetstream: { limits: { %s } }": "max_ack_pending max_ha_assets max_request_batch max_batch_inflight_per_stream "
    "max_batch_inflight_total max_batch_size",
    "accounts: { A: { limits: { %s } } }": "max_connections max_subscriptions max_payload max_leafnodes",
    "jetstream: {}, accounts: { A: { jetstream: { %s } } }": "max_memory max_store max_streams max_consumers max_ack_pending "
    "memory_max_stream_bytes store_max_stream_bytes",
    "jetstream: {}, server_name: x, mqtt: { port: 1883, %s }": "max_ack_pending stream_replicas consumer_replicas",
}
TIMES = {
    "%s": "lame_duck_duration lame_duck_grace_period ping_interval write_deadline",
    "jetstream: { %s }": "sync_interval",
    "jetstream: { limits: { %s } }": "duplicate_window max_batch_timeout",
    "leafnodes: { port: 7422, %s }": "write_deadline reconnect",
    "websocket: { port: 8080, no_tls: true, %s }": "handshake_timeout ping_interval",
    "jetstream: {}, server_name: x, mqtt: { port: 1883, %s }": "ack_wait js_api_timeout consumer_inactive_threshold",
}
#: A negative count, size or time has no meaning here, and Eyot says so. nats-server takes some as they are: with a `max_control_line`
#: of -1 nobody gets in.
NEGATIVE = {"-1", '"-1s"'}
#: What `nats-server -t` takes, and refuses at its start.
AT_START = {
    "max_payload": {"2147483647", "1g"},
    "max_pending": {"1", "7", "10k", '"10KB"'},
    "lame_duck_grace_period": {'"1h"'},
}
#: nats-server takes a bare number for nanoseconds there.
NANOSECONDS = {"handshake_timeout": {"0", "1", "-1"}}


@pytest.mark.parametrize("form", dict.fromkeys([*NUMBERS, *TIMES]))
def test_what_nats_server_refuses_is_refused_and_little_more(form: str, tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    different = []
    for names, values in ((NUMBERS.get(form, ""), _NUMBERS), (TIMES.get(form, ""), _TIMES)):
        for name in names.split():
            stricter = NEGATIVE | AT_START.get(name, set()) | NANOSECONDS.get(name, set())
            for value in values:
                path.write_text(form % f"{name}: {value}" + "\n")
                refusals = bool(theirs(path)), bool(ours(path))
                if refusals[0] != refusals[1] and not (refusals[1] and value in stricter):
                    different.append((f"{name}: {value}", *refusals))
    assert different == []


#: Account or top level, a limit and its values. nats-server takes no negative `max_control_line`, and an unlimited `max_payload` is not offered.
EFFECTS = [
    *(("%s", "max_connections", value) for value in ("0", "-1", "1", "2", "2147483647")),
    *(("%s", "max_subscriptions", value) for value in ("0", "-1", "1", "2")),
    *(("%s", "max_payload", value) for value in ("0", "1", "7")),
    *(("limits { %s }", "max_connections", value) for value in ("0", "-1", "1", "2")),
    *(("limits { %s }", "max_subscriptions", value) for value in ("-1", "1", "2")),
    *(("limits { %s }", "max_payload", value) for value in ("0", "-1", "1", "7")),
]


@pytest.mark.parametrize(("form", "name", "value"), EFFECTS)
def test_a_limit_has_the_same_effect(form: str, name: str, value: str, tmp_path: Path) -> None:
    limit = form % f"{name}: {value}"
    users = "users: [{user: u, password: p}]"
    config = f"accounts {{ A {{ {users}, {limit} }} }}" if form != "%s" else f"{limit}\nauthorization {{ {users} }}"
    seen = []
    for kind in ("eyotd", VERSION):
        process = server(kind, config + "\n", tmp_path / kind)
        process.start()
        try:
            while process.monitor("/varz")["connections"]:  # who looked whether it has started
                time.sleep(0.05)
            seen.append(list(_effects(process)))
        finally:
            process.kill()
    assert seen[0] == seen[1]


def _effects(process: ServerProcess) -> Iterator[tuple[str, bytes]]:
    """What three clients are answered that come one after the other, and what the first two may do."""
    with ExitStack() as stack:
        clients = []
        for _ in range(3):
            client = stack.enter_context(RawClient(process.client_port, connect=None))
            yield "come", _asked(client, b'CONNECT {"verbose":false,"user":"u","pass":"p"}\r\n')
            clients.append(client)
        yield "subscribe", _asked(clients[0], b"SUB a 1\r\nSUB b 2\r\nSUB c 3\r\n")
        for size in (0, 1, 2, 8):
            yield f"publish {size}", _asked(clients[0], b"PUB b %d\r\n%b\r\n" % (size, b"x" * size))


def _asked(client: RawClient, data: bytes) -> bytes:
    try:
        return client.ask(data)
    except OSError:
        return client.rest() or b""
