"""Options of `eyot stream add` and `edit`, and the configuration that they make.

Names and meanings are those of the `nats` tool.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from eyot_cli.ages import age_ns
from eyot_cli.failure import Failure
from eyot_cli.sizes import size_bytes

F = TypeVar("F", bound=Callable[..., Any])

_RETENTION = {"limits": "limits", "interest": "interest", "work": "workqueue", "workqueue": "workqueue"}
#: Options of both commands; members of the configuration by parameter.
_BOTH = (
    click.option("--subjects", multiple=True, metavar="SUBJECTS", help="subjects to store; several, or with commas"),
    click.option("--description", metavar="TEXT", help="what the stream is for"),
    click.option("--discard", type=click.Choice(["old", "new"]), help="what goes when a limit is reached"),
    click.option("--max-msgs", type=int, metavar="N", help="messages at most"),
    click.option(
        "--max-msgs-per-subject", "max_msgs_per_subject", type=int, metavar="N", help="messages of one subject at most"
    ),
    click.option("--max-bytes", callback=size_bytes, metavar="SIZE", help="bytes at most"),
    click.option("--max-age", callback=age_ns, metavar="TIME", help="remove messages after this time"),
    click.option("--max-msg-size", callback=size_bytes, metavar="SIZE", help="bytes of one message at most"),
    click.option(
        "--dupe-window", "duplicate_window", callback=age_ns, metavar="TIME", help="how long Nats-Msg-Id counts"
    ),
    click.option("--replicas", "num_replicas", type=int, metavar="N", help="copies in a cluster"),
    click.option("--allow-direct/--no-allow-direct", default=None, help="direct reads"),
    click.option(
        "--allow-rollup/--deny-rollup",
        " /--no-allow-rollup",
        "allow_rollup_hdrs",
        default=None,
        help="Nats-Rollup may purge",
    ),
    click.option(
        "--deny-delete/--allow-delete",
        " /--no-deny-delete",
        "deny_delete",
        default=None,
        help="no message can be deleted",
    ),
    click.option("--deny-purge/--allow-purge", " /--no-deny-purge", "deny_purge", default=None, help="no purge"),
    click.option("--no-ack/--ack", default=None, help="publishers get no PubAck"),
    click.option("--compression", type=click.Choice(["none", "s2"]), help="of a nats-server's files"),
    click.option("--allow-msg-ttl", is_flag=True, default=None, help="messages may have a lifetime of their own"),
    click.option("--source", multiple=True, metavar="STREAM[@DOMAIN]", help="copy this stream into it, too"),
    click.option("--metadata", multiple=True, metavar="NAME=VALUE", help="metadata; for replication: eyot.sync.*"),
    click.option(
        "--config",
        "file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="JSON of a configuration, or of `eyot stream info --json`",
    ),
)
#: Options of `add` alone: what cannot change.
_NEW = (
    click.option("--storage", type=click.Choice(["file", "memory"]), help="file is on flash"),
    click.option("--retention", type=click.Choice(list(_RETENTION)), help="when messages may go"),
    click.option("--first-sequence", "first_seq", type=click.IntRange(min=1), metavar="N", help="the first sequence"),
    click.option("--mirror", metavar="STREAM[@DOMAIN]", help="be a copy of this stream"),
    click.option("--max-consumers", type=int, metavar="N", help="consumers at most"),
    click.option("--defaults", is_flag=True, expose_value=False, help="as in the nats tool; eyot never asks"),
)


def options_of_stream(*, new: bool) -> Callable[[F], F]:
    """Return a decorator that adds the options."""

    def decorate(command: F) -> F:
        for option in reversed(_BOTH + (_NEW if new else ())):
            command = option(command)
        return command

    return decorate


def changed_config(before: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration `before` with what was given on the command line. Raises Failure and BadParameter."""
    config = dict(before)
    file = given.pop("file", None)
    if file is not None:
        config |= config_in(file, "a stream's configuration")
    retention, mirror = given.pop("retention", None), given.pop("mirror", None)
    if retention is not None:
        config["retention"] = _RETENTION[retention]
    if mirror is not None:
        config["mirror"] = origin_of(mirror)
    if sources := given.pop("source", ()):
        config["sources"] = [origin_of(each) for each in sources]
    if subjects := [each.strip() for text in given.pop("subjects", ()) for each in text.split(",") if each.strip()]:
        config["subjects"] = subjects
    if metadata := given.pop("metadata", ()):
        config["metadata"] = dict(config.get("metadata") or {}) | dict(map(name_value, metadata))
    return config | {name: value for name, value in given.items() if value is not None}


def origin_of(text: str) -> dict[str, Any]:
    """Return the origin of a mirror or source: `READINGS`, or `READINGS@leaf1` in another domain."""
    name, _, domain = text.partition("@")
    if not name:
        raise click.BadParameter(f"{text!r} is not STREAM or STREAM@DOMAIN")
    return {"name": name} | ({"external": {"api": f"$JS.{domain}.API"}} if domain else {})


def name_value(text: str) -> tuple[str, str]:
    """Return name and value of an entry; as in the `nats` tool, a colon stands for the sign as well."""
    found = re.fullmatch("([^=:]+)[=:](.*)", text, re.DOTALL)
    if found is None:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="'--metadata'")
    return found[1], found[2]


def config_in(path: Path, what: str) -> dict[str, Any]:
    """Return the configuration in a JSON file, also of `info --json`. Raises Failure."""
    try:
        found = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise Failure(f"{path}: {error}") from error
    if isinstance(found, dict) and isinstance(found.get("config"), dict):
        found = found["config"]
    if not isinstance(found, dict):
        raise Failure(f"{path}: not {what}")
    return found
