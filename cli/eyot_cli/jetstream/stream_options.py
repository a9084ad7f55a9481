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

from eyot_cli.terminal.failure import Failure
from eyot_cli.values.ages import age_ns
from eyot_cli.values.numbers import INTEGER, at_least
from eyot_cli.values.paths import FilePath
from eyot_cli.values.sizes import size_bytes

F = TypeVar("F", bound=Callable[..., Any])

_RETENTION = {"limits": "limits", "interest": "interest", "work": "workqueue", "workqueue": "workqueue"}
#: Options of both commands; members of the configuration by parameter.
_BOTH = (
    click.option("--subjects", multiple=True, metavar="SUBJECTS", help="subjects to store; several, or with commas"),
    click.option("--description", metavar="TEXT", help="what the stream is for"),
    click.option("--discard", type=click.Choice(["old", "new"]), help="what goes when a limit is reached"),
    click.option("--max-msgs", type=INTEGER, metavar="N", help="messages at most"),
    click.option(
        "--max-msgs-per-subject",
        "max_msgs_per_subject",
        type=INTEGER,
        metavar="N",
        help="messages of one subject at most",
    ),
    click.option("--max-bytes", callback=size_bytes, metavar="SIZE", help="bytes at most"),
    click.option("--max-age", callback=age_ns, metavar="TIME", help="remove messages after this time"),
    click.option("--max-msg-size", callback=size_bytes, metavar="SIZE", help="bytes of one message at most"),
    click.option(
        "--dupe-window", "duplicate_window", callback=age_ns, metavar="TIME", help="how long Nats-Msg-Id counts"
    ),
    click.option("--replicas", "num_replicas", type=INTEGER, metavar="N", help="copies in a cluster"),
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
    click.option(
        "--subject-del-markers-ttl",
        "subject_delete_marker_ttl",
        callback=age_ns,
        metavar="TIME",
        help="leave a marker for so long where a limit removes the last message of a subject",
    ),
    click.option("--allow-batch/--no-allow-batch", "allow_atomic", default=None, help="atomic batches"),
    click.option("--allow-counter", "allow_msg_counter", is_flag=True, default=None, help="counters, not messages"),
    click.option(
        "--allow-schedules/--no-allow-schedules", "allow_msg_schedules", default=None, help="messages with a schedule"
    ),
    click.option(
        "--allow-mirror-direct/--no-allow-mirror-direct", "mirror_direct", default=None, help="direct reads of a mirror"
    ),
    click.option(
        "--discard-per-subject/--no-discard-per-subject",
        "discard_new_per_subject",
        default=None,
        help="refuse new messages at the limit of their subject",
    ),
    click.option("--transform-source", metavar="SUBJECT", help="store messages of these subjects under others"),
    click.option("--transform-destination", metavar="SUBJECT", help="the others, as a template"),
    click.option("--republish-source", metavar="SUBJECT", help="publish what is stored of these subjects again"),
    click.option("--republish-destination", metavar="SUBJECT", help="where, as a template"),
    click.option("--republish-headers", is_flag=True, default=None, help="without payloads"),
    click.option("--source", "sources", multiple=True, metavar="STREAM[@DOMAIN]", help="copy this stream into it, too"),
    click.option("--metadata", multiple=True, metavar="NAME=VALUE", help="metadata; for replication: eyot.sync.*"),
    click.option(
        "--config",
        "file",
        type=FilePath(exists=True, dir_okay=False),
        metavar="FILE",
        help="JSON of a configuration, or of `eyot stream info --json`",
    ),
)
#: Options of `edit` alone: what ends.
_EDIT = (
    click.option("--no-mirror", is_flag=True, help="be a mirror no longer"),
    click.option("--no-transform", is_flag=True, help="store under the subject of the message"),
    click.option("--no-republish", is_flag=True, help="publish nothing again"),
)
#: Options of `edit` that end something, and its member.
_ENDS = {"no_mirror": "mirror", "no_transform": "subject_transform", "no_republish": "republish"}
#: Options of `add` alone: what cannot change.
_NEW = (
    click.option("--storage", type=click.Choice(["file", "memory"]), help="file is on flash"),
    click.option("--retention", type=click.Choice(list(_RETENTION)), help="when messages may go"),
    click.option("--first-sequence", "first_seq", type=at_least(1), metavar="N", help="the first sequence"),
    click.option("--mirror", metavar="STREAM[@DOMAIN]", help="be a copy of this stream"),
    click.option("--max-consumers", type=INTEGER, metavar="N", help="consumers at most"),
    click.option(
        "--limit-consumer-inactive",
        callback=age_ns,
        metavar="TIME",
        help="--inactive-threshold of its consumers at most",
    ),
    click.option(
        "--limit-consumer-max-pending", type=INTEGER, metavar="N", help="--max-pending of its consumers at most"
    ),
    click.option(
        "--persist-mode", type=click.Choice(["default", "async"]), help="async: acknowledge before it is on flash"
    ),
    click.option("--defaults", is_flag=True, expose_value=False, help="as in the nats tool; eyot never asks"),
)


def options_of_stream(*, new: bool) -> Callable[[F], F]:
    """Return a decorator that adds the options."""

    def decorate(command: F) -> F:
        for option in reversed(_BOTH + (_NEW if new else _EDIT)):
            command = option(command)
        return command

    return decorate


def changed_config(before: dict[str, Any], given: dict[str, Any], *, replace: bool = False) -> dict[str, Any]:
    """Return the configuration `before` with what was given on the command line. Raises Failure and BadParameter.

    `replace`: the file of --config takes the place of `before`.
    """
    config = dict(before)
    file = given.pop("file", None)
    if file is not None:
        config = ({} if replace else config) | config_in(file, "a stream's configuration")
    retention, mirror = given.pop("retention", None), given.pop("mirror", None)
    if retention is not None:
        config["retention"] = _RETENTION[retention]
    if mirror is not None:
        config["mirror"] = origin_of(mirror)
    if sources := given.pop("sources", ()):
        config["sources"] = [origin_of(each) for each in sources]
    if lists := given.pop("subjects", ()):
        config["subjects"] = [each.strip() for text in lists for each in text.split(",") if each.strip()]
        if not config["subjects"]:  # of an unset variable, say: the stream would store what is published to its name
            raise click.BadParameter("it names no subject", param_hint="'--subjects'")
    for option, member in _ENDS.items():
        if given.pop(option, False):
            config.pop(member, None)
    _set_pairs(config, given)
    if metadata := given.pop("metadata", ()):
        config["metadata"] = dict(config.get("metadata") or {}) | dict(map(name_value, metadata))
    return config | {name: value for name, value in given.items() if value is not None}


def _set_pairs(config: dict[str, Any], given: dict[str, Any]) -> None:
    """Set members that several options make together. Raises UsageError."""
    for kind, member in (("transform", "subject_transform"), ("republish", "republish")):
        source, destination = given.pop(f"{kind}_source", None), given.pop(f"{kind}_destination", None)
        if (source is None) != (destination is None):
            raise click.UsageError(f"--{kind}-source and --{kind}-destination belong together")
        if source is not None:
            config[member] = {"src": source, "dest": destination}
    if given.pop("republish_headers", None):
        if "republish" not in config:
            raise click.UsageError("--republish-headers belongs to --republish-source")
        config["republish"] = config["republish"] | {"headers_only": True}
    limits = {
        "inactive_threshold": given.pop("limit_consumer_inactive", None),
        "max_ack_pending": given.pop("limit_consumer_max_pending", None),
    }
    if any(value is not None for value in limits.values()):
        config["consumer_limits"] = {member: value for member, value in limits.items() if value is not None}
    if given.get("discard_new_per_subject"):
        config["discard"] = "new"


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


def unreserved(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration without what the server notes in its metadata."""
    kept = {name: value for name, value in (config.get("metadata") or {}).items() if not name.startswith("_nats.")}
    found = {member: value for member, value in config.items() if member != "metadata"}
    return found | ({"metadata": kept} if kept else {})
