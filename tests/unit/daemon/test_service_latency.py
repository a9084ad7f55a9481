"""Which requests to a service are measured."""

import pytest

from eyot_daemon.config.accounts import LatencyOptions
from eyot_daemon.router.service_latency import sampled

HEADERS = LatencyOptions(subject=b"lat", sampling=0)


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        (b"", None),
        (b"a: b\r\n", None),
        (b"uber-trace-id: 1:2:3:1\r\nuberctx-x: y\r\na: b\r\n", {"Uber-Trace-Id": ["1:2:3:1"], "Uberctx-X": ["y"]}),
        (b"Uber-Trace-Id: 1:2:3:0\r\nX-B3-Sampled: 1\r\n", None),
        (b"Uber-Trace-Id: 1:2:3\r\n", None),
        (b"X-B3-Sampled: 1\r\n", {"X-B3-Sampled": ["1"]}),
        (b"X-B3-Sampled: 0\r\nX-B3-TraceId: ff\r\n", None),
        (b"X-B3-TraceId: ff\r\nX-B3-SpanId: 1\r\n", {"X-B3-Traceid": ["ff"], "X-B3-Spanid": ["1"]}),
        (b"b3: 0\r\n", None),
        (b"b3: ff-1-0\r\n", None),
        (b"b3: ff-1-1-2\r\n", {"B3": ["ff-1-1-2"]}),
        (b"b3: ff-1\r\n", {"B3": ["ff-1"]}),
        (b"traceparent: 00-ff-1-01\r\ntracestate: a=b\r\n", {"Traceparent": ["00-ff-1-01"], "Tracestate": ["a=b"]}),
        (b"traceparent: 00-ff-1-00\r\n", None),
        (b"traceparent: 00-ff-1-xx\r\n", None),
    ],
)
def test_headers_ask_for_it(fields: bytes, asked: dict[str, list[str]] | None) -> None:
    header = b"NATS/1.0\r\n" + fields + b"\r\n" if fields else b""
    assert sampled(HEADERS, header, lambda: 0.0) == asked


def test_so_many_in_a_hundred() -> None:
    options = LatencyOptions(subject=b"lat", sampling=25)
    assert sampled(options, b"", lambda: 0.24) == {}
    assert sampled(options, b"", lambda: 0.25) is None
    assert sampled(options, b"NATS/1.0\r\nX-B3-Sampled: 1\r\n\r\n", lambda: 0.9) == {"X-B3-Sampled": ["1"]}
    assert sampled(LatencyOptions(subject=b"lat"), b"", lambda: 0.999) == {}
