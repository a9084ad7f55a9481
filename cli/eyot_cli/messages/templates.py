"""Templates of answers and commands: the functions of the `nats` tool, without the rest of Go's templates."""

from __future__ import annotations

import random
import re
import string
import uuid
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

import click
from nats.nuid import NUID

from eyot_cli.terminal.show import print_line

_ACTION = re.compile(r"\{\{\s*(?:\.?([A-Za-z]+)|([0-9]{1,18}))((?:\s+[0-9]{1,18})*)\s*\}\}")
_NUID = NUID()
_LETTERS = string.ascii_letters + string.digits
#: Length of a random text at most, characters.
_MAX_RANDOM = 1 << 20


class Values(NamedTuple):
    """What a template may name of a request."""

    subject: str
    body: str
    #: number of the request, from 0, as in the `nats` tool
    number: int
    now: datetime


_FUNCTIONS: dict[str, Callable[[Values], str]] = {
    "Count": lambda values: str(values.number),
    "Cnt": lambda values: str(values.number),
    "TimeStamp": lambda values: values.now.isoformat(timespec="seconds"),
    "Unix": lambda values: str(int(values.now.timestamp())),
    "UnixNano": lambda values: str(int(values.now.timestamp() * 1e6) * 1000),
    "Time": lambda values: f"{values.now:%I:%M%p}".removeprefix("0"),
    "ID": lambda _: _NUID.next().decode(),
    "UUID": lambda _: str(uuid.uuid4()),
    "Request": lambda values: values.body,
}


def check_template(text: str, *, tokens: bool = False) -> str:
    """Return the template. `tokens`: `{{1}}` is a token of the subject. Raises BadParameter for what no function is called."""
    for found in re.findall(r"\{\{.*?\}\}", text):
        action = _ACTION.fullmatch(found)
        numbers = [] if action is None else list(map(int, action[3].split()))
        if action is not None and action[2]:
            known = tokens and not numbers
        elif action is not None and action[1] == "Random":
            known = len(numbers) == 2 and max(numbers) <= _MAX_RANDOM
        else:
            known = action is not None and action[1] in _FUNCTIONS and not numbers
        if not known:
            names = ", ".join(
                [*_FUNCTIONS, "Random MIN MAX", *(["and numbers of the subject's tokens"] if tokens else [])]
            )
            raise click.BadParameter(f"{found} is no function of a template: {names}")
    return text


def fill(text: str, values: Values) -> str:
    """Return a checked template with its functions' values; tokens that the subject lacks stay as they are."""
    parts = values.subject.split(".")

    def value(action: re.Match[str]) -> str:
        name, token, numbers = action.groups()
        if token is not None:
            return parts[int(token)] if int(token) < len(parts) else action[0]
        if name == "Random":
            shortest, longest = sorted(map(int, numbers.split()))
            return "".join(random.choices(_LETTERS, k=random.randint(shortest, longest)))
        return _FUNCTIONS[name](values)

    return _ACTION.sub(value, text)


def fill_payload(data: bytes, values: Values) -> bytes:
    """Return a payload with its functions' values; what is no template is as it is, as in the `nats` tool, with a warning."""
    if b"{{" not in data:
        return data
    try:
        text = check_template(data.decode())
    except UnicodeDecodeError:
        return data
    except click.BadParameter as error:
        print_line(f"eyot: the payload is sent as it is: {error.message}; --no-templates says nothing", error=True)
        return data
    return fill(text, values).encode()


def random_time(most_s: float) -> float:
    """Return a time between none and `most_s`, seconds."""
    return random.uniform(0, most_s)
