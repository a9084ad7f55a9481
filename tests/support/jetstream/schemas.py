"""Answers of the JetStream API held against the NATS project's JSON Schemas."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft7Validator

SCHEMAS = Path(__file__).parents[2] / "interop" / "schemas"


@cache
def _validator(name: str) -> Draft7Validator:
    return Draft7Validator(json.loads((SCHEMAS / f"{name}.json").read_text()))


def check_answer(answer: Any) -> Any:
    """Returns `answer` if the schema of its `type` accepts it; AssertionError with all complaints otherwise."""
    name = answer["type"].rpartition(".")[2]
    _check(name, answer)
    return answer


def check_pub_ack(answer: Any) -> Any:
    """The same for a PubAck, which names no type."""
    _check("pub_ack_response", answer)
    return answer


def complaints(said: Any) -> list[str]:
    """Where the schema of an answer's or advisory's `type` is against it, and by which rule; nothing where there is no such schema."""
    name = str(said.get("type", "")).rpartition(".")[2]
    if not (SCHEMAS / f"{name}.json").exists():
        return []
    return [f"{'/'.join(map(str, err.absolute_path))}: {err.validator}" for err in _validator(name).iter_errors(said)]


def _check(name: str, answer: Any) -> None:
    found = [f"{'/'.join(map(str, err.absolute_path))}: {err.message}" for err in _validator(name).iter_errors(answer)]
    assert not found, "\n".join(found)
