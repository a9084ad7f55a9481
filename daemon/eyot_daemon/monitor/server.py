"""The pages about the server as a whole: `/varz`, `/healthz`, `/routez`, `/gatewayz`, `/eyot/status`, and `$SYS` twins.

Field names and omissions are nats-server's (client-and-auth facts: monitoring). All functions are quick and take no
locks: they run in the loop's thread.
"""

from __future__ import annotations

import os
import resource
import time
from collections import Counter

from eyot_daemon.client.clients import Clients
from eyot_daemon.config.accounts import LOGIN_TIMEOUT_DEFAULT_S
from eyot_daemon.config.leaf import RemoteOptions
from eyot_daemon.config.mqtt import ACK_WAIT_DEFAULT_S
from eyot_daemon.config.options import HANDSHAKE_TIMEOUT_DEFAULT_S
from eyot_daemon.config.tls import TlsOptions
from eyot_daemon.net.cert_dates import certificates_of, not_after
from eyot_daemon.router.broker import CLIENT_PROTO, Broker
from eyot_daemon.router.providers import HealthzQuery, Json
from eyot_daemon.version import VERSION, commit, own_version
from eyot_wire.go.duration import format_duration
from eyot_wire.go.time import ns_to_rfc3339
from eyot_wire.status import PeerTotals, StatusReport, SyncReport, SyncStatus, all_synced

_NS = 1_000_000_000
#: nats-server's, all of them off here (config/read.py refuses others).
FEATURE_FLAGS = ("js_ack_fc_v2", "js_raft_delete_range")


class CpuMeter:
    """CPU use in percent of one core since the previous call."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._used_s = self._process_s()

    @staticmethod
    def _process_s() -> float:
        times = os.times()
        return times.user + times.system

    def percent(self) -> float:
        now, used = time.monotonic(), self._process_s()
        elapsed = now - self._at
        result = 100.0 * (used - self._used_s) / elapsed if elapsed > 0 else 0.0
        if elapsed >= 1.0:
            self._at, self._used_s = now, used
        return round(result, 1)


def memory_bytes() -> int:
    """Resident memory of this process."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def cores() -> int:
    """Processors of the machine."""
    return os.cpu_count() or 1


def uptime(clients: Clients) -> str:
    """Return how long the server runs, in nats-server's way: `1d2h3m4s`."""
    seconds = max(0, (clients.broker.clock.now_ns() - clients.broker.started_ns) // _NS)
    return short_duration(seconds)


def short_duration(seconds: int) -> str:
    """`1y2d3h4m5s`, from the first unit that is not zero."""
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    years, day = divmod(days, 365)
    if years:
        return f"{years}y{day}d{hour}h{minute}m{second}s"
    if day:
        return f"{day}d{hour}h{minute}m{second}s"
    if hour:
        return f"{hour}h{minute}m{second}s"
    if minute:
        return f"{minute}m{second}s"
    return f"{second}s"


def varz(clients: Clients, cpu: CpuMeter, requests: Counter[str]) -> Json:
    """`/varz`."""
    broker, options = clients.broker, clients.options
    page: Json = {
        "server_id": broker.server_id,
        "server_name": broker.server_name,
        "version": VERSION,
        "proto": CLIENT_PROTO,
        "go": "",
        "host": options.host,
        "port": clients.port,
    }
    if built_from := commit():
        page["git_commit"] = built_from
    if clients.authenticator.auth_required or options.no_auth_user:
        page["auth_required"] = True
    if options.tls is not None:
        page["tls_required"] = not options.allow_non_tls
        page["tls_verify"] = options.tls.verify or options.tls.verify_and_map
    page |= _not_after(options.tls)
    page |= _limits(broker)
    page |= _leafnodes(broker)
    jetstream = broker.providers.jetstream_varz()
    page["jetstream"] = {} if jetstream is None else jetstream
    page |= _traffic(clients)
    now_ns = broker.clock.now_ns()
    page |= {
        "start": ns_to_rfc3339(broker.started_ns),
        "now": ns_to_rfc3339(now_ns),
        "uptime": uptime(clients),
        "mem": memory_bytes(),
        "cores": cores(),
        "gomaxprocs": 1,
        "cpu": cpu.percent(),
        "http_req_stats": dict(requests),
        "config_load_time": ns_to_rfc3339(broker.config_loaded_ns),
        "config_digest": broker.options.config_digest,
        "feature_flags": dict.fromkeys(FEATURE_FLAGS, False),
        "disk_io_wait_stats": {"waiters": 0, "waits": 0, "wait_time": 0, "max_wait_time": 0},
    }
    if options.server_tags:
        page["tags"] = list(options.server_tags)
    if options.server_metadata:
        page["metadata"] = dict(options.server_metadata)
    if broker.system_account is not None:
        page["system_account"] = broker.system_account.name
    flash = broker.providers.flash()
    if flash is not None:
        page["eyot"] = {"flash": flash}  # of Eyot alone: one member, so that no name of nats-server's is taken
    return page


def _limits(broker: Broker) -> Json:
    options = broker.options
    page: Json = {"max_connections": options.max_connections}
    if options.max_subscriptions:
        page["max_subscriptions"] = options.max_subscriptions
    page |= {
        "ping_interval": int(options.ping_interval_s * _NS),
        "ping_max": options.ping_max,
        "http_host": options.http_host or options.host,
        "http_port": broker.bound.get("http", options.http_port),
        "http_base_path": options.http_base_path,
        "https_port": broker.bound.get("https", options.https_port),
        "auth_timeout": options.authorization.timeout_s,
        "max_control_line": options.max_control_line,
        "max_payload": options.max_payload,
        "max_pending": options.max_pending,
        "cluster": {"name": options.cluster_name} if options.cluster_name else {},
        "gateway": {},
        "mqtt": _mqtt(broker),
        "websocket": _websocket(broker),
        "tls_timeout": 2.0 if options.tls is None else options.tls.timeout_s,
        "write_deadline": int(options.write_deadline_s * _NS),
    }
    return page


def _websocket(broker: Broker) -> Json:
    websocket = broker.options.websocket
    if websocket is None:
        return {}
    page: Json = {"host": websocket.host, "port": broker.bound.get("websocket", websocket.port)}
    if websocket.no_auth_user:
        page["no_auth_user"] = websocket.no_auth_user
    if websocket.handshake_timeout_s != HANDSHAKE_TIMEOUT_DEFAULT_S:
        page["handshake_timeout"] = int(websocket.handshake_timeout_s * _NS)
    flags = (
        ("no_tls", websocket.no_tls),
        ("same_origin", websocket.same_origin),
        ("compression", websocket.compression),
    )
    page |= {name: True for name, is_set in flags if is_set}
    if websocket.allowed_origins:
        page["allowed_origins"] = list(websocket.allowed_origins)
    return page | _not_after(websocket.tls)


def _mqtt(broker: Broker) -> Json:
    mqtt = broker.options.mqtt
    if mqtt is None:
        return {}
    own = mqtt.authorization
    page: Json = {
        "host": mqtt.host,
        "port": broker.bound.get("mqtt", mqtt.port),
        "no_auth_user": mqtt.no_auth_user,
        "auth_timeout": 0.0 if own is None or own.timeout_s == LOGIN_TIMEOUT_DEFAULT_S else own.timeout_s,
        "tls_map": mqtt.tls is not None and mqtt.tls.verify_and_map,
        "tls_timeout": 2.0 if mqtt.tls is None else mqtt.tls.timeout_s,
        "tls_pinned_certs": [] if mqtt.tls is None else sorted(mqtt.tls.pinned_certs),
        "js_domain": mqtt.js_domain,
        "ack_wait": 0 if mqtt.ack_wait_s == ACK_WAIT_DEFAULT_S else int(mqtt.ack_wait_s * _NS),
        "max_ack_pending": 0 if mqtt.max_ack_pending == 1024 else mqtt.max_ack_pending,
    }
    return {name: value for name, value in page.items() if value} | _not_after(mqtt.tls)


def _not_after(tls: TlsOptions | None) -> Json:
    ends = None if tls is None or not tls.cert_file else not_after(tls.cert_file)
    return {} if ends is None else {"tls_cert_not_after": ends.strftime("%Y-%m-%dT%H:%M:%SZ")}


def _leafnodes(broker: Broker) -> Json:
    leafnodes = broker.options.leafnodes
    page: Json = {}
    if leafnodes.port is not None:
        page |= {"host": leafnodes.host, "port": broker.bound.get("leafnodes", leafnodes.port)}
        page["auth_timeout"] = 2.0 if leafnodes.authorization is None else leafnodes.authorization.timeout_s
        page["tls_timeout"] = 2.0 if leafnodes.tls is None else leafnodes.tls.timeout_s
        if leafnodes.tls is not None:
            page["tls_required"] = True
        page |= _not_after(leafnodes.tls)
    if leafnodes.remotes:
        page["remotes"] = [_remote(remote) for remote in leafnodes.remotes]
    return {"leaf": page}


def _remote(remote: RemoteOptions) -> Json:
    shown: Json = {"local_account": remote.account, "urls": [f"{url.host}:{url.port}" for url in remote.urls]}
    denied = {"imports": remote.deny_imports, "exports": remote.deny_exports}
    deny = {name: [subject.decode() for subject in subjects] for name, subjects in denied.items() if subjects}
    if deny:
        shown["deny"] = deny
    return shown


def _traffic(clients: Clients) -> Json:
    broker = clients.broker
    traffic = clients.traffic()
    return {
        "connections": len(clients.connections),
        "total_connections": broker.connections_total,
        "routes": 0,
        "remotes": 0,
        "leafnodes": sum(len(account.leafnodes) for account in broker.each_account()),
        "in_msgs": broker.in_msgs,
        "out_msgs": broker.out_msgs,
        "in_bytes": broker.in_bytes,
        "out_bytes": broker.out_bytes,
        "in_client_msgs": traffic.in_msgs,
        "out_client_msgs": traffic.out_msgs,
        "in_client_bytes": traffic.in_bytes,
        "out_client_bytes": traffic.out_bytes,
        "slow_consumers": broker.slow_consumers,
        "stale_connections": broker.stale_connections,
        "stalled_clients": broker.stalled_clients,
        "subscriptions": broker.subscriptions,
        "stale_connection_stats": {"clients": broker.stale_connections, "routes": 0, "gateways": 0, "leafs": 0},
        "slow_consumer_stats": {"clients": broker.slow_consumers, "routes": 0, "gateways": 0, "leafs": 0},
    }


def routez(clients: Clients) -> Json:
    """`/routez`: there are none, clusters are the hub's job."""
    broker = clients.broker
    return {
        "server_id": broker.server_id,
        "server_name": broker.server_name,
        "now": ns_to_rfc3339(broker.clock.now_ns()),
        "num_routes": 0,
        "routes": [],
    }


def gatewayz(clients: Clients) -> Json:
    """`/gatewayz`: there are none."""
    broker = clients.broker
    return {
        "server_id": broker.server_id,
        "now": ns_to_rfc3339(broker.clock.now_ns()),
        "outbound_gateways": {},
        "inbound_gateways": {},
    }


def healthz(clients: Clients, query: HealthzQuery) -> tuple[int, Json]:
    """`/healthz`: HTTP status and body."""
    wrong = _wrong_query(query)
    for check in clients.broker.providers.health_checks:
        wrong = wrong or check(query)
    if wrong is None:
        store = clients.broker.providers.store()
        # Everything that is left is served; the page names what the start found damaged.
        return 200, {"status": "ok"} | ({"damaged": store.damaged} if store is not None and store.damaged else {})
    code, text = wrong
    if query.details:
        return code, {"status": "error", "errors": [_health_error(code, text, query)]}
    return code, {"status": "unavailable" if code in (404, 503) else "error", "error": text}


def _health_error(code: int, text: str, query: HealthzQuery) -> Json:
    """Return one of the `errors` that `details` requests, with the names down to the missing object."""
    kinds = ("account", "stream", "consumer")
    kind = next((word for word in kinds if text.startswith(f"JetStream {word} ")), "")
    named = zip(kinds, (query.account, query.stream, query.consumer), strict=True)
    depth = kinds.index(kind) + 1 if kind else 0
    whole = {400: "BAD_REQUEST", 500: "CONNECTION"}.get(code, "JETSTREAM")
    found: Json = {"type": kind.upper() or whole}
    found |= dict(list(named)[:depth])
    return found | {"error": text}


def _wrong_query(query: HealthzQuery) -> tuple[int, str] | None:
    if query.stream and not query.account:
        return 400, '"account" must not be empty when checking stream health'
    if query.consumer and not query.stream:
        return 400, '"stream" must not be empty when checking consumer health'
    return None


def status_report(clients: Clients) -> StatusReport:
    """`/eyot/status`."""
    broker, options = clients.broker, clients.options
    now_ns = broker.clock.now_ns()
    providers = broker.providers
    return StatusReport(
        server_name=broker.server_name,
        server_id=broker.server_id,
        version=own_version(),
        domain="" if options.jetstream is None else options.jetstream.domain,
        now=ns_to_rfc3339(now_ns),
        uptime_s=(now_ns - broker.started_ns) / _NS,
        links=providers.links(),
        streams=providers.streams(),
        copies=providers.sourcing(),
        store=providers.store(),
        flash=providers.flash(),
        certificates=certificates_of(options, now_ns),
        clock_synchronized=broker.clock.is_synchronized(),
    )


def sync_report(clients: Clients) -> SyncReport:
    """`/eyot/syncz`."""
    broker = clients.broker
    out = broker.providers.downstream()
    return SyncReport(
        server_name=broker.server_name,
        now=ns_to_rfc3339(broker.clock.now_ns()),
        synced=all_synced(out),
        out=out,
        peers=peer_totals(out),
        copies=broker.providers.sourcing(),
        links_down=[
            each for each in broker.providers.links() if each.role in ("spoke", "bridge") and each.state != "up"
        ],
        never_arrived=sum(each.never_arrived for each in out),
        unmatched=sum({(each.account, each.stream): each.unmatched for each in out}.values()),
    )


def peer_totals(out: list[SyncStatus]) -> list[PeerTotals]:
    """Return the totals for each server with downstreams, over all its mirrors and sources."""
    groups: dict[tuple[str, str], list[SyncStatus]] = {}
    for each in out:
        groups.setdefault((each.account, each.peer), []).append(each)
    return [_totals(account, peer, statuses) for (account, peer), statuses in groups.items()]


def _totals(account: str, peer: str, statuses: list[SyncStatus]) -> PeerTotals:
    ages = [each.oldest_s for each in statuses if each.oldest_s is not None]
    etas = [each.eta_s for each in statuses if each.backlog]
    known = [eta for eta in etas if eta is not None]
    first = next((each for each in statuses if each.error or each.waiting), None)
    return PeerTotals(
        account=account,
        peer=peer,
        linked=any(each.linked for each in statuses),
        streams=len({each.stream for each in statuses}),
        backlog=sum(each.backlog for each in statuses),
        backlog_bytes=sum(each.backlog_bytes for each in statuses),
        oldest_s=max(ages, default=None),
        rate=sum(each.rate for each in statuses),
        eta_s=max(known, default=None) if len(known) == len(etas) else None,
        error=None if first is None else first.error,
        remedy=None if first is None else first.remedy,
        waiting=None if first is None else first.waiting,
        never_arrived=sum(each.never_arrived for each in statuses),
    )


def rtt_text(rtt_s: float) -> str:
    """Return a round trip time as Go prints durations: `1.5ms`."""
    return format_duration(int(rtt_s * _NS))
