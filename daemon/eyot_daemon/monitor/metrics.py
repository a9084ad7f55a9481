"""`/metrics`: the daemon's figures in Prometheus' text form.

All values are read on request; the hot path counts nothing extra. Names begin with `eyot_`; totals only increase.
Streams, links, mirrors and sources have labels with their names. Connections have none: there may be thousands.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from eyot_daemon.client.clients import Clients
from eyot_daemon.monitor import server as monitor_server
from eyot_daemon.net.cert_dates import not_after, own_certificates
from eyot_daemon.turn.slices import ROWS_MAX, Slices, in_slices
from eyot_daemon.version import VERSION, own_version
from eyot_wire.status import all_synced

if TYPE_CHECKING:
    from prometheus_client import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(clients: Clients) -> Slices[bytes]:
    """Return the page in Prometheus' text form. Each slice adds a group of figures, or writes one with very many labels."""
    parts: list[bytes] = []
    for group in (
        _server,
        _certificates,
        _credentials,
        _accounts,
        _links,
        _streams,
        _jetstream_errors,
        _sourcing,
        _synced,
        _store,
        _flash,
        _mqtt,
    ):
        for metric in group(clients):
            if metric is None:
                yield
                continue
            parts.append(_text_of(metric))
            if len(metric.samples) > ROWS_MAX:
                yield
        yield
    return b"".join(parts)


def _text_of(metric: Metric) -> bytes:
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import generate_latest
    from prometheus_client.registry import Collector

    class One(Collector):
        def collect(self) -> Iterator[Metric]:
            yield metric

    registry = CollectorRegistry(auto_describe=False)
    registry.register(One())
    return bytes(generate_latest(registry))


def _gauge(name: str, text: str, value: float) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(f"eyot_{name}", text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    return CounterMetricFamily(f"eyot_{name}", text, value=value)


def _server(clients: Clients) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, InfoMetricFamily

    broker = clients.broker
    about = {"version": own_version(), "nats_version": VERSION, "server_name": broker.server_name}
    yield InfoMetricFamily(
        "eyot_server", "Name and version of the server", value=about | {"server_id": broker.server_id}
    )
    uptime_s = (broker.clock.now_ns() - broker.started_ns) / 1e9
    yield _gauge("uptime_seconds", "Time since the start", uptime_s)
    yield _gauge("memory_bytes", "Resident memory", monitor_server.memory_bytes())
    yield _gauge("connections", "Client connections", len(clients.connections))
    yield _counter("connections_accepted", "Client connections since the start", broker.connections_total)
    yield _counter(
        "connections_refused", "Client connections refused because of max_connections", broker.connections_refused
    )
    yield _gauge("subscriptions", "Subscriptions of all accounts", broker.subscriptions)
    yield _counter("in_messages", "Messages from clients and leaf links", broker.in_msgs)
    yield _counter("in_bytes", "Bytes of messages from clients and leaf links", broker.in_bytes)
    yield _counter("out_messages", "Messages to clients and leaf links", broker.out_msgs)
    yield _counter("out_bytes", "Bytes of messages to clients and leaf links", broker.out_bytes)
    yield _counter("slow_consumers", "Connections closed because they did not read", broker.slow_consumers)
    errors = CounterMetricFamily("eyot_client_errors", "-ERR sent to clients, by its text", labels=["error"])
    for text, times in broker.client_errors.counts.items():
        errors.add_metric([text], times)
    yield errors
    yield _counter("stale_connections", "Connections closed because they did not answer", broker.stale_connections)


def _certificates(clients: Clients) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    expiry = GaugeMetricFamily(
        "eyot_certificate_expiry_timestamp_seconds",
        "Expiry of a certificate of this server, in seconds since 1970",
        labels=["file"],
    )
    for file in own_certificates(clients.broker.options):
        ends = not_after(file)
        if ends is not None:
            expiry.add_metric([file], ends.timestamp())
    yield expiry


def _credentials(clients: Clients) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    expiry = GaugeMetricFamily(
        "eyot_credentials_expiry_timestamp_seconds",
        "Expiry of the token that is presented to the hub, in seconds since 1970",
        labels=["link", "account", "role"],
    )
    for link in clients.broker.providers.links():
        if link.credentials_expire is not None:
            at_s = datetime.fromisoformat(link.credentials_expire).timestamp()
            expiry.add_metric([link.name, link.account, link.role], at_s)
    yield expiry


def _accounts(clients: Clients) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    connections = GaugeMetricFamily("eyot_account_connections", "Client connections", labels=["account"])
    leaf_links = GaugeMetricFamily("eyot_account_leafnodes", "Leaf links", labels=["account"])
    for account in clients.broker.each_account():
        connections.add_metric([account.name], len(account.connections))
        leaf_links.add_metric([account.name], len(account.leafnodes))
    yield connections
    yield leaf_links


def _links(clients: Clients) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    labels = ["link", "account", "role"]
    up = GaugeMetricFamily("eyot_link_up", "1: the leaf link is up", labels=labels)
    rtt = GaugeMetricFamily("eyot_link_rtt_seconds", "Round trip time", labels=labels)
    attempts = CounterMetricFamily("eyot_link_attempts", "Attempts to connect", labels=labels)
    received = CounterMetricFamily("eyot_link_in_messages", "Messages from the peer", labels=labels)
    sent = CounterMetricFamily("eyot_link_out_messages", "Messages to the peer", labels=labels)
    wire_in = CounterMetricFamily("eyot_link_wire_in_bytes", "Bytes read, all frames", labels=labels)
    wire_out = CounterMetricFamily("eyot_link_wire_out_bytes", "Bytes written, all frames", labels=labels)
    queued = GaugeMetricFamily("eyot_link_queued_bytes", "Bytes that wait to be written", labels=labels)
    dropped = CounterMetricFamily("eyot_link_dropped", "Messages not sent, by reason", labels=[*labels, "reason"])
    refused = CounterMetricFamily("eyot_link_refused", "Messages that the peer may not send", labels=labels)
    waiting = GaugeMetricFamily("eyot_link_waiting", "1: a policy keeps the link down", labels=labels)
    budget = GaugeMetricFamily("eyot_link_budget_bytes", "Budget of a metered link for this month", labels=labels)
    spent = GaugeMetricFamily(
        "eyot_link_spent_bytes", "Bytes that a metered link has carried this month", labels=labels
    )
    for link in clients.broker.providers.links():
        values = [link.name, link.account, link.role]
        up.add_metric(values, float(link.state == "up"))
        if link.rtt_ms is not None:
            rtt.add_metric(values, link.rtt_ms / 1e3)
        attempts.add_metric(values, link.attempts)
        received.add_metric(values, link.in_msgs)
        sent.add_metric(values, link.out_msgs)
        wire_in.add_metric(values, link.wire_in_bytes)
        wire_out.add_metric(values, link.wire_out_bytes)
        queued.add_metric(values, link.queued_bytes)
        refused.add_metric(values, link.refused)
        waiting.add_metric(values, float(bool(link.waiting)))
        for reason, count in link.dropped.items():
            dropped.add_metric([*values, reason], count)
        if link.metered is not None:
            budget.add_metric(values, link.metered.budget_bytes)
            spent.add_metric(values, link.metered.spent_bytes)
    yield from (up, rtt, attempts, received, sent, wire_in, wire_out, queued, dropped, refused, waiting, budget, spent)


def _streams(clients: Clients) -> Iterator[Metric | None]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    labels = ["account", "stream"]
    messages = GaugeMetricFamily("eyot_stream_messages", "Messages stored", labels=labels)
    size = GaugeMetricFamily("eyot_stream_bytes", "Bytes stored", labels=labels)
    consumers = GaugeMetricFamily("eyot_stream_consumers", "Consumers", labels=labels)
    last = GaugeMetricFamily("eyot_stream_last_sequence", "Sequence of the last message", labels=labels)
    committed = GaugeMetricFamily("eyot_stream_committed_sequence", "Last sequence on flash", labels=labels)
    refused = CounterMetricFamily(
        "eyot_stream_refused", "Messages refused: too much was on its way to flash, or the write failed", labels=labels
    )
    for stream in in_slices(clients.broker.providers.streams()):
        if stream is None:
            yield None
            continue
        values = [stream.account, stream.name]
        refused.add_metric(values, stream.refused)
        messages.add_metric(values, stream.messages)
        size.add_metric(values, stream.bytes)
        consumers.add_metric(values, stream.consumers)
        last.add_metric(values, stream.last_seq)
        committed.add_metric(values, stream.committed_seq)
    yield from (messages, size, consumers, last, committed, refused)


def _jetstream_errors(clients: Clients) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily

    text = "Requests of the JetStream API that were answered with an error"
    api = CounterMetricFamily("eyot_jetstream_api_errors", text, labels=["account", "err_code"])
    text = "Messages that were published and not stored, by JetStream's error code"
    rejected = CounterMetricFamily("eyot_stream_rejected", text, labels=["account", "stream", "err_code"])
    errors = clients.broker.providers.jetstream_errors()
    for account, code, times in errors.api:
        api.add_metric([account, str(code)], times)
    for account, stream, code, messages in errors.rejected:
        rejected.add_metric([account, stream, str(code)], messages)
    yield from (api, rejected)


def _sourcing(clients: Clients) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    labels = ["account", "stream", "kind", "origin"]
    backlog = GaugeMetricFamily(
        "eyot_copy_backlog",
        "Messages that the origin has and this mirror or source lacks; absent: not known",
        labels=labels,
    )
    heard = GaugeMetricFamily("eyot_copy_heard_seconds", "Time since the origin was heard", labels=labels)
    copied = CounterMetricFamily("eyot_copy_messages", "Messages replicated", labels=labels)
    gaps = CounterMetricFamily("eyot_copy_gaps", "Gaps found and requested again", labels=labels)
    committed = GaugeMetricFamily(
        "eyot_copy_committed_sequence", "Origin's sequence that is on flash here", labels=labels
    )
    rate = GaugeMetricFamily("eyot_copy_messages_per_second", "Messages per second", labels=labels)
    waiting = GaugeMetricFamily("eyot_copy_waiting", "1: a policy pauses it", labels=labels)
    failing = GaugeMetricFamily("eyot_copy_failing", "1: the last event was an error", labels=labels)
    for copy in clients.broker.providers.sourcing():
        values = [copy.account, copy.stream, copy.kind, copy.origin]
        if copy.backlog is not None:
            backlog.add_metric(values, copy.backlog)
        if copy.heard_s_ago is not None:
            heard.add_metric(values, copy.heard_s_ago)
        copied.add_metric(values, copy.copied)
        gaps.add_metric(values, copy.gaps)
        committed.add_metric(values, copy.committed_seq)
        rate.add_metric(values, copy.rate)
        waiting.add_metric(values, float(bool(copy.waiting)))
        failing.add_metric(values, float(bool(copy.error)))
    yield from (backlog, heard, copied, gaps, committed, rate, waiting, failing)


def _synced(clients: Clients) -> Iterator[Metric]:
    """Yield the progress of downstreams, labelled by server, target stream and filters."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    labels = ["account", "stream", "peer", "kind", "target", "filters"]
    confirmed = GaugeMetricFamily(
        "eyot_sync_confirmed_sequence", "Last sequence that the downstream has confirmed", labels=labels
    )
    backlog = GaugeMetricFamily("eyot_sync_backlog", "Messages that the downstream has not confirmed", labels=labels)
    size = GaugeMetricFamily("eyot_sync_backlog_bytes", "Bytes of the backlog", labels=labels)
    oldest = GaugeMetricFamily(
        "eyot_sync_oldest_seconds", "Age of the oldest message of the backlog; absent: no backlog", labels=labels
    )
    rate = GaugeMetricFamily(
        "eyot_sync_messages_per_second", "Messages per second between the last confirmations", labels=labels
    )
    linked = GaugeMetricFamily("eyot_sync_linked", "1: the downstream is linked", labels=labels)
    waiting = GaugeMetricFamily("eyot_sync_waiting", "1: a policy pauses it", labels=labels)
    uncertain = GaugeMetricFamily("eyot_sync_uncertain", "1: the downstream's position is not certain", labels=labels)
    never_arrived = CounterMetricFamily(
        "eyot_sync_never_arrived",
        "Messages that were removed before the downstream had them",
        labels=[*labels, "reason"],
    )
    unmatched = GaugeMetricFamily(
        "eyot_sync_unmatched", "Messages that match no downstream's filters", labels=["account", "stream"]
    )
    out = clients.broker.providers.downstream()
    for account, stream, messages in sorted({(each.account, each.stream, each.unmatched) for each in out}):
        unmatched.add_metric([account, stream], messages)
    for each in out:
        values = [each.account, each.stream, each.peer, each.kind, each.target, " ".join(each.filters)]
        confirmed.add_metric(values, each.confirmed_seq)
        backlog.add_metric(values, each.backlog)
        size.add_metric(values, each.backlog_bytes)
        if each.oldest_s is not None:
            oldest.add_metric(values, each.oldest_s)
        rate.add_metric(values, each.rate)
        linked.add_metric(values, float(each.linked))
        waiting.add_metric(values, float(bool(each.waiting)))
        uncertain.add_metric(values, float(each.uncertain))
        for lost in each.lost:
            never_arrived.add_metric([*values, lost.reason], lost.messages)
    yield from (confirmed, backlog, size, oldest, rate, linked, waiting, uncertain)
    yield from (never_arrived, unmatched)
    yield _gauge("synced", "1: a downstream replicates from here, and everything is confirmed", float(all_synced(out)))


def _store(clients: Clients) -> Iterator[Metric]:
    store = clients.broker.providers.store()
    if store is None:
        return
    yield _counter("store_commits", "Commits of the store", store.commits)
    yield _gauge("store_backlog_bytes", "Bytes that wait for their commit", store.backlog_bytes)
    yield _counter(
        "store_refused", "Messages refused: too much was on its way to flash, or the write failed", store.refused
    )
    yield _counter(
        "store_held_back", "How often a publisher was paused because too much was on its way to flash", store.held_back
    )
    yield _gauge("store_failing", "1: the store cannot write", float(bool(store.error)))
    yield _gauge(
        "store_damaged_streams", "Streams that are offline because they are damaged on flash", len(store.offline)
    )
    if store.free_bytes is not None and store.total_bytes is not None:
        yield _gauge("store_free_bytes", "Free bytes of the file system that holds the store", store.free_bytes)
        yield _gauge("store_size_bytes", "Size of the file system that holds the store", store.total_bytes)
    if store.flush_ms is not None:
        yield _gauge("store_flush_seconds", "Duration of a flush", store.flush_ms / 1e3)


def _flash(clients: Clients) -> Iterator[Metric]:
    """Yield what is written to flash and how worn it is; a figure that the kernel does not show is absent."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    flash = clients.broker.providers.flash()
    if flash is None:
        return
    text = "Bytes that anybody has written to the store's disk since the machine started"
    yield CounterMetricFamily("eyot_flash_written_bytes", "Bytes that this daemon has written", flash.written_bytes)
    yield CounterMetricFamily("eyot_flash_device_written_bytes", text, flash.device_written_bytes)
    used = None if flash.used_percent is None else flash.used_percent / 100
    text = "Used part of the device's life by its own estimate; over 1: exceeded"
    yield GaugeMetricFamily("eyot_flash_life_used_ratio", text, used)
    left_s = None if flash.lifetime_days is None else flash.lifetime_days * 86_400
    text = "Estimated time until the device's endurance is used up, at the rate of the last day"
    yield GaugeMetricFamily("eyot_flash_lifetime_seconds", text, left_s)
    text = "Bytes that this daemon should write in a day"
    yield GaugeMetricFamily("eyot_flash_budget_bytes", text, flash.budget_bytes)
    text = "How long commits of streams that allow it wait for others, to keep to the budget"
    yield GaugeMetricFamily("eyot_flash_window_seconds", text, flash.window_s)


def _mqtt(clients: Clients) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    figures = clients.broker.providers.mqtt()
    if figures is None:
        return
    refused = CounterMetricFamily("eyot_mqtt_connects_refused", "CONNECTs refused, by reason code", labels=["reason"])
    for reason, count in figures.refused.items():
        refused.add_metric([reason], count)
    yield refused
    labels = ["account"]
    gauges = {
        "clients": GaugeMetricFamily("eyot_mqtt_clients", "Clients connected", labels=labels),
        "sessions": GaugeMetricFamily("eyot_mqtt_sessions", "Sessions, with and without a client", labels=labels),
        "queued_msgs": GaugeMetricFamily(
            "eyot_mqtt_queued_messages", "Messages on flash that wait for sessions, each once", labels=labels
        ),
        "queued_bytes": GaugeMetricFamily("eyot_mqtt_queued_bytes", "Bytes of these messages", labels=labels),
        "retained_msgs": GaugeMetricFamily("eyot_mqtt_retained_messages", "Retained messages", labels=labels),
        "retained_bytes": GaugeMetricFamily(
            "eyot_mqtt_retained_bytes", "Bytes of the retained messages", labels=labels
        ),
    }
    expired = CounterMetricFamily("eyot_mqtt_sessions_expired", "Sessions whose time was over", labels=labels)
    received = CounterMetricFamily("eyot_mqtt_received", "PUBLISH from clients", labels=[*labels, "qos"])
    sent = CounterMetricFamily("eyot_mqtt_sent", "PUBLISH to clients", labels=[*labels, "qos"])
    bytes_in = CounterMetricFamily("eyot_mqtt_in_bytes", "Bytes from clients, all packets", labels=labels)
    bytes_out = CounterMetricFamily("eyot_mqtt_out_bytes", "Bytes to clients, all packets", labels=labels)
    dropped = CounterMetricFamily(
        "eyot_mqtt_dropped", "Messages not delivered or stored, by reason", labels=[*labels, "reason"]
    )
    for each in figures.accounts:
        for name, gauge in gauges.items():
            gauge.add_metric([each.account], getattr(each, name))
        expired.add_metric([each.account], each.expired)
        bytes_in.add_metric([each.account], each.bytes[0])
        bytes_out.add_metric([each.account], each.bytes[1])
        for qos in range(3):
            received.add_metric([each.account, str(qos)], each.received[qos])
            sent.add_metric([each.account, str(qos)], each.sent[qos])
        for reason, count in each.dropped.items():
            dropped.add_metric([each.account, reason], count)
    yield from (*gauges.values(), expired, received, sent, bytes_in, bytes_out, dropped)
