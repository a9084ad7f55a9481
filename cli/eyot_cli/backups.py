"""`eyot backup` and `eyot restore`: a stream into a folder, and back.

The folder is that of the `nats` tool's `stream backup`: `backup.json` with the stream's configuration and state,
`stream.tar.s2` with its messages and consumers, as the server sent it. So either tool restores what the other took, into
Eyot or into a nats-server. The archive is written as it comes and put in its place when it is complete and on the disk,
`backup.json` last: a folder that has one is a whole backup.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import click
import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg

from eyot_cli.api import answer_of, ask
from eyot_cli.failure import Failure
from eyot_cli.show import console, count, print_json, size
from eyot_cli.target import Target

META, DATA = "backup.json", "stream.tar.s2"
CHUNK_BYTES = 128 << 10
#: So long the server may leave a backup without a chunk, or a chunk of a restore without its answer.
IDLE_S = 30.0
#: So long it may take to make a stream of what it was sent.
COMPLETE_S = 3600.0


@click.command()
@click.argument("stream")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--no-consumers", is_flag=True, help="messages only")
@click.option("--check", is_flag=True, help="have the server check all messages first")
@click.pass_obj
def backup(target: Target, stream: str, folder: Path, no_consumers: bool, check: bool) -> None:
    """Back STREAM up into FOLDER, which is made."""
    if (folder / META).exists() or (folder / DATA).exists():
        raise Failure(f"{folder} holds a backup already")
    partial, made = folder / f"{DATA}.partial", not folder.exists()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with partial.open("wb") as file:
            body = {"no_consumers": no_consumers, "jsck": check, "chunk_size": CHUNK_BYTES}
            taken = target.with_client(lambda client: _take(target, client, stream, body, file))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(folder / DATA)
        _write_meta(folder / META, {"config": taken["config"], "state": taken["state"]})
    except OSError as error:
        raise Failure(f"{error.filename or folder}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
            if made:
                folder.rmdir()  # where nothing came of it
    written, state = (folder / DATA).stat().st_size, taken["state"]
    if target.as_json:
        print_json({"stream": stream, "folder": str(folder), "bytes": written, "state": state})
    else:
        console.print(f"{stream}: {count(state['messages'])} messages, {size(written)} in {folder}")


async def _take(target: Target, client: Client, stream: str, body: dict[str, Any], file: BinaryIO) -> dict[str, Any]:
    """Write the archive to `file`; the answer to the request. Raises Failure."""
    receiver = _Receiver(client, file)
    inbox = client.new_inbox()
    await client.subscribe(inbox, cb=receiver.take)
    taken = await ask(target, client, f"STREAM.SNAPSHOT.{stream}", {"deliver_subject": inbox, **body})
    await receiver.finished()
    return taken


def _write_meta(path: Path, meta: dict[str, Any]) -> None:
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(meta), indent=2))
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class _Receiver:
    """Writes chunks as they come and answers each when it is written."""

    def __init__(self, client: Client, file: BinaryIO) -> None:
        self._client = client
        self._file = file
        self._came = asyncio.Event()
        self._end: Msg | None = None
        self._problem: OSError | None = None

    async def take(self, msg: Msg) -> None:
        self._came.set()
        if not msg.data:
            self._end = msg
            return
        try:
            self._file.write(msg.data)
        except OSError as problem:
            self._problem = problem
            return
        if msg.reply:
            await self._client.publish(msg.reply)

    async def finished(self) -> None:
        """Wait for the end. Raises Failure."""
        while self._end is None:
            if self._problem is not None:
                raise Failure(f"{self._file.name}: {self._problem.strerror}")
            try:
                await asyncio.wait_for(self._came.wait(), IDLE_S)
            except TimeoutError:
                raise Failure(f"nothing has come from the server for {IDLE_S:.0f} s") from None
            self._came.clear()
        headers = self._end.headers or {}
        status = headers.get("Status", "204")
        if status != "204":
            raise Failure(f"the backup is not complete: {status} {headers.get('Description', '')}".strip())


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.pass_obj
def restore(target: Target, folder: Path) -> None:
    """Make a stream of the backup in FOLDER."""
    try:
        meta = msgspec.json.decode((folder / META).read_bytes(), type=dict[str, dict[str, Any]])
        name = meta["config"]["name"]
        if not isinstance(name, str):
            raise Failure(f"{folder / META} is not what a backup has: the name of its stream is none")
        body = {"config": meta["config"], "state": meta["state"]}
        with (folder / DATA).open("rb") as file:
            answer = target.with_client(lambda client: _give(target, client, name, body, file))
    except FileNotFoundError as error:
        raise Failure(f"{folder} is no backup: it has no {Path(error.filename).name}") from error
    except OSError as error:
        raise Failure(f"{error.filename or folder}: {error.strerror or error}") from error
    except msgspec.MsgspecError as error:
        raise Failure(f"{folder / META} is not what a backup has: {error}") from error
    except KeyError as error:
        raise Failure(f"{folder / META} is not what a backup has: it lacks {error}") from error
    state = answer["state"]
    if target.as_json:
        print_json({"stream": name, "state": state})
    else:
        console.print(f"{name}: {count(state['messages'])} messages, {count(state['consumer_count'])} consumers")


async def _give(target: Target, client: Client, name: str, body: dict[str, Any], file: BinaryIO) -> dict[str, Any]:
    begun = await ask(target, client, f"STREAM.RESTORE.{name}", body)
    subject = begun["deliver_subject"]
    while chunk := file.read(CHUNK_BYTES):
        said = await client.request(subject, chunk, timeout=IDLE_S)
        if said.data:
            answer_of(said.data)
    return answer_of((await client.request(subject, b"", timeout=COMPLETE_S)).data)
