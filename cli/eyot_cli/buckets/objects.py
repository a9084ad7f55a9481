"""`eyot object`: object buckets (ADR-20). A bucket B is the stream OBJ_B."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from io import BufferedIOBase
from pathlib import Path
from typing import Any, BinaryIO, cast

import click
import msgspec
from nats.aio.client import Client
from nats.js.api import DeliverPolicy, ObjectInfo, ObjectMeta, ObjectMetaOptions
from nats.js.errors import (
    BucketNotFoundError,
    DigestMismatchError,
    NotFoundError,
    ObjectDeletedError,
    ObjectNotFoundError,
)
from nats.js.object_store import ObjectStore

from eyot_cli.buckets.changes import change_bucket
from eyot_cli.buckets.putting import put_object
from eyot_cli.connection.answers import tell
from eyot_cli.connection.refusals import in_bucket, no_bucket
from eyot_cli.connection.target import Target
from eyot_cli.jetstream.api import ask
from eyot_cli.jetstream.stored import in_order, stored_of
from eyot_cli.jetstream.stream_info import every_stream, info_of
from eyot_cli.jetstream.stream_options import name_value
from eyot_cli.messages.common import parse_headers
from eyot_cli.terminal.confirm import confirm, force
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.lazy import AliasGroup
from eyot_cli.terminal.private_files import is_special
from eyot_cli.terminal.show import console, count, names_option, print_json, print_names, print_table, size
from eyot_cli.values.ages import age_ns
from eyot_cli.values.names import bucket_name
from eyot_cli.values.numbers import at_least
from eyot_cli.values.paths import FilePath
from eyot_cli.values.sizes import size_bytes
from eyot_wire.quantities import counted

FILE = FilePath(dir_okay=False)
_progress = click.option(
    "--progress/--no-progress", default=False, expose_value=False, help="as in the nats tool; eyot shows none here"
)


@click.group("object", cls=AliasGroup)
def objects() -> None:
    """Object buckets: files of any size."""


@objects.command("add")
@click.argument("bucket", callback=bucket_name)
@click.option("--ttl", callback=age_ns, metavar="TIME", help="remove objects after this time")
@click.option("--max-bucket-size", callback=size_bytes, metavar="SIZE", help="bytes of the bucket at most")
@click.option("--storage", type=click.Choice(["file", "memory"]), default="file", help="file is on flash")
@click.option("--replicas", type=click.IntRange(1, 5), default=1, help="copies in a cluster")
@click.option("--description", default="", metavar="TEXT", help="what the bucket is for")
@click.option("--compress/--no-compress", default=False, help="of a nats-server's files")
@click.option("--metadata", multiple=True, metavar="NAME=VALUE", help="metadata of the stream")
@click.pass_obj
def add(
    target: Target,
    bucket: str,
    ttl: int | None,
    max_bucket_size: int | None,
    storage: str,
    replicas: int,
    description: str,
    compress: bool,
    metadata: tuple[str, ...],
) -> None:
    """Make BUCKET."""
    config: dict[str, Any] = {
        "name": f"OBJ_{bucket}", "subjects": [f"$O.{bucket}.C.>", f"$O.{bucket}.M.>"], "description": description,
        "max_age": ttl or 0, "max_bytes": max_bucket_size or -1, "max_msgs": -1, "max_consumers": -1, "storage": storage,
        "num_replicas": replicas, "retention": "limits", "discard": "new", "allow_rollup_hdrs": True, "allow_direct": True,
    }  # fmt: skip
    if compress:
        config["compression"] = "s2"
    if metadata:
        config["metadata"] = dict(map(name_value, metadata))
    with in_bucket("object", bucket):
        found = target.with_client(lambda client: ask(target, client, f"STREAM.CREATE.OBJ_{bucket}", config))
    tell(target, found, f"bucket {bucket} is made")


@objects.command("edit")
@click.argument("bucket", callback=bucket_name)
@click.option("--ttl", "max_age", callback=age_ns, metavar="TIME", help="remove objects after this time")
@click.option("--max-bucket-size", "max_bytes", callback=size_bytes, metavar="SIZE", help="bytes of the bucket at most")
@click.option("--replicas", "num_replicas", type=click.IntRange(1, 5), metavar="N", help="copies in a cluster")
@click.option("--description", metavar="TEXT", help="what the bucket is for")
@click.option("--metadata", multiple=True, metavar="NAME=VALUE", help="metadata, which keeps the other names")
@click.pass_obj
def edit(target: Target, /, bucket: str, **given: Any) -> None:
    """Change what is given of BUCKET."""
    with in_bucket("object", bucket):
        found = target.with_client(lambda client: change_bucket(target, client, f"OBJ_{bucket}", given))
    tell(target, found, f"bucket {bucket} is changed")


@objects.command("ls")
@click.argument("bucket", required=False, callback=bucket_name)
@names_option
@click.pass_obj
def listing(target: Target, bucket: str | None, names: bool) -> None:
    """List the buckets, or the objects of BUCKET."""
    if bucket is not None:
        _list_objects(target, bucket, names=names)
        return

    found = target.with_client(lambda client: every_stream(target, client, "OBJ_"))
    if names:
        print_names([each["config"]["name"].removeprefix("OBJ_") for each in found], as_json=target.as_json)
        return
    if target.as_json:
        print_json(found)
        return
    rows = [
        (each.config.name.removeprefix("OBJ_"), each.config.description, size(each.state.bytes),
         "yes" if each.config.sealed else "no")
        for each in map(info_of, found)
    ]  # fmt: skip
    print_table("Object Buckets", ("Bucket", "Description", ">Bytes", "Sealed"), rows, "none in this account")


def _list_objects(target: Target, bucket: str, *, names: bool) -> None:
    async def every(client: Client) -> list[ObjectInfo]:
        async with _bucket(target, client, bucket) as store:
            try:
                return await store.list(ignore_deletes=True)
            except NotFoundError:
                return []

    found = sorted(target.with_client(every), key=lambda each: each.name)
    if names:
        print_names([each.name for each in found], as_json=target.as_json)
        return
    if target.as_json:
        print_json([each.as_dict() for each in found])
        return
    rows = [(each.name, size(each.size), _time(each), each.digest or "") for each in found]
    print_table(f"Objects of {bucket}", ("Name", ">Size", "Time", "Digest"), rows, "none")


def _time(info: ObjectInfo) -> str:
    """Return when an object was put; nats-py writes UTC as an offset."""
    return (info.mtime or "").replace("+00:00", "Z")


@objects.command("info")
@click.argument("bucket", callback=bucket_name)
@click.argument("name", required=False)
@click.pass_obj
def details(target: Target, bucket: str, name: str | None) -> None:
    """Show BUCKET, or its object NAME."""
    if name is None:
        with in_bucket("object", bucket):
            found = target.with_client(lambda client: ask(target, client, f"STREAM.INFO.OBJ_{bucket}", {}))
        if target.as_json:
            print_json(found)
            return
        bucket_info = info_of(found)
        config = bucket_info.config
        console.print((bucket, "bold"), f" created {bucket_info.created}")
        pairs = [("Stream", config.name), ("Storage", config.storage), ("Bytes", size(bucket_info.state.bytes)),
                 ("Sealed", "yes" if config.sealed else "no")]  # fmt: skip
        print_table("", ("", ""), pairs, "")
        return

    async def read(client: Client) -> ObjectInfo:
        async with _bucket(target, client, bucket) as store:
            return await store.get_info(name)

    info = target.with_client(read)
    if target.as_json:
        print_json(info.as_dict())
        return
    console.print((f"{bucket} > {info.name}", "bold"))
    pairs = [("Description", info.description or ""), ("Size", size(info.size)), ("Chunks", count(info.chunks)),
             ("Time", _time(info)), ("Digest", info.digest or "")]  # fmt: skip
    print_table("", ("", ""), pairs, "")


@objects.command("put")
@click.argument("bucket", callback=bucket_name)
@click.argument("file", type=FilePath(dir_okay=False, allow_dash=True))
@click.option("--name", metavar="NAME", help="name of the object; the file's without it")
@click.option("--description", metavar="TEXT", help="what it is")
@click.option("--header", "-H", multiple=True, metavar="NAME:VALUE", help="a header; may be given several times")
@click.option("--chunk-size", callback=size_bytes, metavar="SIZE", help="bytes of one message at most; 128K without it")
@click.option("--force", "-f", is_flag=True, expose_value=False, help="as in the nats tool; eyot does not ask")
@_progress
@click.pass_obj
def put(
    target: Target,
    bucket: str,
    file: Path,
    name: str | None,
    description: str | None,
    header: tuple[str, ...],
    chunk_size: int | None,
) -> None:
    """Store FILE (`-`: standard input) in BUCKET."""
    _at_home(target)
    options = None if chunk_size is None else ObjectMetaOptions(max_chunk_size=chunk_size)
    meta = ObjectMeta(description=description, headers=parse_headers(header), options=options)
    from_stdin = str(file) == "-"
    if from_stdin and name is None:
        raise click.UsageError("standard input needs a --name")
    name = name or file.name
    try:
        data: BinaryIO = sys.stdin.buffer if from_stdin else file.open("rb")
    except OSError as error:
        raise Failure(f"{file}: {error.strerror}") from error

    async def send(client: Client) -> ObjectInfo:
        with _in_words(bucket):
            return await put_object(
                target, client, bucket, name, cast("BufferedIOBase", data), replace(meta, name=name)
            )

    with data:
        info = target.with_client(send)
    if target.as_json:
        print_json(info.as_dict())
    else:
        console.print(f"{info.name}: {size(info.size)} in {counted(info.chunks, 'chunk')}")


@objects.command("get")
@click.argument("bucket", callback=bucket_name)
@click.argument("name")
@click.option(
    "--output", "-O", type=FILE, metavar="FILE", help="where it goes (`-`: standard output); its name without it"
)
@_progress
@force
@click.pass_obj
def get(target: Target, bucket: str, name: str, output: Path | None, force: bool) -> None:
    """Read the object NAME into a file.

    The file appears, and standard output, a device or a fifo gets bytes, when the object is complete and its digest is right.
    """
    if output is not None and (str(output) == "-" or is_special(output)):
        with tempfile.TemporaryFile() as whole:
            _read(target, bucket, name, whole)
            whole.seek(0)
            _pour(whole, output)
        return
    # The name comes from a peer: no folder of it counts.
    path = output or Path(Path(name).name or "object")
    if path.exists():
        confirm(f"overwrite {path}?", forced=force)
    part = path.with_name(f"{path.name}.part-{os.getpid()}")
    try:
        with part.open("xb") as into:
            _read(target, bucket, name, into)
        part.replace(path)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
    length = path.stat().st_size
    tell(target, {"file": str(path), "size": length}, f"{path}: {size(length)}")


def _pour(whole: Any, output: Path) -> None:
    if str(output) == "-":
        shutil.copyfileobj(whole, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    try:
        with output.open("wb") as into:
            shutil.copyfileobj(whole, into)
    except OSError as error:
        raise Failure(f"{output}: {error.strerror}") from error


def _read(target: Target, bucket: str, name: str, into: Any) -> None:
    async def read(client: Client) -> None:
        async with _bucket(target, client, bucket) as store:
            await store.get(name, writeinto=into)

    target.with_client(read)


@objects.command("del")
@click.argument("bucket", callback=bucket_name)
@click.argument("name", required=False)
@force
@click.pass_obj
def delete(target: Target, bucket: str, name: str | None, force: bool) -> None:
    """Delete the object NAME, or the whole BUCKET."""
    if name is None:
        confirm(f"delete the bucket {bucket} with all its objects?", forced=force)
        with in_bucket("object", bucket):
            found = target.with_client(lambda client: ask(target, client, f"STREAM.DELETE.OBJ_{bucket}", {}))
        tell(target, found, f"bucket {bucket} is deleted")
        return
    _at_home(target)
    confirm(f"delete {name}?", forced=force)

    async def remove(client: Client) -> None:
        async with _bucket(target, client, bucket) as store:
            await store.delete(name)

    target.with_client(remove)
    tell(target, {"success": True}, f"{name} is deleted")


@objects.command("watch")
@click.argument("bucket", callback=bucket_name)
@click.option("--count", "-n", "most", type=at_least(1), help="end after so many")
@click.pass_obj
def watch(target: Target, bucket: str, most: int | None) -> None:
    """Print the objects of BUCKET, and every change."""

    async def follow(client: Client) -> None:
        read = in_order(
            target,
            client,
            f"OBJ_{bucket}",
            f"$O.{bucket}.M.>",
            policy=DeliverPolicy.LAST_PER_SUBJECT,
            follow=True,
            most=most,
        )
        async with aclosing(read) as messages:
            async for message in messages:
                told = msgspec.json.decode(message.data, type=dict[str, Any])
                if target.as_json:
                    print_json(told)
                    continue
                action = "DELETE" if told.get("deleted") else "PUT"
                when = stored_of(message).time
                console.print(
                    when, f" {action} {bucket} > ", (str(told.get("name")), "bold"), f": {size(told.get('size', 0))}"
                )

    with in_bucket("object", bucket):
        target.with_client(follow)


@objects.command("seal")
@click.argument("bucket", callback=bucket_name)
@force
@click.pass_obj
def seal(target: Target, bucket: str, force: bool) -> None:
    """Let nobody change BUCKET any more. This cannot be taken back."""
    confirm(f"seal {bucket} for ever?", forced=force)

    async def close(client: Client) -> dict[str, Any]:
        config = (await ask(target, client, f"STREAM.INFO.OBJ_{bucket}", {}))["config"]
        return await ask(target, client, f"STREAM.UPDATE.OBJ_{bucket}", config | {"sealed": True})

    with in_bucket("object", bucket):
        sealed = target.with_client(close)
    tell(target, sealed, f"bucket {bucket} is sealed")


@asynccontextmanager
async def _bucket(target: Target, client: Client, bucket: str) -> AsyncIterator[ObjectStore]:
    """Open a bucket; what is missing in it is said in words."""
    with _in_words(bucket):
        yield await target.jetstream(client).object_store(bucket)


@contextmanager
def _in_words(bucket: str) -> Iterator[None]:
    """Say in words what is missing in a bucket."""
    try:
        yield
    except BucketNotFoundError:
        raise no_bucket("object", bucket) from None
    except (ObjectNotFoundError, ObjectDeletedError):
        raise Failure(f"{bucket} has no such object: eyot object ls {bucket} lists them") from None
    except DigestMismatchError:
        raise Failure(
            "the object's chunks do not have the digest that was stored with it: put it into the bucket again"
        ) from None


def _at_home(target: Target) -> None:
    """Refuse writes to another domain: an object's chunks have no way there (ADR-20)."""
    if target.is_elsewhere:
        raise Failure(
            "objects are written where the bucket is: name that server with -s, and leave out --domain and --js-api-prefix"
        )
