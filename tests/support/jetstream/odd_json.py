"""Requests to JetStream whose JSON is odd: what is in order, changed at random as text, with and without an API level."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from support.jetstream.differential import Operation
from support.jetstream.members import CONSUMER_MEMBERS, FAR, STREAM_MEMBERS
from support.jetstream.operations import Talker
from support.servers.newer_nats_server import LEVEL_OF_NOBODY

#: What may stand in the place of any value.
_VALUES = (
    "null", "true", "false", "0", "-1", "1", "1.0", "1.5", "1e3", "-0", "9223372036854775807", "9223372036854775808", "-9223372036854775809",
    "18446744073709551616", "1e400", '""', '"x"', '"1"', '"\\u0041"', '"\\ud800"', '"\\x"', '"a\nb"', "[]", "{}", "[1]", '["x"]', '{"x":1}',
    "[[[[]]]]", "[null]", '"2024-01-01T00:00:00Z"', '"2024-13-01T00:00:00Z"', "nul", "NaN", "01", "+1", ".5", "1.", "'x'", "", '"', "[", "{",
)  # fmt: skip
_TAILS = ("", "", "", " ", "\n", "x", "{}", ",", "]", "}", "null", "\x00", "{", ' {"a":1}', "//")
_HEADS = ("", "", "", "", " ", "\n\t", "\ufeff", "x", ",", "\x00")
_WHOLE = ("", " ", "null", "{}", "[]", "[{}]", "true", "1", '"x"', "x", "{", "}", "{}{}", "{ }", "[1,2]", '{"":1}', '{"x"}', '{"x":}', "{'x':1}",
          '{"x":1,}', "\x00", "\ufeff{}", '{"a":1}{"b":2}', "{}x", '{"x":1', '{"seq":1,"seq":2}', '{"SEQ":1}', '{"Seq":"1"}', "[" * 50)  # fmt: skip


class OddJson(Talker):
    """All subjects of the API, bodies changed at random."""

    weights: ClassVar[dict[str, int]] = {"create": 1, "publish": 4, "consumer": 1, "strange": 60}

    def strange(self) -> Operation:
        """A request that would be in order, its body changed."""
        words, body = self._request()
        header = b""
        if self.random.random() < 0.15:
            level = self.random.choice(
                (b"0", b"4", LEVEL_OF_NOBODY, b"x", b"-1", b"", b" 2", b"99999999999999999999", b"1.5", b"+3")
            )
            header = b"NATS/1.0\r\nNats-Required-Api-Level: %b\r\n\r\n" % level
        text = self.random.choice(_WHOLE) if self.random.random() < 0.15 else self._changed(json.dumps(body))
        reads = words.startswith(
            ("STREAM.INFO", "STREAM.NAMES", "STREAM.LIST", "CONSUMER.INFO", "CONSUMER.NAMES", "CONSUMER.LIST", "INFO")
        )
        return Operation(f"$JS.API.{words}", text.encode("utf-8", "surrogatepass"), header, reads=reads, answers=1)

    def _request(self) -> tuple[str, Any]:
        stream, consumer = self._some_consumer()
        config = self.configs.get(stream, {"name": stream})
        settings = {"name": consumer, "durable_name": consumer, "ack_policy": "explicit"}
        new = self.random.choice(("N", stream))
        changed = {**self.plain_config(new), **self._drawn(STREAM_MEMBERS, 3)}
        others = settings | self._drawn(CONSUMER_MEMBERS, 3)
        return self.random.choice((  # type: ignore[no-any-return]
            (f"STREAM.CREATE.{new}", changed), (f"STREAM.UPDATE.{stream}", {**config, **self._drawn(STREAM_MEMBERS, 2)}),
            (f"STREAM.CREATE.{new}", changed), (f"STREAM.INFO.{stream}", {"deleted_details": True, "subjects_filter": ">", "offset": 0}),
            ("STREAM.NAMES", {"offset": 0, "subject": "a.>"}), ("STREAM.LIST", {"offset": 0, "subject": "a.>"}), ("INFO", {}),
            (f"STREAM.DELETE.{stream}x", {}), (f"STREAM.PURGE.{stream}", {"filter": "nobody", "seq": 1, "keep": 0}),
            (f"STREAM.MSG.GET.{stream}", {"seq": 1, "last_by_subj": "", "next_by_subj": "", "start_time": None, "no_hdr": False}),
            (f"STREAM.MSG.DELETE.{stream}", {"seq": 90, "no_erase": True}),
            (f"STREAM.SNAPSHOT.{stream}", {"deliver_subject": "s.*", "no_consumers": True, "chunk_size": 1024, "jsck": False}),
            (f"STREAM.RESTORE.{stream}", {"config": config, "state": {"messages": 1, "bytes": 2, "first_seq": 1, "last_seq": 1}}),
            (f"CONSUMER.CREATE.{stream}.{consumer}", {"stream_name": stream, "config": others, "action": "", "pedantic": False}),
            (f"CONSUMER.CREATE.{stream}.{consumer}", {"stream_name": stream, "config": others}),
            (f"CONSUMER.DURABLE.CREATE.{stream}.{consumer}", {"stream_name": stream, "config": others}),
            (f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": {**others, "durable_name": ""}}),
            (f"CONSUMER.NAMES.{stream}", {"offset": 0}), (f"CONSUMER.LIST.{stream}", {"offset": 0}), (f"CONSUMER.INFO.{stream}.{consumer}", {}),
            (f"CONSUMER.DELETE.{stream}.{consumer}x", {}), (f"CONSUMER.PAUSE.{stream}.{consumer}", {"pause_until": FAR}),
            (f"CONSUMER.RESET.{stream}.{consumer}", {"seq": 1}), (f"CONSUMER.UNPIN.{stream}.{consumer}", {"group": "g"}),
            (f"STREAM.LEADER.STEPDOWN.{stream}", {"placement": {"cluster": "x"}}), (f"STREAM.PEER.REMOVE.{stream}", {"peer": "x"}),
            (f"CONSUMER.LEADER.STEPDOWN.{stream}.{consumer}", {"placement": {}}), ("META.LEADER.STEPDOWN", {"placement": {}}),
            (f"CONSUMER.MSG.NEXT.{stream}.{consumer}", {"batch": 1, "no_wait": True, "expires": 0, "max_bytes": 0, "idle_heartbeat": 0}),
            (f"DIRECT.GET.{stream}", {"seq": 1, "batch": 0, "max_bytes": 0, "multi_last": [], "up_to_seq": 0, "next_by_subj": ""}),
        ))  # fmt: skip

    def _changed(self, text: str) -> str:
        chosen, chance = self.random.choice, self.random.random
        for _ in range(chosen((0, 1, 1, 1, 2))):
            places = [at for at, letter in enumerate(text) if letter == ":"]
            way = chance()
            if way < 0.5 and places:
                at = chosen(places)
                end = _end_of_value(text, at + 1)
                text = f"{text[: at + 1]} {chosen(_VALUES)}{text[end:]}"
            elif way < 0.6 and text.startswith("{") and text.count('"') > 1:
                name = text.split('"')[1]
                text = text[:-1] + f', "{chosen((name, name.upper(), name.title()))}": {chosen(_VALUES)}}}'
            elif way < 0.7 and text.startswith("{"):
                text = '{"unknown": 1' + ("," if len(text) > 2 else "") + text[1:]
            elif way < 0.85 and text:
                at = self.random.randrange(len(text))
                text = text[:at] + text[at + 1 :]
            elif text:
                at = self.random.randrange(len(text))
                text = text[:at] + chosen('",:{}[]\\x0 ') + text[at:]
        return chosen(_HEADS) + text + chosen(_TAILS)


def _end_of_value(text: str, at: int) -> int:
    """Where the value that begins at `at` ends, in text that is JSON."""
    while at < len(text) and text[at] == " ":
        at += 1
    try:
        return json.JSONDecoder().raw_decode(text, at)[1]
    except ValueError:
        return at
