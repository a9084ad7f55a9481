"""Options in and errors that name the option."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from eyot_hub.errors import ApiFailure, OptionError
from eyot_hub.options import _READ, _WRITE, CONNECT, Bound, Limits, sink_options, source_options
from eyot_wire.jetstream.errors import ApiError

GOOD = {"servers": "nats://hub:4222", "stream": "READINGS"}


def test_everything_given() -> None:
    options = source_options(
        {
            "Servers": "nats://a:1, tls://b",
            "STREAM": "A,EDGE_*",
            "domain": "hub",
            "account": "ACC",
            "user": "u",
            "password": "p",
            "subjects": "a.*, b.>",
            "startingOffsets": '{"A": 5, "EDGE_1": "earliest"}',
            "endingOffsets": "2026-01-31T00:00:00Z",
            "maxOffsetsPerTrigger": "100",
            "maxBytesPerTrigger": "1m",
            "minOffsetsPerTrigger": "10",
            "maxTriggerDelay": "1m",
            "headerColumns": "Trace, id=Nats-Msg-Id",
            "minPartitions": "4",
            "maxRecordsPerPartition": "1000",
            "failOnDataLoss": "false",
            "includeHeaders": "False",
            "fetchBytes": "8m",
            "timeout": "500ms",
            "retryFor": "30",
        }
    )
    assert options.read.connect.servers == ("nats://a:1", "tls://b")
    assert options.streams == ("A", "EDGE_*")
    assert options.read.api_prefix == "$JS.hub.API"
    assert options.read.subjects == ("a.*", "b.>")
    assert options.starting == Bound("earliest", sequences={"A": 5, "EDGE_1": "earliest"})
    assert options.ending == Bound("latest", time="2026-01-31T00:00:00Z")
    assert options.limits == Limits(max_messages=100, max_bytes=2**20, min_messages=10, max_delay_s=60.0)
    assert (options.min_partitions, options.max_per_partition) == (4, 1000)
    assert options.read.header_columns == (("Trace", "Trace"), ("id", "Nats-Msg-Id"))
    assert (options.read.fail_on_data_loss, options.read.include_headers) == (False, False)
    assert options.read.fetch_bytes == 8 * 1024 * 1024
    assert (options.read.connect.timeout_s, options.read.connect.retry_s) == (0.5, 30.0)


def test_api_prefix_in_both_spellings() -> None:
    for key in ("api_prefix", "apiPrefix", "API_PREFIX"):
        assert source_options({**GOOD, key: "JS.acc@hub.API.>"}).read.api_prefix == "JS.acc@hub.API"


def test_milliseconds_are_a_time() -> None:
    assert source_options({**GOOD, "startingOffsets": "1767225600000"}).starting.time == "2026-01-01T00:00:00Z"


def test_times_per_stream() -> None:
    given = '{"A": "2026-01-01T01:00:00+01:00", "B": "1767225600000", "C": 1767225600000, "D": "latest"}'
    expected = {"A": "2026-01-01T00:00:00Z", "B": "2026-01-01T00:00:00Z", "C": 1767225600000, "D": "latest"}
    options = source_options({**GOOD, "startingOffsets": given, "endingOffsets": given})
    assert options.starting == Bound("earliest", sequences=expected)
    assert options.ending == Bound("latest", sequences=expected)
    with pytest.raises(OptionError, match="neither a sequence nor earliest, latest or a time: 'soon'"):
        source_options({**GOOD, "startingOffsets": '{"A": "soon"}'})


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("servers", "", "is empty"),
        ("servers", "http://x", "unknown kind"),
        ("servers", "nats://me:secret@x", "must not hold a user or password"),
        ("servers", "nats://x:port", "no usable port"),
        ("stream", "", "is empty"),
        ("stream", "A,B C", "an invalid stream name: 'B C'"),
        ("stream", "READ.INGS", "an invalid stream name"),
        ("stream", "A\r\nPUB x 0", "an invalid stream name"),
        ("subjects", "a..b", "invalid subject"),
        ("domain", "a.b", "one token"),
        ("apiPrefix", "a.*", "must be a subject"),
        ("startingOffsets", "latest", "must not be latest in a batch read"),
        ("startingOffsets", "soon", "must be earliest, latest, a time"),
        ("startingOffsets", "9" * 30, "must be earliest, latest, a time"),
        ("startingOffsets", "{", "is not JSON"),
        ("startingOffsets", '{"READINGS": -1}', "neither a sequence"),
        ("endingOffsets", "earliest", "must not be earliest"),
        ("endingOffsets", '{"READINGS": "earliest"}', "neither a sequence"),
        ("maxOffsetsPerTrigger", "0", "at least 1"),
        ("minPartitions", "two", "at least 1"),
        ("failOnDataLoss", "maybe", "true or false"),
        ("fetchBytes", "1x", "number of bytes"),
        ("fetchBytes", "1k", "at least"),
        ("timeout", "fast", "duration"),
        ("timeout", "0s", "must be positive"),
        ("user", "me", "password"),
        ("subscribePattern", "EDGE_.*", "cannot be used together with 'stream'"),
        ("maxBytesPerTrigger", "0", "at least 1"),
        ("maxBytesPerTrigger", "1x", "number of bytes"),
        ("minOffsetsPerTrigger", "0", "at least 1"),
        ("maxTriggerDelay", "soon", "duration"),
        ("headerColumns", "a b", "must name headers"),
        ("headerColumns", "x=", "must name headers"),
        ("headerColumns", "Subject", "there is another column 'Subject'"),
        ("headerColumns", "Trace,trace", "there is another column 'trace'"),
        ("tlsCert", "x", "tlsKey"),
    ],
)
def test_a_mistake_names_its_option(option: str, value: str, problem: str) -> None:
    with pytest.raises(OptionError, match=problem) as caught:
        source_options({**GOOD, option: value})
    assert f"option '{caught.value.option}'" in str(caught.value)


def test_an_unknown_option_is_refused_with_a_hint() -> None:
    with pytest.raises(OptionError, match=r"option 'startingOffset' is not known \(did you mean 'startingOffsets'\?\)"):
        source_options({**GOOD, "startingOffset": "earliest"})


def test_subjects_select_no_streams() -> None:
    options = source_options({"servers": "a", "stream": "S", "subjects": "readings.>,status.*"})
    assert (options.streams, options.pattern) == (("S",), None)
    options = source_options({"servers": "a", "subscribePattern": "EDGE_.*", "subjects": "readings.>"})
    assert (options.streams, options.pattern) == ((), "EDGE_.*")


def test_a_regular_expression_instead_of_names() -> None:
    options = source_options({"servers": "a", "subscribePattern": r"EDGE_\d+"})
    assert (options.streams, options.pattern) == ((), r"EDGE_\d+")
    with pytest.raises(OptionError, match="option 'subscribePattern' is not a regular expression"):
        source_options({"servers": "a", "subscribePattern": "("})


def test_the_limit_of_messages_has_two_names() -> None:
    assert source_options({**GOOD, "maxMsgsPerTrigger": "7"}).limits.max_messages == 7
    with pytest.raises(OptionError, match="option 'maxMsgsPerTrigger' cannot be used together with"):
        source_options({**GOOD, "maxMsgsPerTrigger": "7", "maxOffsetsPerTrigger": "7"})
    with pytest.raises(OptionError, match="option 'minOffsetsPerTrigger' is 8, more than the 7"):
        source_options({**GOOD, "maxMsgsPerTrigger": "7", "minOffsetsPerTrigger": "8"})


def test_options_of_spark_itself_are_let_through() -> None:
    assert source_options({**GOOD, "path": "x", "checkpointLocation": "y"}).streams == ("READINGS",)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(OptionError, match="option 'servers' is missing"):
        source_options({"stream": "A"})
    with pytest.raises(OptionError, match="option 'stream' is missing"):
        source_options({"servers": "a"})


def test_certificates_mean_tls() -> None:
    assert not source_options(GOOD).read.connect.tls
    assert source_options({**GOOD, "tlsCa": "/ca.pem"}).read.connect.tls
    assert not source_options({**GOOD, "tlsCa": "/ca.pem", "tls": "false"}).read.connect.tls


def test_two_ways_to_log_in_are_one_too_many() -> None:
    with pytest.raises(OptionError, match="cannot be used together"):
        source_options({**GOOD, "token": "t", "creds": "/x"})


def test_secrets_stay_out_of_repr() -> None:
    options = source_options({**GOOD, "user": "u", "password": "geheim"})
    assert "geheim" not in repr(options)
    assert "geheim" not in repr(source_options({**GOOD, "token": "geheim"}))


def test_streaming_has_no_end() -> None:
    assert source_options(GOOD, streaming=True).starting.edge == "latest"
    with pytest.raises(OptionError, match="availableNow"):
        source_options({**GOOD, "endingOffsets": "latest"}, streaming=True)


def test_sink_options() -> None:
    assert sink_options({"servers": "a", "subject": "x.y", "maxInFlight": "5"}).max_in_flight == 5
    with pytest.raises(OptionError, match="option 'subject'"):
        sink_options({"servers": "a", "subject": "x.*"})
    with pytest.raises(OptionError, match="option 'expectStream' must be the name of a stream"):
        sink_options({"servers": "a", "expectStream": "A\r\nx: y"})
    with pytest.raises(OptionError, match="option 'stream' is not known"):
        sink_options({"servers": "a", "stream": "x"})


def test_errors_travel_between_processes() -> None:
    failure = ApiFailure("x", ApiError(code=404, err_code=10059, description="stream not found"))
    assert str(pickle.loads(pickle.dumps(failure))) == "x: stream not found (code 404, err_code 10059)"
    assert "option 'a' b" in str(pickle.loads(pickle.dumps(OptionError("a", "b"))))


def test_the_page_names_every_option() -> None:
    pages = Path(__file__).parents[3] / "docs" / "hub"

    def named(page: str, heading: str) -> list[str]:
        table = (pages / page).read_text().partition(f"## {heading}\n")[2].partition("\n#")[0]
        rows = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| `")]
        return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]

    assert sorted(named("source.md", "Options for reading")) == sorted([*CONNECT, *_READ])
    assert named("sink.md", "Options for writing") == _WRITE
