"""Changes of the stream behind a bucket."""

from __future__ import annotations

from typing import Any

import click
from nats.aio.client import Client

from eyot_cli.api import ask
from eyot_cli.stream_options import name_value
from eyot_cli.target import Target


async def change_bucket(target: Target, client: Client, stream: str, given: dict[str, Any]) -> dict[str, Any]:
    """Change members of a bucket's stream; metadata keep their other names. Raises Failure, UsageError without any change."""
    changes = {member: value for member, value in given.items() if value is not None and value != ()}
    if not changes:
        raise click.UsageError("name an option that changes something")
    config = (await ask(target, client, f"STREAM.INFO.{stream}", {}))["config"]
    if "metadata" in changes:
        changes["metadata"] = dict(config.get("metadata") or {}) | dict(map(name_value, changes["metadata"]))
    return await ask(target, client, f"STREAM.UPDATE.{stream}", config | changes)
