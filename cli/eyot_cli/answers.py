"""The end of a command that changes something: the server's answer, or a line."""

from __future__ import annotations

from typing import Any

from eyot_cli.show import console, print_json
from eyot_cli.target import Target


def tell(target: Target, answer: dict[str, Any], text: str) -> None:
    """Print the answer as JSON where that was asked for, else `text`."""
    if target.as_json:
        print_json(answer)
    else:
        console.print(text)
