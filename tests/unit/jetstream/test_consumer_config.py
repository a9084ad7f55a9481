"""Defaults, checks and update rules of consumer configurations, by nats-server's codes and texts."""

from typing import Any

import pytest

from eyot_daemon.jetstream.config.consumer import (
    ConsumerRules,
    check,
    check_update,
    check_workqueue,
    check_workqueue_filters,
    complete,
    consumer_level,
    same_config,
    sample_percent,
)
from eyot_wire.jetstream.errors import JetStreamError
from eyot_wire.jetstream.model import ConsumerConfig, ConsumerLimits, Placement, StreamConfig

S = 1_000_000_000
RULES = ConsumerRules()


def stream(**members: Any) -> StreamConfig:
    return StreamConfig(name="S", subjects=["s.>"], num_replicas=1, **members)


def completed(config: ConsumerConfig, of: StreamConfig | None = None, rules: ConsumerRules = RULES) -> ConsumerConfig:
    complete(config, of or stream(), rules, pedantic=False)
    return config


def refusal(config: ConsumerConfig, of: StreamConfig | None = None, rules: ConsumerRules = RULES) -> tuple[int, str]:
    with pytest.raises(JetStreamError) as refused:
        check(completed(config, of, rules), of or stream(), rules)
    return refused.value.api_error.err_code, refused.value.api_error.description


def test_defaults_of_a_durable_pull_consumer() -> None:
    config = completed(ConsumerConfig(durable_name="C", ack_policy="explicit"))
    assert config == ConsumerConfig(
        durable_name="C",
        ack_policy="explicit",
        ack_wait=30 * S,
        max_deliver=-1,
        max_waiting=512,
        max_ack_pending=1000,
    )


def test_defaults_of_an_ephemeral_push_consumer() -> None:
    config = completed(ConsumerConfig(deliver_subject="d", max_deliver=-7, max_ack_pending=-9, idle_heartbeat=-1))
    assert config == ConsumerConfig(deliver_subject="d", max_deliver=-1, max_ack_pending=-1, inactive_threshold=5 * S)


def test_limits_of_stream_server_and_account_become_defaults() -> None:
    limited = stream(consumer_limits=ConsumerLimits(inactive_threshold=9 * S, max_ack_pending=77))
    config = completed(ConsumerConfig(durable_name="C", ack_policy="all"), limited)
    assert (config.inactive_threshold, config.max_ack_pending) == (9 * S, 77)
    rules = ConsumerRules(max_ack_pending=500, max_ack_pending_account=50, max_request_batch=20)
    config = completed(ConsumerConfig(durable_name="C", ack_policy="explicit"), rules=rules)
    assert (config.max_ack_pending, config.max_batch) == (50, 20)


def test_backoff_sets_ack_wait_and_pins_get_a_time_to_live() -> None:
    config = completed(ConsumerConfig(ack_policy="explicit", ack_wait=5 * S, backoff=[S, 2 * S]))
    assert config.ack_wait == S
    config = completed(ConsumerConfig(ack_policy="explicit", priority_policy="pinned_client", priority_groups=["A"]))
    assert config.priority_timeout == 120 * S


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({"max_deliver": -2}, "max_deliver must be set to -1"),
        ({"max_ack_pending": -2}, "max_ack_pending must be set to -1"),
        ({"inactive_threshold": -1}, "inactive_threshold must not be negative"),
        ({"backoff": [S], "ack_wait": 2 * S}, "first backoff value has to equal batch AckWait"),
    ],
)
def test_pedantic_mode_refuses_what_would_be_corrected(members: dict[str, Any], text: str) -> None:
    with pytest.raises(JetStreamError) as refused:
        complete(ConsumerConfig(**members), stream(), RULES, pedantic=True)
    assert refused.value.api_error.err_code == 10157
    assert refused.value.api_error.description == f"pedantic mode: {text}"


PULL = {"durable_name": "C", "ack_policy": "explicit"}
PUSH = {"durable_name": "C", "deliver_subject": "d"}


@pytest.mark.parametrize(
    ("members", "err_code", "text"),
    [
        ({**PULL, "num_replicas": 3}, 10126, "consumer config replica count exceeds parent stream"),
        ({**PULL, "backoff": [-1]}, 10184, "consumer backoff needs to be positive"),
        ({**PULL, "ack_wait": -1}, 10183, "consumer ack wait needs to be positive"),
        ({**PULL, "max_deliver": 1, "backoff": [1, 2]}, 10116, None),
        ({**PULL, "description": "x" * 4097}, 10107, "consumer description is too long, maximum allowed is 4096"),
        ({**PUSH, "deliver_subject": "d.*"}, 10079, None),
        ({**PUSH, "deliver_subject": "d..e"}, 10112, None),
        ({**PUSH, "deliver_subject": "s.1"}, 10081, None),
        ({**PUSH, "max_waiting": 1}, 10080, None),
        ({**PUSH, "max_ack_pending": 1}, 10082, None),
        ({**PUSH, "idle_heartbeat": 99_999_999}, 10083, None),
        ({**PULL, "rate_limit_bps": 1}, 10086, None),
        ({**PULL, "idle_heartbeat": S}, 10088, None),
        ({**PULL, "flow_control": True}, 10089, None),
        ({**PULL, "max_expires": 999_999}, 10115, None),
        ({"name": "C", "direct": True}, 10090, None),
        ({**PUSH, "direct": True}, 10091, None),
        ({**PULL, "filter_subject": "a", "filter_subjects": ["b"]}, 10136, None),
        ({**PULL, "filter_subject": "a..b"}, 10052, "invalid subject"),
        ({**PULL, "filter_subjects": ["a", ""]}, 10139, None),
        ({**PULL, "filter_subjects": ["a", "b..c"]}, 10052, "invalid subject"),
        ({**PULL, "filter_subjects": ["a.*", "b", "a.>"]}, 10138, None),
        (
            {**PULL, "opt_start_seq": 1},
            10094,
            "consumer delivery policy is deliver all, but optional start sequence is also set",
        ),
        (
            {**PULL, "deliver_policy": "last", "opt_start_time": "2024-01-01T00:00:00Z"},
            10094,
            "consumer delivery policy is deliver last, but optional start time is also set",
        ),
        (
            {**PULL, "deliver_policy": "by_start_sequence"},
            10094,
            "consumer delivery policy is deliver by start sequence, but optional start sequence is not set",
        ),
        (
            {**PULL, "deliver_policy": "by_start_time"},
            10094,
            "consumer delivery policy is deliver by start time, but optional start time is not set",
        ),
        (
            {**PULL, "deliver_policy": "by_start_time", "opt_start_time": "2024-01-01T00:00:00Z", "opt_start_seq": 2},
            10094,
            "consumer delivery policy is deliver by start time, but optional start start sequence is also set",
        ),
        (
            {**PULL, "deliver_policy": "last_per_subject"},
            10094,
            "consumer delivery policy is deliver last per subject, but optional filter subject is not set",
        ),
        (
            {**PULL, "sample_freq": "lots"},
            10095,
            'failed to parse consumer sampling configuration: strconv.Atoi: parsing "lots": invalid syntax',
        ),
        (
            {**PULL, "sample_freq": "9" * 5000},
            10095,
            'failed to parse consumer sampling configuration: strconv.Atoi: parsing "%s": value out of range'
            % ("9" * 5000),
        ),
        ({**PUSH, "flow_control": True}, 10108, None),
        ({"durable_name": "C", "name": "D", "ack_policy": "explicit"}, 10132, None),
        ({**PULL, "metadata": {"k": "x" * (128 * 1024)}}, 10135, "consumer metadata exceeds maximum size of 128KB"),
        ({**PULL, "priority_groups": ["A"]}, 10196, None),
        ({**PULL, "priority_timeout": S}, 10197, None),
        ({**PUSH, "priority_policy": "overflow", "priority_groups": ["A"]}, 10178, None),
        ({**PULL, "priority_policy": "overflow"}, 10159, None),
        ({**PULL, "priority_policy": "overflow", "priority_groups": [""]}, 10161, None),
        ({**PULL, "priority_policy": "overflow", "priority_groups": ["a b"]}, 10162, None),
        ({**PULL, "priority_policy": "overflow", "priority_groups": ["a" * 17]}, 10162, None),
        ({"durable_name": "a.b", "ack_policy": "explicit"}, 10052, None),
        ({"durable_name": "n" * 256, "ack_policy": "explicit"}, 10102, None),
    ],
)
def test_refusals(members: dict[str, Any], err_code: int, text: str | None) -> None:
    code, description = refusal(ConsumerConfig(**members))
    assert code == err_code
    if text is not None:
        assert description == text


def test_refusals_that_depend_on_stream_and_server() -> None:
    assert refusal(ConsumerConfig(**PULL, num_replicas=2), stream(retention="interest"))[0] == 10126
    assert refusal(ConsumerConfig(durable_name="C"), stream(retention="workqueue"))[0] == 10084
    assert refusal(ConsumerConfig(**PULL), stream(placement=Placement(preferred="x")))[0] == 10052
    limited = stream(consumer_limits=ConsumerLimits(inactive_threshold=S, max_ack_pending=10))
    assert refusal(ConsumerConfig(**PULL, max_ack_pending=11), limited)[0] == 10121
    assert refusal(ConsumerConfig(**PULL, inactive_threshold=2 * S), limited)[0] == 10153
    rules = ConsumerRules(max_ack_pending=10, max_request_batch=5)
    assert refusal(ConsumerConfig(**PULL, max_ack_pending=11), rules=rules) == (
        10121,
        "consumer max ack pending exceeds system limit of 10",
    )
    assert refusal(ConsumerConfig(**PULL, max_batch=6), rules=rules)[0] == 10125


@pytest.mark.parametrize(
    "members",
    [
        PULL,
        PUSH,
        {**PULL, "filter_subjects": ["a.*", "b.>", "other"]},  # any filter is allowed, also outside the subjects
        {**PUSH, "idle_heartbeat": S, "flow_control": True, "rate_limit_bps": 1000},
        {"deliver_subject": "d", "direct": True, "name": "JS_MIRROR_x"},
        {**PULL, "sample_freq": "30%", "max_deliver": 2, "backoff": [1, 2]},
        {**PULL, "priority_policy": "prioritized", "priority_groups": ["A-1/2_=z"]},
    ],
)
def test_what_is_fine(members: dict[str, Any]) -> None:
    check(completed(ConsumerConfig(**members)), stream(), RULES)


def refused_update(old: dict[str, Any], new: dict[str, Any], *, bound: bool = False) -> tuple[int, str]:
    with pytest.raises(JetStreamError) as refused:
        check_update(completed(ConsumerConfig(**old)), completed(ConsumerConfig(**new)), bound=bound)
    return refused.value.api_error.err_code, refused.value.api_error.description


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (PULL, {**PULL, "deliver_policy": "new"}, "deliver policy can not be updated"),
        (PULL, {**PULL, "ack_policy": "all"}, "ack policy can not be updated"),
        (PULL, {**PULL, "replay_policy": "original"}, "replay policy can not be updated"),
        (PULL, {**PULL, "max_waiting": 5}, "max waiting can not be updated"),
        (PULL, PUSH | {"ack_policy": "explicit"}, "can not update pull consumer to push based"),
        (PUSH | {"ack_policy": "explicit"}, PULL, "can not update push consumer to pull based"),
        (PUSH, {**PUSH, "idle_heartbeat": S}, "heart beats can not be updated"),
        (
            {**PUSH, "idle_heartbeat": S},
            {**PUSH, "idle_heartbeat": S, "flow_control": True},
            "flow control can not be updated",
        ),
        (PULL, {**PULL, "mem_storage": True}, "storage type can not be updated"),
    ],
)
def test_what_an_update_may_not_change(old: dict[str, Any], new: dict[str, Any], text: str) -> None:
    assert refused_update(old, new) == (10012, text)


def test_start_times_are_compared_as_times() -> None:
    at = {**PULL, "deliver_policy": "by_start_time"}
    old = completed(ConsumerConfig(**at, opt_start_time="2024-01-01T00:00:00Z"))
    check_update(old, completed(ConsumerConfig(**at, opt_start_time="2024-01-01T01:00:00+01:00")), bound=False)
    assert refused_update(
        {**at, "opt_start_time": "2024-01-01T00:00:00Z"}, {**at, "opt_start_time": "2024-01-01T00:00:01Z"}
    ) == (10012, "start time can not be updated")


def test_deliver_subject_moves_only_while_nobody_listens() -> None:
    check_update(
        completed(ConsumerConfig(**PUSH)), completed(ConsumerConfig(**PUSH | {"deliver_subject": "e"})), bound=False
    )
    assert refused_update(PUSH, PUSH | {"deliver_subject": "e"}, bound=True)[0] == 10013


def test_what_an_update_may_change() -> None:
    new = completed(
        ConsumerConfig(
            **PULL,
            description="d",
            ack_wait=S,
            max_deliver=5,
            filter_subjects=["a", "b"],
            max_ack_pending=3,
            headers_only=True,
            max_batch=1,
            inactive_threshold=S,
            sample_freq="1",
            metadata={"a": "b"},
        )
    )
    check_update(completed(ConsumerConfig(**PULL)), new, bound=False)


def test_server_metadata_does_not_count_as_a_difference() -> None:
    a = ConsumerConfig(**PULL, metadata={"k": "v", "_nats.req.level": "0"})
    b = ConsumerConfig(**PULL, metadata={"k": "v"})
    assert same_config(a, b)
    assert not same_config(a, ConsumerConfig(**PULL, metadata={"k": "w"}))


def test_work_queues_share_no_message() -> None:
    first = ConsumerConfig(durable_name="A", ack_policy="explicit", filter_subject="s.a")
    check_workqueue(ConsumerConfig(ack_policy="explicit"), [])
    for members, others, code in (
        ({"ack_policy": "all"}, [], 10098),
        ({"ack_policy": "explicit"}, [first], 10099),
        ({"ack_policy": "explicit", "filter_subject": "s.*"}, [first], 10100),
        ({"ack_policy": "explicit", "deliver_policy": "new"}, [], 10101),
    ):
        with pytest.raises(JetStreamError) as refused:
            check_workqueue(ConsumerConfig(**members), others)
        assert refused.value.api_error.err_code == code
    check_workqueue(ConsumerConfig(ack_policy="explicit", filter_subject="s.b"), [first])
    with pytest.raises(JetStreamError):
        check_workqueue_filters(ConsumerConfig(filter_subject="s.>"), [first])


def test_levels_and_sampling() -> None:
    assert consumer_level(ConsumerConfig()) == 0
    assert consumer_level(ConsumerConfig(pause_until="2030-01-01T00:00:00Z")) == 1
    assert consumer_level(ConsumerConfig(priority_policy="prioritized", priority_groups=["A"])) == 1
    assert consumer_level(ConsumerConfig(ack_policy="flow_control")) == 4
    assert [sample_percent(ConsumerConfig(sample_freq=text)) for text in ("", "0", "30", "30%", "200")] == [
        0,
        0,
        30,
        30,
        100,
    ]
