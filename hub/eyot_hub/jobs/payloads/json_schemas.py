"""JSON Schema (jsonschema-rs): which rule a value breaks. Formats such as date-time are checked, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jsonschema_rs

from eyot_hub.jobs.payloads.schemas import json_of


def json_check(text: bytes | str, others: Mapping[str, str]) -> Callable[[Any], str | None]:
    """Return a function that names the first rule that a value breaks; `others`: schemas by the name of references.

    Nothing is fetched: a reference that is not among `others` is an error. Raises ValueError.
    """
    known = {name: json_of(other) for name, other in others.items()}

    def retrieve(uri: str) -> Any:
        for name, schema in known.items():
            if uri == name or uri.endswith(f"/{name}"):
                return schema
        raise LookupError(f"no schema {uri!r} is known")

    schema = json_of(text)
    try:
        validator = jsonschema_rs.validator_for(schema, validate_formats=True, retriever=retrieve)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, LookupError) as error:
        raise ValueError(f"the schema is not JSON Schema: {str(error).splitlines()[0]}") from None

    def broken(value: Any) -> str | None:
        if validator.is_valid(value):
            return None
        for error in validator.iter_errors(value):
            # The rule, not the value: reasons in the quarantine are grouped, and show nothing of payloads.
            return "/" + "/".join(map(str, error.evaluation_path))
        return "/"

    return broken
