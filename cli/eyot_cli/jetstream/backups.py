"""`eyot backup` and `eyot restore`: a stream into a folder, and back.

The folder has the layout of the `nats` tool's `stream backup`: `backup.json` with the stream's configuration and state,
`stream.tar.s2` with its messages and consumers, as the server sent it. Either tool restores the other's backups, into
Eyot or into a nats-server. The archive is written as it arrives, under a temporary name until it is complete and
flushed. `backup.json` comes last: a folder that has one is a complete backup.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Self

import click
import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg

from eyot_cli.connection.target import Target
from eyot_cli.jetstream.api import answer_of, ask
from eyot_cli.jetstream.stream_options import config_in
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.show import console, print_json, progress, progress_option, size
from eyot_cli.values.names import stream_name
from eyot_cli.values.numbers import at_least
from eyot_cli.values.paths import FilePath
from eyot_cli.values.sizes import size_bytes
from eyot_wire.quantities import counted

META, DATA = "backup.json", "stream.tar.s2"
CHUNK_BYTES = 128 << 10
#: The longest pause of the server between chunks of a backup, or before it answers a chunk of a restore.
IDLE_S = 30.0
#: The longest time that the server may take to build the stream after the last chunk.
COMPLETE_S = 3600.0


@click.command()
@click.argument("stream", callback=stream_name)
@click.argument("folder", type=FilePath(file_okay=False))
@click.option("--no-consumers/--consumers", default=False, help="messages only")
@click.option("--check", is_flag=True, help="have the server check all messages first")
@click.option(
    "--chunk-size", callback=size_bytes, default="128KiB", metavar="SIZE", help="bytes of one message at most"
)
@click.option(
    "--window-size", callback=size_bytes, metavar="SIZE", show_default="the server's", help="bytes under way at most"
)
@progress_option
@click.pass_obj
def backup(
    target: Target,
    /,
    stream: str,
    folder: Path,
    no_consumers: bool,
    check: bool,
    chunk_size: int,
    window_size: int | None,
    shows: bool,
) -> None:
    """Back STREAM up into FOLDER, which is created."""
    made = not folder.exists()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with Folder(folder) as files:
            if files.has(META) or files.has(DATA):
                raise Failure(f"{folder} already holds a backup")
            with files.written(DATA) as file:
                body = {"no_consumers": no_consumers, "jsck": check, "chunk_size": chunk_size}
                if window_size:
                    body["window_size"] = window_size
                path = folder / DATA
                taken = target.with_client(lambda client: _take(target, client, stream, body, file, path, shows=shows))
            with files.written(META) as file:
                meta = {"config": taken["config"], "state": taken["state"]}
                file.write(msgspec.json.format(msgspec.json.encode(meta), indent=2))
    except OSError as error:
        raise _cannot_write(error.filename or folder, error) from error
    finally:
        if made:
            with suppress(OSError):
                folder.rmdir()  # remove the folder of a failed backup
    written, state = (folder / DATA).stat().st_size, taken["state"]
    if target.as_json:
        print_json({"stream": stream, "folder": str(folder), "bytes": written, "state": state})
    else:
        console.print(f"{stream}: {counted(state['messages'], 'message')}, {size(written)} in {folder}")


async def _take(
    target: Target, client: Client, stream: str, body: dict[str, Any], file: BinaryIO, path: Path, *, shows: bool
) -> dict[str, Any]:
    """Write the archive to `file`, whose name is `path`, and return the answer to the request. Raises Failure."""
    receiver = _Receiver(client, file, path)
    inbox = client.new_inbox()
    await client.subscribe(inbox, cb=receiver.take)
    taken = await ask(target, client, f"STREAM.SNAPSHOT.{stream}", {"deliver_subject": inbox, **body})
    # Chunks are compressed: the stream's bytes are the most that may come.
    with progress(f"{stream}, at most", taken["state"]["bytes"], shows=shows) as moved:
        await receiver.finished(moved)
    return taken


def _cannot_write(path: str | Path, error: OSError) -> Failure:
    room = ": name a folder with more room" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return Failure(f"{path}: {error.strerror or error}{room}")


class Folder:
    """The files of a backup's folder, opened relative to this very folder. Raises OSError.

    A user who may write beside an operator's backups can neither redirect files with a symbolic link nor exchange the
    folder meanwhile.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    def __enter__(self) -> Self:
        self._fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def has(self, name: str) -> bool:
        """Return whether an entry of that name exists, even a dangling link."""
        return name in os.listdir(self._fd)

    def _open(self, name: str, flags: int) -> int:
        try:
            return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self._fd)
        except OSError as error:
            words = "a symbolic link is not followed" if error.errno == errno.ELOOP else error.strerror
            raise type(error)(error.errno, words, str(self._path / name)) from None

    def read(self, name: str) -> BinaryIO:
        """Open a regular file for reading."""
        fd = self._open(name, os.O_RDONLY | os.O_NONBLOCK)
        mode = os.fstat(fd).st_mode
        if stat.S_ISREG(mode):
            return os.fdopen(fd, "rb")
        os.close(fd)
        words = "Is a directory" if stat.S_ISDIR(mode) else "not a regular file"
        raise OSError(errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL, words, str(self._path / name))

    @contextmanager
    def written(self, name: str) -> Iterator[BinaryIO]:
        """Open a new file that appears under its name only when it is complete and flushed."""
        partial = f"{name}.partial"
        with suppress(FileNotFoundError):
            os.unlink(partial, dir_fd=self._fd)  # left over by an interrupted backup
        with os.fdopen(self._open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                os.replace(partial, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
            except BaseException as error:
                with suppress(OSError):
                    os.unlink(partial, dir_fd=self._fd)
                if isinstance(error, OSError) and error.filename is None:
                    error.filename = str(self._path / name)  # a write names no file
                raise
        os.fsync(self._fd)


class _Receiver:
    """Writes chunks as they arrive and acknowledges each after it is written."""

    def __init__(self, client: Client, file: BinaryIO, path: Path) -> None:
        self._client = client
        self._path = path
        self._file = file
        self._came = asyncio.Event()
        self._end: Msg | None = None
        self._problem: OSError | None = None
        #: written since they were last counted
        self._bytes = 0

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
        self._bytes += len(msg.data)
        if msg.reply:
            await self._client.publish(msg.reply)

    async def finished(self, moved: Callable[[int], None]) -> None:
        """Wait for the end of the backup; `moved` gets the bytes that were written. Raises Failure."""
        while self._end is None and self._problem is None:
            try:
                await asyncio.wait_for(self._came.wait(), IDLE_S)
            except TimeoutError:
                raise Failure(f"the server sent nothing for {IDLE_S:.0f} s") from None
            self._came.clear()
            moved(self._bytes)
            self._bytes = 0
        # Also when the end came meanwhile: the archive would lack a chunk.
        if self._problem is not None:
            raise _cannot_write(self._path, self._problem)
        assert self._end is not None, "waited for"
        headers = self._end.headers or {}
        status = headers.get("Status", "204")
        if status != "204":
            raise Failure(f"the backup is not complete: {status} {headers.get('Description', '')}".strip())


@click.command()
@click.argument("folder", type=FilePath(exists=True, file_okay=False))
@click.option(
    "--config",
    "file_of_config",
    type=FilePath(exists=True, dir_okay=False),
    metavar="FILE",
    help="JSON of the configuration that it is to have, of the same name",
)
@click.option("--replicas", type=at_least(1), metavar="N", help="copies in a cluster")
@progress_option
@click.pass_obj
def restore(target: Target, folder: Path, file_of_config: Path | None, replicas: int | None, shows: bool) -> None:
    """Restore a stream from the backup in FOLDER."""
    try:
        with Folder(folder) as files:
            with files.read(META) as file:
                meta = msgspec.json.decode(file.read(), type=dict[str, dict[str, Any]])
            name = meta["config"]["name"]
            if not isinstance(name, str):
                raise Failure(f"{folder / META} is malformed: the stream's name is not a string")
            config = meta["config"] if file_of_config is None else config_in(file_of_config, "a stream's configuration")
            if config.get("name") != name:
                raise Failure(f"{file_of_config}: the backup is of the stream {name}: a restore cannot rename it")
            if replicas is not None:
                config["num_replicas"] = replicas
            body = {"config": config, "state": meta["state"]}
            with files.read(DATA) as file:
                answer = target.with_client(lambda client: _give(target, client, name, body, file, shows=shows))
    except FileNotFoundError as error:
        raise Failure(f"{folder} is not a backup: it has no {Path(error.filename).name}") from error
    except OSError as error:
        raise Failure(f"{error.filename or folder}: {error.strerror or error}") from error
    except msgspec.MsgspecError as error:
        raise Failure(f"{folder / META} is malformed: {error}") from error
    except KeyError as error:
        raise Failure(f"{folder / META} is malformed: it lacks {error}") from error
    state = answer["state"]
    if target.as_json:
        print_json({"stream": name, "state": state})
    else:
        console.print(
            f"{name}: {counted(state['messages'], 'message')}, {counted(state['consumer_count'], 'consumer')}"
        )


async def _give(
    target: Target, client: Client, name: str, body: dict[str, Any], file: BinaryIO, *, shows: bool
) -> dict[str, Any]:
    begun = await ask(target, client, f"STREAM.RESTORE.{name}", body)
    subject = begun["deliver_subject"]
    with progress(name, os.fstat(file.fileno()).st_size, shows=shows) as moved:
        while chunk := file.read(CHUNK_BYTES):
            said = await client.request(subject, chunk, timeout=IDLE_S)
            if said.data:
                answer_of(said.data)
            moved(len(chunk))
    return answer_of((await client.request(subject, b"", timeout=COMPLETE_S)).data)
