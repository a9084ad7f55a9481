"""JetStream's error values: an HTTP-like code, JetStream's own `err_code`, and a text with variables filled in.

The table is NATS's own `errors.json` (Apache-2.0, published by the NATS project), packaged beside this module.
"""

import re
from functools import cache
from importlib import resources

import msgspec


class ApiError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The `error` member of an API response or of a PubAck."""

    code: int
    err_code: int = 0
    description: str = ""


class _Entry(msgspec.Struct):
    constant: str
    code: int
    error_code: int
    description: str


_VARIABLE = re.compile(r"\{(\w+)\}")


@cache
def _table() -> dict[int, _Entry]:
    raw = resources.files(__package__).joinpath("errors.json").read_bytes()
    return {entry.error_code: entry for entry in msgspec.json.decode(raw, type=list[_Entry])}


@cache
def _plain(err_code: int) -> ApiError:
    entry = _table()[err_code]
    return ApiError(code=entry.code, err_code=err_code, description=entry.description)


def error(err_code: int, **variables: object) -> ApiError:
    """Return the error `err_code` of the table, with `{name}` in its text replaced by `variables` (`err=`, `seq=`, ...).

    Raises KeyError for a code that is not in the table.
    """
    plain = _plain(err_code)
    if not variables:
        return plain
    text = _VARIABLE.sub(lambda m: str(variables.get(m[1], m[0])), plain.description)
    return ApiError(code=plain.code, err_code=err_code, description=text)


class JetStreamError(Exception):
    """Carries an ApiError from the code that detects it to the one place that answers the request."""

    def __init__(self, api_error: ApiError) -> None:
        super().__init__(f"{api_error.description} ({api_error.err_code})")
        self.api_error = api_error


def fail(err_code: int, **variables: object) -> JetStreamError:
    """Build the exception for an error of the table."""
    return JetStreamError(error(err_code, **variables))
