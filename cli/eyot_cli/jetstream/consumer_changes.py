"""`eyot consumer add|edit|copy|rm|pause|resume|unpin|reset`: changes of consumers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from nats.aio.client import Client

from eyot_cli.connection.answers import show_changes, tell
from eyot_cli.connection.target import Target
from eyot_cli.jetstream.api import ask
from eyot_cli.jetstream.config_files import edited, instead_options, interactive_option, went_elsewhere
from eyot_cli.jetstream.consumer_options import changed_consumer, options_of_consumer
from eyot_cli.jetstream.stream_options import unreserved
from eyot_cli.terminal.confirm import confirm, force
from eyot_cli.terminal.failure import Failure
from eyot_cli.values.moments import parse_moment
from eyot_cli.values.names import stream_name
from eyot_cli.values.numbers import at_least

_of_stream = click.argument("stream", callback=stream_name)
_named = click.argument("name", callback=stream_name)


async def _create(
    target: Target, client: Client, stream: str, config: dict[str, Any], action: str = ""
) -> dict[str, Any]:
    name = config.get("name") or config.get("durable_name")
    body = {"stream_name": stream, "config": config} | ({"action": action} if action else {})
    return await ask(target, client, f"CONSUMER.CREATE.{stream}.{name}", body)


@click.command("add")
@_of_stream
@_named
@options_of_consumer(new=True)
@instead_options
@click.pass_obj
def add(
    target: Target, /, stream: str, name: str, ephemeral: bool, validate: bool, output: Path | None, **given: Any
) -> None:
    """Make the consumer NAME of STREAM, or change it.

    Without --ack it needs explicit acks, and none with --target.
    """
    config = {"deliver_policy": "all", "replay_policy": "instant"} | changed_consumer({}, given)
    config["name"] = name
    config.setdefault("ack_policy", "none" if config.get("deliver_subject") else "explicit")
    config.pop("durable_name", None)
    if not ephemeral:
        config["durable_name"] = name
    if config["deliver_policy"] == "last_per_subject" and not config.get("filter_subjects"):
        config.setdefault("filter_subject", ">")
    if went_elsewhere(target, config, "consumer", validate=validate, output=output):
        return
    found = target.with_client(lambda client: _create(target, client, stream, config))
    tell(target, found, f"consumer {name} of {stream} is there")


@click.command("edit")
@_of_stream
@_named
@options_of_consumer(new=False)
@click.option("--dry-run", is_flag=True, help="show what would change, with exit status 1 if anything")
@interactive_option
@force
@click.pass_obj
def edit(
    target: Target, /, stream: str, name: str, force: bool, dry_run: bool, interactive: bool, **given: Any
) -> None:
    """Change what is given of the consumer NAME of STREAM.

    With --config the file is the whole configuration, and the other options change it.
    """

    async def change(client: Client) -> dict[str, Any] | None:
        before = (await ask(target, client, f"CONSUMER.INFO.{stream}.{name}", {}))["config"]
        after = changed_consumer(before, dict(given), replace=True) | {"name": name}
        if interactive:
            after = edited(after, "consumer") | {"name": name}
        after = {member: value for member, value in after.items() if not (member == "backoff" and not value)}
        if not show_changes(target, before | {"name": name}, after, dry_run=dry_run):
            return None
        confirm(f"change the consumer {name} of {stream}?", forced=force)
        return await _create(target, client, stream, after, "update")

    found = target.with_client(change)
    tell(target, found or {}, f"consumer {name} of {stream} is {'changed' if found else 'so already'}")


@click.command("copy")
@_of_stream
@click.argument("source", callback=stream_name)
@click.argument("name", callback=stream_name)
@options_of_consumer(new=True)
@click.pass_obj
def copy(target: Target, /, stream: str, source: str, name: str, ephemeral: bool, **given: Any) -> None:
    """Make the consumer NAME with the configuration of SOURCE.

    Options change what is given. Acknowledgements and the position are not copied.
    """

    async def make(client: Client) -> dict[str, Any]:
        before = (await ask(target, client, f"CONSUMER.INFO.{stream}.{source}", {}))["config"]
        config = changed_consumer(unreserved(before), dict(given)) | {"name": name}
        config.pop("durable_name", None)
        if not ephemeral:
            config["durable_name"] = name
        return await _create(target, client, stream, config, "create")

    tell(target, target.with_client(make), f"consumer {name} of {stream} is made")


@click.command("rm")
@_of_stream
@_named
@force
@click.pass_obj
def remove(target: Target, stream: str, name: str, force: bool) -> None:
    """Delete the consumer NAME of STREAM."""
    confirm(f"delete the consumer {name} of {stream}?", forced=force)
    found = target.with_client(lambda client: ask(target, client, f"CONSUMER.DELETE.{stream}.{name}", {}))
    tell(target, found, f"consumer {name} of {stream} is deleted")


_unasked = click.option(
    "--force", "-f", is_flag=True, expose_value=False, help="as in the nats tool; eyot does not ask"
)


@click.command("pause")
@_of_stream
@_named
@click.argument("until")
@_unasked
@click.pass_obj
def pause(target: Target, stream: str, name: str, until: str) -> None:
    """Deliver nothing for a time, or UNTIL a moment.

    UNTIL is a time (1h) or a moment (2026-12-01T06:00:00Z).
    """
    body = {"pause_until": parse_moment(until)}
    found = target.with_client(lambda client: ask(target, client, f"CONSUMER.PAUSE.{stream}.{name}", body))
    tell(target, found, f"consumer {name} of {stream} is paused until {found.get('pause_until')}")


@click.command("resume")
@_of_stream
@_named
@_unasked
@click.pass_obj
def resume(target: Target, stream: str, name: str) -> None:
    """Deliver again."""
    found = target.with_client(lambda client: ask(target, client, f"CONSUMER.PAUSE.{stream}.{name}", {}))
    tell(target, found, f"consumer {name} of {stream} delivers")


@click.command("unpin")
@_of_stream
@_named
@click.argument("group", required=False)
@force
@click.pass_obj
def unpin(target: Target, stream: str, name: str, group: str | None, force: bool) -> None:
    """Let another client of GROUP have the messages.

    Without GROUP, that is the only one with a pinned client.
    """

    async def release(client: Client) -> tuple[str, str, dict[str, Any]]:
        info = await ask(target, client, f"CONSUMER.INFO.{stream}.{name}", {})
        groups = info.get("priority_groups") or []
        pinned = {each["group"]: each["pinned_client_id"] for each in groups if each.get("pinned_client_id")}
        chosen = group or (next(iter(pinned)) if len(pinned) == 1 else None)
        if chosen is None or chosen not in pinned:
            found = f"groups with one: {', '.join(sorted(pinned)) or 'none'}"
            raise Failure(f"{stream} > {name} has no pinned client{f' in {group}' if group else ' to choose'}; {found}")
        confirm(f"unpin the client of {chosen}?", forced=force)
        answer = await ask(target, client, f"CONSUMER.UNPIN.{stream}.{name}", {"group": chosen})
        return chosen, pinned[chosen], answer

    chosen, client_id, answer = target.with_client(release)
    tell(target, answer, f"client {client_id} is unpinned from {chosen} of {stream} > {name}")


@click.command("reset")
@_of_stream
@_named
@click.option("--sequence", type=at_least(0), default=0, metavar="N", help="go on there; 0: after the ack floor")
@force
@click.pass_obj
def reset(target: Target, stream: str, name: str, sequence: int, force: bool) -> None:
    """Deliver again what was not acknowledged.

    With --sequence it goes on there.
    """
    confirm(f"reset the consumer {name} of {stream}?", forced=force)
    body = {"seq": sequence}
    found = target.with_client(lambda client: ask(target, client, f"CONSUMER.RESET.{stream}.{name}", body))
    tell(target, found, f"consumer {name} of {stream} goes on at {found.get('reset_seq')}")


CONSUMER_CHANGES = (add, edit, copy, remove, pause, resume, unpin, reset)
