"""What members of configurations and requests to JetStream may be: for each the values in order, and values that may be refused."""

from __future__ import annotations

from typing import Any

from support.jetstream.peer import DELIVERED, REPUBLISHED

S = 10**9
FAR, LONG_AGO = "2036-01-01T00:00:00Z", "2020-01-01T00:00:00Z"

Members = dict[str, tuple[list[Any], list[Any]]]

#: Members of a stream's configuration: (values in order, values that may be refused).
STREAM_MEMBERS: Members = {
    "description": (["d", ""], ["d" * 4097, 7, None]),
    "retention": (["limits", "interest", "workqueue"], ["sometimes", "", None, 1]),
    "max_consumers": ([-1, 0, 2, 5], [-2, 1, "1"]),
    "max_msgs": ([-1, 0, 5, 100], [-2, 1, 1.5]),
    "max_bytes": ([-1, 0, 10_000, 400], [-2, 1, "x"]),
    "max_age": ([0, 3600 * S], [-1, 1, 99_000_000, 1 << 63]),
    "max_msgs_per_subject": ([-1, 0, 1, 2, 5], [-2, True]),
    "max_msg_size": ([-1, 0, 100, 1 << 20], [-2, 1, 1 << 31, 1 << 33]),
    "discard": (["old", "new"], ["never", ""]),
    "storage": (["file", "memory"], ["any", "tape", "Memory"]),
    "num_replicas": ([0, 1], [-1, 2, 3, 5, 6]),
    "no_ack": ([False, True], ["yes"]),
    "duplicate_window": ([0, 60 * S, S], [-1, 50_000_000, 7200 * S, 3601 * S]),
    "placement": ([{}, {"cluster": ""}], [{"cluster": "x"}, {"tags": ["t"]}, {"preferred": "x"}, None]),
    "compression": (["none", "s2"], ["zip", ""]),
    "first_seq": ([0, 10], [-1, 1 << 64]),
    "subject_transform": (
        [{"src": ">", "dest": "t.>"}, {"src": "*.a", "dest": "t.a.{{wildcard(1)}}"}, {"src": "", "dest": ""}],
        [
            {"src": "x..", "dest": "y"},
            {"src": "*.*", "dest": "t.{{wildcard(3)}}"},
            {"dest": "t.>"},
            {"src": "a.>", "dest": "x.*"},
        ],
    ),
    "republish": (
        [
            {"src": ">", "dest": f"{REPUBLISHED}.>"},
            {"dest": f"{REPUBLISHED}.>", "headers_only": True},
            {"src": "*.a", "dest": f"{REPUBLISHED}.{{{{wildcard(1)}}}}"},
        ],
        [
            {"src": ">", "dest": "a.>"},
            {"src": "*.a", "dest": "x.*.*"},
            {"src": "nobody.>", "dest": f"{REPUBLISHED}.>"},
            {"dest": ""},
            {"src": ">", "dest": "x..y"},
        ],
    ),
    "allow_direct": ([True, False], [None]),
    "mirror_direct": ([False], [True]),
    "discard_new_per_subject": ([False], [True]),
    "sealed": ([False], [True]),
    "deny_delete": ([False, True], []),
    "deny_purge": ([False], [True]),
    "allow_rollup_hdrs": ([True, False], []),
    "consumer_limits": (
        [
            {},
            {"max_ack_pending": 10},
            {"inactive_threshold": 3600 * S},
            {"inactive_threshold": 3600 * S, "max_ack_pending": 20},
        ],
        [{"max_ack_pending": -1}, {"inactive_threshold": -1}, {"max_ack_pending": "x"}, {"unknown": 1}],
    ),
    "allow_msg_ttl": ([True, False], []),
    "subject_delete_marker_ttl": ([0, 3600 * S], [-1, 1, 500_000_000, 1_500_000_000]),
    "allow_msg_counter": ([False], [True]),
    "allow_atomic": ([True, False], []),
    "allow_msg_schedules": ([True, False], []),
    "persist_mode": (["default", ""], ["async", "never"]),
    "allow_batched": ([True, False], []),
    "metadata": (
        [{}, {"k": "v"}, {"_nats.x": "y"}],
        [{"k": "v" * 131_073}, {"k": 1}, {"_nats.level": "9"}, {"_nats.req.level": "9"}],
    ),
    "mirror": (
        [],
        [
            {"name": "A"},
            {"name": "Z"},
            {"name": ""},
            {"name": "A", "filter_subject": "x..y"},
            {"name": "A", "opt_start_seq": 3, "opt_start_time": LONG_AGO},
        ],
    ),
    "sources": (
        [],
        [
            [{"name": "Z"}],
            [{"name": ""}],
            [{"name": "Z"}, {"name": "Z"}],
            [{"name": "Z", "filter_subject": "q", "subject_transforms": [{"src": "q", "dest": "r"}]}],
        ],
    ),
    "unknown": ([], [1]),
    "pedantic": ([True], ["x"]),
    "template_owner": ([], ["x"]),
    "subjects": (
        [],
        [
            [],
            ["a.>", "a.x"],
            ["x", "x"],
            [""],
            ["x y"],
            [">"],
            ["$JS.>"],
            ["$SYS.>"],
            ["$JS.EVENT.>"],
            ["$KV.x.>"],
            "x",
            ["a.>", "b.q"],
            [1],
            ["$JS.API.INFO"],
            ["$SYS.ACCOUNT.>"],
        ],
    ),
    "name": ([], ["", "X", "a.b", "a b", 1]),
}
CONSUMER_MEMBERS: Members = {
    "description": (["d", ""], ["d" * 4097]),
    "deliver_policy": (["all", "last", "new", "last_per_subject"], ["by_start_sequence", "by_start_time", "first", ""]),
    "opt_start_seq": ([], [0, 1, 5, -1]),
    "opt_start_time": (
        [],
        [
            LONG_AGO,
            FAR,
            "yesterday",
            "0001-01-01T00:00:00Z",
            "2020-01-01T02:00:00.500+02:00",
            "2020-01-01T00:00:00.000-00:00",
        ],
    ),
    "ack_policy": (["explicit", "all", "none"], ["some", "", "flow_control"]),
    "ack_wait": ([0, 30 * S, 3600 * S], [-1, 1, 1 << 63]),
    "max_deliver": ([-1, 0, 1, 2, 5], [-2]),
    "backoff": ([[], [60 * S], [60 * S, 120 * S]], [[-1], [S, 0], [1, 2, 3], "x", [60 * S] * 6]),
    "filter_subject": (["", "*.a", "*.>", ">", "a.a"], ["x..y", "nobody", "a b", "*.c.*"]),
    "filter_subjects": (
        [["*.a", "*.b"], ["a.a", "b.a", "c.a"], []],
        [["*.a", "*.a"], ["*.a", "a.a"], [""], ["x..y"], "x", ["*.*.d", "*.b"]],
    ),
    "replay_policy": (["instant"], ["slow", ""]),
    "rate_limit_bps": ([0], [1 << 30, -1]),
    "sample_freq": (["", "100", "100%", "0"], ["x", "-5", "1000", "5.5", "%"]),
    "max_waiting": ([0, 1, 2, 512], [-1, 1 << 20]),
    "max_ack_pending": ([0, -1, 1, 3, 100], [-2, 1 << 40]),
    "flow_control": ([], [True]),
    "headers_only": ([False, True], []),
    "max_batch": ([0, 2, 10], [-1]),
    "max_expires": ([0, 60 * S], [-1, 1, 500_000]),
    "max_bytes": ([0, 200, 1000], [-1]),
    "deliver_subject": ([f"{DELIVERED}.x", f"{DELIVERED}.y"], ["x..y", "a.a", "*.x", "> x", "$JS.x"]),
    "deliver_group": ([], ["g", "g.*", "g h"]),
    "idle_heartbeat": ([0], [-1, 1, 100_000_000, 3600 * S, 60 * S]),
    "inactive_threshold": ([0, 3600 * S], [1 << 62, 7200 * S]),
    "num_replicas": ([0, 1], [-1, 2, 6]),
    "mem_storage": ([False, True], []),
    "direct": ([], [True]),
    "sourcing": ([], [True]),
    "metadata": ([{}, {"k": "v"}], [{"k": "v" * 131_073}, {"_nats.x": "y"}, {"_nats.req.level": "9"}]),
    "pause_until": ([None], [FAR, LONG_AGO, "x", "2036-01-01T02:00:00.500+02:00", "2036-01-01T00:00:00.10Z"]),
    "priority_groups": ([], [["g"], ["g", "h"], [""], ["g g"], ["g" * 17], "g"]),
    "priority_policy": ([], ["none", "overflow", "pinned_client", "prioritized", "x"]),
    "priority_timeout": ([], [0, 60 * S, -1]),
    "durable_name": ([], ["c1", "other", "a.b", ""]),
    "name": ([], ["c2", "other", "a.b", "a/b", ""]),
    "unknown": ([], [1]),
}
PULL_MEMBERS: Members = {
    "max_bytes": ([0, 150, 1000], [-1, 1, 1 << 40]),
    "group": ([], ["g", "h", "", "x"]),
    "min_pending": ([], [1, 3, 50, -1]),
    "min_ack_pending": ([], [1, 3, 50, -1]),
    "priority": ([], [0, 5, 9, 10, -1]),
    "id": ([], ["nobody", ""]),
    "unknown": ([], [1]),
    "idle_heartbeat": ([0], [10_000_000_000, -1, 20_000_000]),
    "batch": ([], [-1, 0, "x", 1 << 33]),
    "expires": ([], [-1, "1s"]),
}
ACKS = (b"", b"+ACK", b"+ACK", b"+ACK", b"+OK", b"-NAK", b'-NAK {"delay": 3600000000000}', b"-NAK 1h", b"-NAK x", b"-NAK {x}",
        b"+WPI", b"+WPI x", b"+TERM", b"+TERM because", b"+TERM  two words", b"-ack", b"nonsense")  # fmt: skip
