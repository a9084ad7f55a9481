"""Changes of the stream behind a bucket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from nats.aio.client import Client

from eyot_cli.connection.target import Target
from eyot_cli.jetstream.api import ask
from eyot_cli.jetstream.stream_options import name_value

F = TypeVar("F", bound=Callable[..., Any])


async def change_bucket(target: Target, client: Client, stream: str, given: dict[str, Any]) -> dict[str, Any]:
    """Change members of a bucket's stream; metadata keep their other names, and what is `{}` goes. Raises Failure, UsageError without any change."""
    changes = {member: value for member, value in given.items() if value is not None and value != ()}
    if not changes:
        raise click.UsageError("name an option that changes something")
    config = (await ask(target, client, f"STREAM.INFO.{stream}", {}))["config"]
    if "metadata" in changes:
        changes["metadata"] = dict(config.get("metadata") or {}) | dict(map(name_value, changes["metadata"]))
    changed = {member: value for member, value in (config | changes).items() if value != {}}
    return await ask(target, client, f"STREAM.UPDATE.{stream}", changed)


def republish_options(command: F) -> F:
    """Add the options of `republished`."""
    for add in (
        click.option("--republish-headers", is_flag=True, help="without values"),
        click.option("--republish-destination", metavar="SUBJECT", help="publish changes again, under this template"),
        click.option("--republish-source", metavar="SUBJECT", show_default="all keys", help="only changes of these"),
    ):
        command = add(command)
    return command


def republished(bucket: str, source: str | None, destination: str | None, headers_only: bool) -> dict[str, Any] | None:
    """Return the member `republish` of a bucket's stream; None without one. Raises UsageError."""
    if destination is None:
        if source is not None or headers_only:
            raise click.UsageError("--republish-source and --republish-headers belong to --republish-destination")
        return None
    found: dict[str, Any] = {"src": source or f"$KV.{bucket}.>", "dest": destination}
    return found | ({"headers_only": True} if headers_only else {})
