"""`eyot kv get|put|create|update|del|purge|history|revert|watch`: the keys of a bucket."""

from __future__ import annotations

import sys
from contextlib import aclosing
from typing import Any

import click
from nats.aio.client import Client
from nats.js.api import DeliverPolicy
from nats.js.errors import APIError

from eyot_cli.buckets.kv_entries import (
    DELETE,
    EXPECTED,
    OPERATION,
    PURGE,
    PUT,
    entries,
    entry_json,
    key_of,
    no_key,
    operation_of,
    print_entry,
    shortened,
    tell_revision,
    value_of,
    write,
)
from eyot_cli.connection.answers import tell
from eyot_cli.connection.refusals import Refusal, in_bucket
from eyot_cli.connection.target import Target
from eyot_cli.jetstream.api import ask
from eyot_cli.jetstream.stored import Stored, get_stored
from eyot_cli.terminal.confirm import confirm, force
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.show import console, count, print_json, print_table, size
from eyot_cli.values.ages import age_ns
from eyot_cli.values.names import bucket_name, key_name, key_to_read
from eyot_cli.values.numbers import at_least
from eyot_wire.jetstream import error_codes as codes


@click.command("get")
@click.argument("bucket", callback=bucket_name)
@click.argument("key", callback=key_to_read)
@click.option("--revision", type=at_least(1), metavar="N", help="this revision instead of the last")
@click.option("--raw", is_flag=True, help="the value alone, byte by byte")
@click.pass_obj
def get(target: Target, bucket: str, key: str, revision: int | None, raw: bool) -> None:
    """Print the value of KEY."""
    subject = f"$KV.{bucket}.{key}"
    which: dict[str, Any] = {"last_by_subj": subject} if revision is None else {"seq": revision}
    revisions = f"eyot kv history {bucket} {key} shows the revisions that are kept"
    missing = no_key(bucket, key) if revision is None else f"{bucket} has no revision {revision}: {revisions}"
    with in_bucket("kv", bucket, missing):
        found = target.with_client(lambda client: get_stored(target, client, f"KV_{bucket}", which))
    if found.subject != subject:
        raise Failure(f"revision {revision} is not one of {key}: {revisions}")
    if operation_of(found) != PUT:
        raise Failure(f"{key} is deleted (revision {found.seq}): {revisions}")
    if raw:
        sys.stdout.buffer.write(found.data)
        sys.stdout.buffer.flush()
    else:
        print_entry(target, bucket, found)


@click.command("put")
@click.argument("bucket", callback=bucket_name)
@click.argument("key", callback=key_name)
@click.argument("value", required=False)
@click.pass_obj
def put(target: Target, bucket: str, key: str, value: str | None) -> None:
    """Set KEY to VALUE, or to standard input.

    Prints the revision when it is on flash.
    """
    tell_revision(target, target.with_client(lambda client: write(target, client, bucket, key, value_of(value), {})))


@click.command("create")
@click.argument("bucket", callback=bucket_name)
@click.argument("key", callback=key_name)
@click.argument("value", required=False)
@click.option("--ttl", callback=age_ns, metavar="TIME", help="remove it after this time; the bucket needs --marker-ttl")
@click.pass_obj
def create(target: Target, bucket: str, key: str, value: str | None, ttl: int | None) -> None:
    """Set KEY to VALUE unless it has a value."""
    data, marks = value_of(value), _lifetime(ttl)

    async def write_new(client: Client) -> int:
        try:
            return await write(target, client, bucket, key, data, {EXPECTED: "0"} | marks)
        except APIError as error:
            if error.err_code != codes.JSStreamWrongLastSequenceErrF:
                raise
        last = await get_stored(target, client, f"KV_{bucket}", {"last_by_subj": f"$KV.{bucket}.{key}"})
        if operation_of(last) == PUT:
            raise Failure(
                f"{key} has a value (revision {last.seq}): eyot kv update {bucket} {key} VALUE {last.seq} changes it"
            )
        return await write(target, client, bucket, key, data, {EXPECTED: str(last.seq)} | marks)

    tell_revision(target, target.with_client(write_new))


@click.command("update")
@click.argument("bucket", callback=bucket_name)
@click.argument("key", callback=key_name)
@click.argument("value")
@click.argument("revision", type=at_least(0))
@click.pass_obj
def update(target: Target, bucket: str, key: str, value: str, revision: int) -> None:
    """Set KEY to VALUE if its last revision is REVISION.

    VALUE `-`: standard input.
    """
    data, expected = value_of(None if value == "-" else value), {EXPECTED: str(revision)}
    try:
        written = target.with_client(lambda client: write(target, client, bucket, key, data, expected))
    except Refusal as error:
        if error.err_code != codes.JSStreamWrongLastSequenceErrF:
            raise
        last = f"eyot kv history {bucket} {key} shows the last revision, and 0 is that of a key without values"
        raise Failure(f"{error.lines[0]}: {last}") from None
    tell_revision(target, written)


@click.command("del")
@click.argument("bucket", callback=bucket_name)
@click.argument("key", required=False, callback=key_name)
@force
@click.pass_obj
def delete(target: Target, bucket: str, key: str | None, force: bool) -> None:
    """Delete KEY, whose history stays, or the whole BUCKET."""
    if key is not None:
        marker = {OPERATION: DELETE}
        revision = target.with_client(lambda client: write(target, client, bucket, key, b"", marker))
        tell(target, {"revision": revision}, f"{key} is deleted (revision {revision})")
        return
    confirm(f"delete the bucket {bucket} with all its keys?", forced=force)
    with in_bucket("kv", bucket):
        found = target.with_client(lambda client: ask(target, client, f"STREAM.DELETE.KV_{bucket}", {}))
    tell(target, found, f"bucket {bucket} is deleted")


@click.command("purge")
@click.argument("bucket", callback=bucket_name)
@click.argument("key", callback=key_name)
@click.option("--ttl", callback=age_ns, metavar="TIME", help="remove the marker after this time")
@force
@click.pass_obj
def purge(target: Target, bucket: str, key: str, ttl: int | None, force: bool) -> None:
    """Delete KEY with its history."""
    confirm(f"delete {key} with its history?", forced=force)
    marker = {OPERATION: PURGE, "Nats-Rollup": "sub"} | _lifetime(ttl)
    revision = target.with_client(lambda client: write(target, client, bucket, key, b"", marker))
    tell(target, {"revision": revision}, f"{key} is purged (revision {revision})")


@click.command("history")
@click.argument("bucket", callback=bucket_name)
@click.argument("key")
@click.pass_obj
def history(target: Target, bucket: str, key: str) -> None:
    """Show the values of KEY that are kept, oldest first."""

    async def read(client: Client) -> list[Stored]:
        return [each async for each in entries(target, client, bucket, key, policy=DeliverPolicy.ALL)]

    with in_bucket("kv", bucket):
        found = target.with_client(read)
    if not found:
        raise Failure(no_key(bucket, key))
    if target.as_json:
        print_json([entry_json(bucket, each) for each in found])
        return
    rows = [
        (count(each.seq), operation_of(each), each.time, size(len(each.data)), shortened(each.data)) for each in found
    ]
    print_table(f"{bucket} > {key}", (">Revision", "Operation", "Time", ">Size", "Value"), rows, "")


@click.command("revert")
@click.argument("bucket", callback=bucket_name)
@click.argument("key", callback=key_to_read)
@click.argument("revision", type=at_least(1))
@force
@click.pass_obj
def revert(target: Target, bucket: str, key: str, revision: int, force: bool) -> None:
    """Set KEY to the value that it had at REVISION.

    A value that somebody sets meanwhile is not lost: the command fails then.
    """

    async def set_again(client: Client) -> int:
        stream, subject = f"KV_{bucket}", f"$KV.{bucket}.{key}"
        last = await get_stored(target, client, stream, {"last_by_subj": subject})
        found = await get_stored(target, client, stream, {"seq": revision})
        if found.subject != subject or operation_of(found) != PUT:
            raise Failure(f"revision {revision} is no value of {key}: eyot kv history {bucket} {key} shows them")
        if not force:
            console.print(f"revision {revision}: {shortened(found.data)}")
        confirm(f"set {key} to that?", forced=force)
        return await write(target, client, bucket, key, found.data, {EXPECTED: str(last.seq)})

    kept = f"{bucket} has no revision {revision} of {key}: eyot kv history {bucket} {key} shows those that are kept"
    with in_bucket("kv", bucket, kept):
        tell_revision(target, target.with_client(set_again))


@click.command("watch")
@click.argument("bucket", callback=bucket_name)
@click.argument("key", default=">")
@click.option("--history", "with_history", is_flag=True, help="also the values before the last")
@click.option("--deletes/--no-deletes", default=True, help="also what was deleted")
@click.option("--updates", is_flag=True, help="only what changes from now on")
@click.option("--revision", type=at_least(1), metavar="N", help="all from this revision on")
@click.option("--count", "-n", "most", type=at_least(1), help="end after so many")
@click.pass_obj
def watch(
    target: Target,
    bucket: str,
    key: str,
    with_history: bool,
    deletes: bool,
    updates: bool,
    revision: int | None,
    most: int | None,
) -> None:
    """Print the values of KEY, and every change.

    KEY may have wildcards; without it all keys are shown.
    """
    if with_history + updates + (revision is not None) > 1:
        raise click.UsageError("--history, --updates and --revision exclude each other")
    policy = DeliverPolicy.ALL if with_history else DeliverPolicy.NEW if updates else DeliverPolicy.LAST_PER_SUBJECT

    async def follow(client: Client) -> None:
        shown = 0
        found = entries(target, client, bucket, key, policy=policy, start_seq=revision, follow=True)
        async with aclosing(found) as changes:
            async for each in changes:
                if not deletes and operation_of(each) != PUT:
                    continue
                shown += 1
                _print_change(target, bucket, each)
                if shown == most:
                    break

    with in_bucket("kv", bucket):
        target.with_client(follow)


def _print_change(target: Target, bucket: str, entry: Stored) -> None:
    if target.as_json:
        print_json(entry_json(bucket, entry))
        return
    key = (key_of(bucket, entry), "bold")
    console.print(entry.time, f" {operation_of(entry)} ", key, f" {entry.seq}: ", shortened(entry.data))


def _lifetime(ttl: int | None) -> dict[str, str]:
    """Return the header of a message that the stream removes after a time; whole seconds, one at least (ADR-43)."""
    return {} if ttl is None else {"Nats-TTL": f"{max(1, round(ttl / 1e9))}s"}


KEY_COMMANDS = (get, put, create, update, delete, purge, history, revert, watch)
