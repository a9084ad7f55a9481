"""`eyot kv`: key-value buckets (ADR-8). A bucket B is the stream KV_B with the subjects $KV.B.>."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any

import click
from nats.aio.client import Client
from nats.js.api import DeliverPolicy
from nats.js.errors import APIError, NoStreamResponseError

from eyot_cli.ages import age_ns
from eyot_cli.answers import tell
from eyot_cli.api import ask, why_refused
from eyot_cli.confirm import confirm, force
from eyot_cli.failure import Failure
from eyot_cli.lazy import AliasGroup
from eyot_cli.names import bucket_name, key_name, key_to_read
from eyot_cli.refusals import Refusal, in_bucket, no_bucket
from eyot_cli.show import console, count, print_json, print_payload, print_table, size, span
from eyot_cli.sizes import size_bytes
from eyot_cli.stored import Stored, get_stored, in_order, payload_member, stored_of
from eyot_cli.stream_info import every_stream, info_of
from eyot_cli.target import Target
from eyot_wire.jetstream import error_codes as codes

#: The operation of a marker; absent: the message is a value.
_OPERATION = "KV-Operation"
#: A marker that limits left in place of what they removed (ADR-43), and its reasons.
_MARKER = "Nats-Marker-Reason"
_EXPECTED = "Nats-Expected-Last-Subject-Sequence"
_PUT, _DELETE, _PURGE = "PUT", "DEL", "PURGE"


def operation_of(message: Stored) -> str:
    """Return PUT, DEL or PURGE."""
    if _MARKER in message.headers:
        return _DELETE if message.headers[_MARKER] == "Remove" else _PURGE
    return message.headers.get(_OPERATION, _PUT)


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
@click.option("--mirror", metavar="BUCKET[@DOMAIN]", help="be a copy of this bucket")
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
    mirror: str | None,
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
        config["mirror"] = {"name": f"KV_{name}"} | ({"external": {"api": f"$JS.{domain}.API"}} if domain else {})
        config["mirror_direct"] = True
    with in_bucket("kv", bucket):
        found = target.with_client(lambda client: ask(target, client, f"STREAM.CREATE.KV_{bucket}", config))
    tell(target, found, f"bucket {bucket} is made")


@kv.command("ls")
@click.argument("bucket", required=False, callback=bucket_name)
@click.pass_obj
def listing(target: Target, bucket: str | None) -> None:
    """List the buckets, or the keys of BUCKET."""
    if bucket is not None:
        _list_keys(target, bucket)
        return

    found = target.with_client(lambda client: every_stream(target, client, "KV_"))
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


def _list_keys(target: Target, bucket: str) -> None:
    async def keys(client: Client) -> list[str]:
        read = _entries(target, client, bucket, ">", policy=DeliverPolicy.LAST_PER_SUBJECT, headers_only=True)
        return sorted([_key(bucket, each) async for each in read if operation_of(each) == _PUT])

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


@kv.command("get")
@click.argument("bucket", callback=bucket_name)
@click.argument("key", callback=key_to_read)
@click.option("--revision", type=click.IntRange(min=1), metavar="N", help="this revision instead of the last")
@click.option("--raw", is_flag=True, help="the value alone, byte by byte")
@click.pass_obj
def get(target: Target, bucket: str, key: str, revision: int | None, raw: bool) -> None:
    """Print the value of KEY."""
    subject = f"$KV.{bucket}.{key}"
    which: dict[str, Any] = {"last_by_subj": subject} if revision is None else {"seq": revision}
    revisions = f"eyot kv history {bucket} {key} shows the revisions that are kept"
    missing = _no_key(bucket, key) if revision is None else f"{bucket} has no revision {revision}: {revisions}"
    with in_bucket("kv", bucket, missing):
        found = target.with_client(lambda client: get_stored(target, client, f"KV_{bucket}", which))
    if found.subject != subject:
        raise Failure(f"revision {revision} is not one of {key}: {revisions}")
    if operation_of(found) != _PUT:
        raise Failure(f"{key} is deleted (revision {found.seq}): {revisions}")
    if raw:
        sys.stdout.buffer.write(found.data)
        sys.stdout.buffer.flush()
    else:
        _print_entry(target, bucket, found)


@kv.command("put")
@click.argument("bucket", callback=bucket_name)
@click.argument("key", callback=key_name)
@click.argument("value", required=False)
@click.pass_obj
def put(target: Target, bucket: str, key: str, value: str | None) -> None:
    """Set KEY to VALUE, or to standard input.

    Prints the revision when it is on flash.
    """
    _tell_revision(target, target.with_client(lambda client: _write(target, client, bucket, key, _value(value), {})))


@kv.command("create")
@click.argument("bucket", callback=bucket_name)
@click.argument("key", callback=key_name)
@click.argument("value", required=False)
@click.pass_obj
def create(target: Target, bucket: str, key: str, value: str | None) -> None:
    """Set KEY to VALUE unless it has a value."""
    data = _value(value)

    async def write(client: Client) -> int:
        try:
            return await _write(target, client, bucket, key, data, {_EXPECTED: "0"})
        except APIError as error:
            if error.err_code != codes.JSStreamWrongLastSequenceErrF:
                raise
        last = await get_stored(target, client, f"KV_{bucket}", {"last_by_subj": f"$KV.{bucket}.{key}"})
        if operation_of(last) == _PUT:
            raise Failure(
                f"{key} has a value (revision {last.seq}): eyot kv update {bucket} {key} VALUE {last.seq} changes it"
            )
        return await _write(target, client, bucket, key, data, {_EXPECTED: str(last.seq)})

    _tell_revision(target, target.with_client(write))


@kv.command("update")
@click.argument("bucket", callback=bucket_name)
@click.argument("key", callback=key_name)
@click.argument("value")
@click.argument("revision", type=click.IntRange(min=0))
@click.pass_obj
def update(target: Target, bucket: str, key: str, value: str, revision: int) -> None:
    """Set KEY to VALUE if its last revision is REVISION.

    VALUE `-`: standard input.
    """
    data, expected = _value(None if value == "-" else value), {_EXPECTED: str(revision)}
    try:
        written = target.with_client(lambda client: _write(target, client, bucket, key, data, expected))
    except Refusal as error:
        if error.err_code != codes.JSStreamWrongLastSequenceErrF:
            raise
        last = f"eyot kv history {bucket} {key} shows the last revision, and 0 is that of a key without values"
        raise Failure(f"{error.lines[0]}: {last}") from None
    _tell_revision(target, written)


@kv.command("del")
@click.argument("bucket", callback=bucket_name)
@click.argument("key", required=False, callback=key_name)
@force
@click.pass_obj
def delete(target: Target, bucket: str, key: str | None, force: bool) -> None:
    """Delete KEY, whose history stays, or the whole BUCKET."""
    if key is not None:
        marker = {_OPERATION: _DELETE}
        revision = target.with_client(lambda client: _write(target, client, bucket, key, b"", marker))
        tell(target, {"revision": revision}, f"{key} is deleted (revision {revision})")
        return
    confirm(f"delete the bucket {bucket} with all its keys?", forced=force)
    with in_bucket("kv", bucket):
        found = target.with_client(lambda client: ask(target, client, f"STREAM.DELETE.KV_{bucket}", {}))
    tell(target, found, f"bucket {bucket} is deleted")


@kv.command("purge")
@click.argument("bucket", callback=bucket_name)
@click.argument("key", callback=key_name)
@force
@click.pass_obj
def purge(target: Target, bucket: str, key: str, force: bool) -> None:
    """Delete KEY with its history."""
    confirm(f"delete {key} with its history?", forced=force)
    marker = {_OPERATION: _PURGE, "Nats-Rollup": "sub"}
    revision = target.with_client(lambda client: _write(target, client, bucket, key, b"", marker))
    tell(target, {"revision": revision}, f"{key} is purged (revision {revision})")


@kv.command("history")
@click.argument("bucket", callback=bucket_name)
@click.argument("key")
@click.pass_obj
def history(target: Target, bucket: str, key: str) -> None:
    """Show the values of KEY that are kept, oldest first."""

    async def read(client: Client) -> list[Stored]:
        return [each async for each in _entries(target, client, bucket, key, policy=DeliverPolicy.ALL)]

    with in_bucket("kv", bucket):
        found = target.with_client(read)
    if not found:
        raise Failure(_no_key(bucket, key))
    if target.as_json:
        print_json([_entry_json(bucket, each) for each in found])
        return
    rows = [(count(each.seq), operation_of(each), each.time, size(len(each.data)), _short(each.data)) for each in found]
    print_table(f"{bucket} > {key}", (">Revision", "Operation", "Time", ">Size", "Value"), rows, "")


@kv.command("watch")
@click.argument("bucket", callback=bucket_name)
@click.argument("key", default=">")
@click.option("--count", "-n", "most", type=click.IntRange(min=1), help="end after so many")
@click.pass_obj
def watch(target: Target, bucket: str, key: str, most: int | None) -> None:
    """Print the values of KEY, and every change.

    KEY may have wildcards; without it all keys are shown.
    """

    async def follow(client: Client) -> None:
        read = _entries(target, client, bucket, key, policy=DeliverPolicy.LAST_PER_SUBJECT, follow=True, most=most)
        async for each in read:
            if target.as_json:
                print_json(_entry_json(bucket, each))
            else:
                console.print(
                    each.time,
                    f" {operation_of(each)} ",
                    (_key(bucket, each), "bold"),
                    f" {each.seq}: ",
                    _short(each.data),
                )

    with in_bucket("kv", bucket):
        target.with_client(follow)


_SHOWN_MAX = 80


async def _entries(
    target: Target, client: Client, bucket: str, key: str, *, policy: DeliverPolicy, **how: Any
) -> AsyncIterator[Stored]:
    async for message in in_order(target, client, f"KV_{bucket}", f"$KV.{bucket}.{key}", policy=policy, **how):
        yield stored_of(message)


async def _write(target: Target, client: Client, bucket: str, key: str, data: bytes, headers: dict[str, str]) -> int:
    """Store a value or a marker; return its revision. A domain is reached as ADR-8 says: by the prefix of its API."""
    prefix = f"{target.api_prefix}." if target.is_elsewhere else ""
    jetstream = target.jetstream(client)
    try:
        return (await jetstream.publish(f"{prefix}$KV.{bucket}.{key}", data, headers=headers or None)).seq
    except NoStreamResponseError:
        await why_refused(target, client, f"STREAM.INFO.KV_{bucket}", told=codes.JSStreamNotFoundErr)
        raise no_bucket("kv", bucket) from None


def _no_key(bucket: str, key: str) -> str:
    return f"{bucket} has no key {key}: eyot kv ls {bucket} lists the keys"


def _value(text: str | None) -> bytes:
    return sys.stdin.buffer.read() if text is None else text.encode()


def _key(bucket: str, entry: Stored) -> str:
    return entry.subject.removeprefix(f"$KV.{bucket}.")


def _entry_json(bucket: str, entry: Stored) -> dict[str, Any]:
    found = {"bucket": bucket, "key": _key(bucket, entry), "revision": entry.seq, "created": entry.time}
    return found | {"operation": operation_of(entry)} | payload_member("value", entry.data)


def _print_entry(target: Target, bucket: str, entry: Stored) -> None:
    if target.as_json:
        print_json(_entry_json(bucket, entry))
        return
    console.print((f"{bucket} > {_key(bucket, entry)}", "bold"), f" revision {entry.seq}, created {entry.time}")
    print_payload(entry.data.decode("utf-8", "replace"))


def _short(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 3] + "..."


def _tell_revision(target: Target, revision: int) -> None:
    tell(target, {"revision": revision}, f"revision {revision}")
