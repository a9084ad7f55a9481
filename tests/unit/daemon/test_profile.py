"""`eyot { profile }`: the documented defaults are those in force, and what the configuration names itself stands."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path

import pytest
from msgspec.structs import replace

from eyot_daemon.config.args import apply_arguments, parse_args
from eyot_daemon.config.options import Options
from eyot_daemon.config.profile import PROFILES, SMALL, STANDARD
from eyot_daemon.config.read import read_options
from eyot_daemon.jetstream.running import _store_options
from eyot_daemon.reload.changes import ReloadError, changed_fields
from eyot_store.options import StoreOptions
from eyot_wire.conf import ConfError, parse_text

PAGE = Path(__file__).parents[3] / "docs" / "reference.md"
#: (documented name, field of `Profile`, place in `Options`, key with another value)
ROWS = [
    ("`max_connections` (0: nobody)", "max_connections", "max_connections", "max_conn: 7"),
    ("`max_subscriptions`, of a connection", "max_subscriptions", "max_subscriptions", "max_subs: 7"),
    ("`max_pending`", "max_pending", "max_pending", "max_pending: 7"),
    ("`eyot.max_pending_total`", "max_pending_total", "eyot.max_pending_total", "max_pending_total: 7MB"),
    ("`max_closed_clients`", "max_closed_clients", "max_closed_clients", "max_closed_clients: 7"),
    ("`jetstream.max_memory_store`", "max_memory_store", "jetstream.memory_max", "jetstream { max_mem: 7 }"),
    (
        "`jetstream.max_buffered_msgs`, of a stream",
        "max_buffered_msgs",
        "jetstream.buffered_msgs_max",
        "jetstream { max_buffered_msgs: 7 }",
    ),
    (
        "`jetstream.max_buffered_size`, of a stream",
        "max_buffered_size",
        "jetstream.buffered_bytes_max",
        "jetstream { max_buffered_size: 7 }",
    ),
    (
        "`jetstream.limits.max_ack_pending`, of a consumer",
        "max_ack_pending",
        "jetstream.limits.ack_pending_max",
        "jetstream { limits { max_ack_pending: 7 } }",
    ),
    (
        "`jetstream.limits.duplicate_window`",
        "duplicate_window_s",
        "jetstream.limits.duplicate_window_s",
        'jetstream { limits { duplicate_window: "7s" } }',
    ),
    ("`eyot.store.journal_size`", "journal_size", "eyot.store.journal_size", "store { journal_size: 7MB }"),
    ("`eyot.store.backlog_size`", "backlog_size", "eyot.store.backlog_size", "store { backlog_size: 7MB }"),
    ("`eyot.mqtt.max_sessions`", "mqtt_max_sessions", "eyot.mqtt.sessions_max", "mqtt { max_sessions: 7 }"),
    (
        "`eyot.mqtt.session_queue_msgs`",
        "mqtt_session_queue_msgs",
        "eyot.mqtt.queue_msgs",
        "mqtt { session_queue_msgs: 7 }",
    ),
    (
        "`eyot.mqtt.session_queue_bytes`",
        "mqtt_session_queue_bytes",
        "eyot.mqtt.queue_bytes",
        "mqtt { session_queue_bytes: 7 }",
    ),
    (
        "`eyot.mqtt.queued_msgs_max`",
        "mqtt_queued_msgs_max",
        "eyot.mqtt.queued_msgs_max",
        "mqtt { queued_msgs_max: 7 }",
    ),
    (
        "`eyot.mqtt.queued_bytes_max`",
        "mqtt_queued_bytes_max",
        "eyot.mqtt.queued_bytes_max",
        "mqtt { queued_bytes_max: 7 }",
    ),
    (
        "`eyot.mqtt.retained_msgs_max`",
        "mqtt_retained_msgs_max",
        "eyot.mqtt.retained_msgs_max",
        "mqtt { retained_msgs_max: 7 }",
    ),
    (
        "`eyot.mqtt.retained_bytes_max`",
        "mqtt_retained_bytes_max",
        "eyot.mqtt.retained_bytes_max",
        "mqtt { retained_bytes_max: 7 }",
    ),
    ("`eyot.mqtt.max_inflight`", "mqtt_max_inflight", "eyot.mqtt.inflight_max", "mqtt { max_inflight: 7 }"),
]
#: What 0 and -1 stand for, where it is not "no limit".
WORDS = {
    "max_memory_store": "3/4 of the machine's memory",
    "max_buffered_msgs": "100,000",
    "max_buffered_size": "128 MiB",
    "journal_size": "16 MiB",
    "backlog_size": "32 MiB",
}
#: Bytes beyond this are told in units; counts never get there with a round binary figure.
_SIZES = {"max_pending", "batch_size", "journal_size", "backlog_size", "max_memory_store", "max_buffered_size"}
_SIZES |= {"max_pending_total", "mqtt_session_queue_bytes", "mqtt_queued_bytes_max", "mqtt_retained_bytes_max"}


def options(text: str) -> Options:
    return read_options(parse_text(text)).options


def told(field: str, value: float) -> str:
    """Return a value as the page writes it."""
    if value <= 0:
        return WORDS.get(field, "no limit")
    if field == "duplicate_window_s":
        return f"{value / 60:g} minutes"
    if field in _SIZES:
        return f"{int(value) >> 20} MiB" if value >= 1 << 20 else f"{int(value) >> 10} KiB"
    return f"{value:,}"


def test_the_page_tells_every_default_of_both_profiles() -> None:
    part = PAGE.read_text().partition("## The profile `small`\n")[2].partition("\n## ")[0]
    lines = [line.strip("| ").split(" | ")[:3] for line in part.splitlines() if line.startswith("|")][2:]
    fields = {name: field for name, field, _, _ in ROWS} | {"atomic batches, all that are open": "batch_size"}
    assert [line[0] for line in lines if line[0] not in fields] == []
    assert set(fields.values()) == set(STANDARD.__struct_fields__)
    expected = [
        [name, told(field, getattr(STANDARD, field)), told(field, getattr(SMALL, field))]
        for name, field in fields.items()
    ]
    assert sorted(lines) == sorted(expected)


@pytest.mark.parametrize(
    "jetstream", ["jetstream { }", "jetstream: true", "jetstream: enabled", "jetstream { limits { } }"]
)
@pytest.mark.parametrize("blocks", ["", "store { }, mqtt { }"])
@pytest.mark.parametrize("profile", PROFILES)
def test_the_defaults_are_in_force(profile: str, jetstream: str, blocks: str) -> None:
    read = options(f"eyot {{ profile: {profile}, {blocks} }}\n{jetstream}")
    assert {field: attrgetter(place)(read) for _, field, place, _ in ROWS} == {
        field: getattr(PROFILES[profile], field) for _, field, _, _ in ROWS
    }
    assert read.eyot.profile == profile


def test_without_a_profile_nothing_changes() -> None:
    assert options("jetstream: true\neyot { }") == options("jetstream: true")
    assert options("eyot { profile: STANDARD }") == options("")


@pytest.mark.parametrize(("place", "text"), [row[2:] for row in ROWS])
def test_what_the_configuration_names_stands(place: str, text: str) -> None:
    """And it alone: all other options keep the profile's defaults."""
    inside = place.startswith("eyot.")
    whole = (
        f"eyot {{ profile: small, {text} }}\njetstream {{ }}"
        if inside
        else f"jetstream {{ }}\n{text}\neyot {{ profile: small }}"
    )
    read, small = options(whole), options("eyot { profile: small }\njetstream { }")
    assert attrgetter(place)(read) == (7 << 20 if "7MB" in text else 7)
    others = [row[2] for row in ROWS if row[2] != place]
    assert {other: attrgetter(other)(read) for other in others} == {other: attrgetter(other)(small) for other in others}


def test_jetstream_of_the_command_line_has_the_profiles_defaults() -> None:
    started = apply_arguments(options("eyot { profile: small }"), parse_args(["-js"]))
    assert started.jetstream == options("eyot { profile: small }\njetstream { }").jetstream
    assert apply_arguments(Options(), parse_args(["-js"])).jetstream == options("jetstream { }").jetstream


def test_the_store_opens_with_the_profiles_sizes() -> None:
    chosen = _store_options(options("eyot { profile: small }").eyot.store)
    assert (chosen.backlog_bytes_soft, chosen.backlog_bytes_hard) == (8 << 20, 32 << 20)
    assert chosen.journal_segment_bytes * chosen.journal_segments == 4 << 20
    assert _store_options(options("").eyot.store) == StoreOptions()
    without_journal = options("eyot { profile: small, store { committer: lmdb } }").eyot.store
    assert (without_journal.committer, without_journal.journal_size) == ("lmdb", 0)


@pytest.mark.parametrize("text", ["profile: tiny", "profile: 3", "max_pending_total: 4K", "store { backlog_size: 4K }"])
def test_what_is_refused(text: str) -> None:
    with pytest.raises(ConfError, match=r"expected|at least 1M"):
        options(f"eyot {{ {text} }}")


def test_a_reload_does_not_change_the_profile() -> None:
    before = options("eyot { profile: small }")
    after = replace(before, eyot=replace(before.eyot, profile="standard"))
    with pytest.raises(ReloadError, match="config reload not supported for eyot profile"):
        changed_fields(before, after)
