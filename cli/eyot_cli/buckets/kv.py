"""`eyot kv`: key-value buckets (ADR-8). A bucket B is the stream KV_B with the subjects $KV.B.>."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click
from nats.aio.client import Client
from nats.js.api import DeliverPolicy

from eyot_cli.buckets.changes import change_bucket, republish_options, republished
from eyot_cli.buckets.kv_entries import PUT, entries, entry_json, key_of, operation_of, shortened
from eyot_cli.buckets.kv_keys import KEY_COMMANDS
from eyot_cli.connection.answers import tell
from eyot_cli.connection.refusals import in_bucket
from eyot_cli.connection.target import Target
from eyot_cli.jetstream.api import ask
from eyot_cli.jetstream.stored import Stored
from eyot_cli.jetstream.stream_info import every_stream, info_of
from eyot_cli.jetstream.stream_options import name_value
from eyot_cli.terminal.confirm import confirm, force
from eyot_cli.terminal.lazy import AliasGroup
from eyot_cli.terminal.show import console, count, names_option, print_json, print_names, print_table, size, span
from eyot_cli.values.ages import age_ns
from eyot_cli.values.moments import ago
from eyot_cli.values.names import bucket_name
from eyot_cli.values.sizes import size_bytes
from eyot_wire.quantities import counted

#: Markers that are younger stay after `compact`, as with nats.go's PurgeDeletes.
_MARKERS_STAY_NS = 30 * 60 * 10**9


def _bucket_names(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    for each in given:
        bucket_name(context, option, each)
    return given


@click.group(cls=AliasGroup)
def kv() -> None:
    """Key-value buckets."""


@kv.command("add")
@click.argument("bucket", callback=bucket_name)
@click.option("--history", type=click.IntRange(1, 64), default=1, help="values to keep of each key")
@click.option("--ttl", callback=age_ns, metavar="TIME", help="remove values after this time")
@click.option("--max-value-size", callback=size_bytes, metavar="SIZE", help="bytes of one value at most")
@click.option("--max-bucket-size", callback=size_bytes, metavar="SIZE", help="bytes of the bucket at most")
@click.option("--storage", type=click.Choice(["file", "memory"]), default="file", help="file is on flash")
@click.option("--replicas", type=click.IntRange(1, 5), default=1, help="copies in a cluster")
@click.option("--description", default="", metavar="TEXT", help="what the bucket is for")
@click.option(
    "--marker-ttl", callback=age_ns, metavar="TIME", help="keys may have a --ttl, and leave a marker for so long"
)
@click.option("--compress/--no-compress", default=False, help="of a nats-server's files")
@click.option("--metadata", multiple=True, metavar="NAME=VALUE", help="metadata of the stream")
@click.option("--mirror", metavar="BUCKET[@DOMAIN]", help="be a copy of this bucket")
@click.option("--mirror-domain", metavar="DOMAIN", help="the same, by two options")
@republish_options
@click.option(
    "--source", "sources", multiple=True, callback=_bucket_names, metavar="BUCKET", help="copy its keys into this one"
)
@click.pass_obj
def add(
    target: Target,
    bucket: str,
    history: int,
    ttl: int | None,
    max_value_size: int | None,
    max_bucket_size: int | None,
    storage: str,
    replicas: int,
    description: str,
    marker_ttl: int | None,
    compress: bool,
    metadata: tuple[str, ...],
    mirror: str | None,
    mirror_domain: str | None,
    republish_source: str | None,
    republish_destination: str | None,
    republish_headers: bool,
    sources: tuple[str, ...],
) -> None:
    """Make BUCKET."""
    config: dict[str, Any] = {
        "name": f"KV_{bucket}", "description": description, "max_msgs_per_subject": history, "max_age": ttl or 0,
        "max_msg_size": max_value_size or -1, "max_bytes": max_bucket_size or -1, "max_msgs": -1, "max_consumers": -1,
        "storage": storage, "num_replicas": replicas, "retention": "limits", "discard": "new", "allow_direct": True,
        "allow_rollup_hdrs": True, "deny_delete": True, "duplicate_window": min(ttl or 120 * 10**9, 120 * 10**9),
    }  # fmt: skip
    if mirror is None:
        config["subjects"] = [f"$KV.{bucket}.>"]
    else:
        name, _, domain = mirror.partition("@")
        domain = mirror_domain or domain
        config["mirror"] = {"name": f"KV_{name}"} | ({"external": {"api": f"$JS.{domain}.API"}} if domain else {})
        config["mirror_direct"] = True
    if marker_ttl:
        config |= {"allow_msg_ttl": True, "subject_delete_marker_ttl": marker_ttl}
    if compress:
        config["compression"] = "s2"
    if metadata:
        config["metadata"] = dict(map(name_value, metadata))
    if again := republished(bucket, republish_source, republish_destination, republish_headers):
        config["republish"] = again
    if sources:
        config["sources"] = [
            {"name": f"KV_{each}", "subject_transforms": [{"src": f"$KV.{each}.>", "dest": f"$KV.{bucket}.>"}]}
            for each in sources
        ]
    with in_bucket("kv", bucket):
        found = target.with_client(lambda client: ask(target, client, f"STREAM.CREATE.KV_{bucket}", config))
    tell(target, found, f"bucket {bucket} is made")


@kv.command("edit")
@click.argument("bucket", callback=bucket_name)
@click.option(
    "--history", "max_msgs_per_subject", type=click.IntRange(1, 64), metavar="N", help="values to keep of each key"
)
@click.option("--ttl", "max_age", callback=age_ns, metavar="TIME", help="remove values after this time")
@click.option(
    "--max-value-size", "max_msg_size", callback=size_bytes, metavar="SIZE", help="bytes of one value at most"
)
@click.option("--max-bucket-size", "max_bytes", callback=size_bytes, metavar="SIZE", help="bytes of the bucket at most")
@click.option("--replicas", "num_replicas", type=click.IntRange(1, 5), metavar="N", help="copies in a cluster")
@click.option("--description", metavar="TEXT", help="what the bucket is for")
@click.option(
    "--marker-ttl",
    "subject_delete_marker_ttl",
    callback=age_ns,
    metavar="TIME",
    help="keys may have a --ttl, and leave a marker for so long",
)
@click.option("--compress/--no-compress", default=None, help="of a nats-server's files")
@click.option("--metadata", multiple=True, metavar="NAME=VALUE", help="metadata, which keeps the other names")
@click.option("--no-mirror", is_flag=True, help="be a mirror no longer")
@republish_options
@click.pass_obj
def edit(
    target: Target,
    /,
    bucket: str,
    compress: bool | None,
    no_mirror: bool,
    republish_source: str | None,
    republish_destination: str | None,
    republish_headers: bool,
    **given: Any,
) -> None:
    """Change what is given of BUCKET."""
    if compress is not None:
        given["compression"] = "s2" if compress else "none"
    if given["subject_delete_marker_ttl"]:
        given["allow_msg_ttl"] = True
    given["republish"] = republished(bucket, republish_source, republish_destination, republish_headers)
    if no_mirror:
        # A bucket of its own: without the mirror it stores its keys itself.
        given |= {"mirror": {}, "mirror_direct": False, "subjects": [f"$KV.{bucket}.>"]}
    with in_bucket("kv", bucket):
        found = target.with_client(lambda client: change_bucket(target, client, f"KV_{bucket}", given))
    tell(target, found, f"bucket {bucket} is changed")


@kv.command("compact")
@click.argument("bucket", callback=bucket_name)
@force
@click.pass_obj
def compact(target: Target, bucket: str, force: bool) -> None:
    """Remove what is left of deleted keys.

    Markers of the last half hour stay, so that readers that were away see them.
    """
    confirm(f"remove the history of deleted keys of {bucket}?", forced=force)

    async def remove(client: Client) -> int:
        read = entries(target, client, bucket, ">", policy=DeliverPolicy.LAST_PER_SUBJECT, headers_only=True)
        markers = [each async for each in read if operation_of(each) != PUT]
        removed = 0
        for each in markers:
            is_new = datetime.fromisoformat(each.time) > ago(_MARKERS_STAY_NS)
            body = {"filter": each.subject, "keep": 1} if is_new else {"filter": each.subject}
            removed += (await ask(target, client, f"STREAM.PURGE.KV_{bucket}", body)).get("purged", 0)
        return removed

    with in_bucket("kv", bucket):
        purged = target.with_client(remove)
    tell(target, {"purged": purged}, f"{counted(purged, 'message')} deleted")


@kv.command("ls")
@click.argument("bucket", required=False, callback=bucket_name)
@click.argument("key", default=">")
@names_option
@click.option("--verbose", "-v", is_flag=True, help="revision and time of each key")
@click.option("--display-value", is_flag=True, help="with --verbose: the values, too")
@click.pass_obj
def listing(target: Target, bucket: str | None, key: str, names: bool, verbose: bool, display_value: bool) -> None:
    """List the buckets, or the keys of BUCKET.

    KEY may have wildcards.
    """
    if bucket is not None and verbose:
        _list_entries(target, bucket, key, values=display_value)
        return
    if bucket is not None:
        _list_keys(target, bucket, key)
        return

    found = target.with_client(lambda client: every_stream(target, client, "KV_"))
    if names:
        print_names([each["config"]["name"].removeprefix("KV_") for each in found], as_json=target.as_json)
        return
    if target.as_json:
        print_json(found)
        return
    columns = ("Bucket", "Description", ">Values", ">Bytes", ">History", "TTL")
    rows = [
        (each.config.name.removeprefix("KV_"), each.config.description, count(each.state.messages), size(each.state.bytes),
         count(each.config.max_msgs_per_subject), span(each.config.max_age / 1e9) if each.config.max_age else "unlimited")
        for each in map(info_of, found)
    ]  # fmt: skip
    print_table("Buckets", columns, rows, "none in this account")


def _list_entries(target: Target, bucket: str, key: str, *, values: bool) -> None:
    async def read(client: Client) -> list[Stored]:
        found = entries(target, client, bucket, key, policy=DeliverPolicy.LAST_PER_SUBJECT, headers_only=not values)
        return sorted([each async for each in found if operation_of(each) == PUT], key=lambda each: each.subject)

    with in_bucket("kv", bucket):
        found = target.with_client(read)
    if target.as_json:
        told = [entry_json(bucket, each) for each in found]
        print_json(told if values else [{name: each[name] for name in ("key", "revision", "created")} for each in told])
        return
    columns = ("Key", ">Revision", "Created", *(["Value"] if values else []))
    rows = [
        (key_of(bucket, each), count(each.seq), each.time, *([shortened(each.data)] if values else []))
        for each in found
    ]
    print_table(f"Keys of {bucket}", columns, rows, "none")


def _list_keys(target: Target, bucket: str, key: str) -> None:
    async def keys(client: Client) -> list[str]:
        read = entries(target, client, bucket, key, policy=DeliverPolicy.LAST_PER_SUBJECT, headers_only=True)
        return sorted([key_of(bucket, each) async for each in read if operation_of(each) == PUT])

    with in_bucket("kv", bucket):
        found = target.with_client(keys)
    if target.as_json:
        print_json(found)
        return
    for each in found:
        console.print(each)


@kv.command("info")
@click.argument("bucket", callback=bucket_name)
@click.pass_obj
def details(target: Target, bucket: str) -> None:
    """Show configuration and state of BUCKET."""
    with in_bucket("kv", bucket):
        found = target.with_client(lambda client: ask(target, client, f"STREAM.INFO.KV_{bucket}", {}))
    if target.as_json:
        print_json(found)
        return
    info = info_of(found)
    config, state = info.config, info.state
    console.print((bucket, "bold"), f" created {info.created}")
    pairs = [
        ("Stream", config.name), ("Storage", config.storage), ("History", count(config.max_msgs_per_subject)),
        ("TTL", span(config.max_age / 1e9) if config.max_age else "unlimited"),
        ("Values", count(state.messages)), ("Bytes", size(state.bytes)), ("Last revision", count(state.last_seq)),
    ]  # fmt: skip
    print_table("", ("", ""), pairs, "")


for command in KEY_COMMANDS:
    kv.add_command(command)
