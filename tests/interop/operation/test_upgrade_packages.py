"""`eyot upgrade`: packages in a bucket of a hub, mirrored over the leaf link, verified on the device."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import nats
import pytest
from nats.js import JetStreamContext

from eyot_cli.main import main
from eyot_cli.upgrade import device as device_module
from eyot_cli.upgrade.install.rules import open_signed, pinned_keys
from support.devices.debian_package import make_dpkg, make_package
from support.links.leaf_pair import LeafPair
from support.servers.server_process import ServerProcess

WAIT_S = 60
VERSION = "0.3.0+deb12"
NAME = f"eyot_{VERSION}_amd64.deb"
#: More than one chunk of an object (128 KiB).
CONTENT = bytes(range(256)) * 2000


class Done(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    error: str


class Fleet:
    """A hub with a bucket, a device with a mirror of it, a signing key, and the key that the device pinned."""

    def __init__(self, pair: LeafPair, folder: Path, bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.hub, self.leaf = pair.hub, pair.leaf
        self.folder, self.bucket, self._capsys = folder, bucket, capsys
        self.pinned, self.output, self.key = folder / "pinned", folder / "output", folder / "release.key"
        for each in (self.pinned, self.output):
            each.mkdir(mode=0o755)
        self.does(self.hub, "upgrade", "keygen", str(self.key))
        self.key.with_name("release.key.pub").rename(self.pinned / "release.pub")
        self.does(self.hub, "object", "add", bucket)
        self.does(self.leaf, "stream", "add", f"OBJ_{bucket}", "--mirror", f"OBJ_{bucket}@hub")

    def run(self, server: ServerProcess, *words: str) -> Done:
        """Run the command here: a process for each takes most of a second."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["eyot", "-s", server.client_url("acc"), *words])
            code = main()
        return Done(code, *self._capsys.readouterr())

    def does(self, server: ServerProcess, *words: str) -> str:
        done = self.run(server, *words)
        assert (done.code, done.error) == (0, ""), words
        return done.out

    def publish(self, package: Path, *options: str, key: Path | None = None) -> Any:
        """Sign and publish; return what the command printed when the device's mirror has everything."""
        self.does(self.hub, "upgrade", "sign", str(package), "--key", str(key or self.key), *options)
        said = self.does(self.hub, "upgrade", "publish", self.bucket, str(package), "--json")
        self.await_mirror()
        return json.loads(said)

    def fetch(self, *options: str) -> Done:
        words = ("--ring", "field", "--keys", str(self.pinned), "-O", str(self.output), *options)
        return self.run(self.leaf, "upgrade", "fetch", self.bucket, *words)

    def await_mirror(self) -> None:
        """Wait until the device has the last message of the hub's bucket."""
        expected = self.ask(self.hub, lambda js: js.stream_info(f"OBJ_{self.bucket}")).state.last_seq
        deadline = time.monotonic() + WAIT_S
        while self.ask(self.leaf, lambda js: js.stream_info(f"OBJ_{self.bucket}")).state.last_seq < expected:
            assert time.monotonic() < deadline, "the mirror does not get everything"
            time.sleep(0.02)

    def ask(self, server: ServerProcess, action: Callable[[JetStreamContext], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            client = await nats.connect(server.client_url("acc"), allow_reconnect=False)
            try:
                return await action(client.jetstream(timeout=30))
            finally:
                await client.close()

        return asyncio.run(run())

    def nothing(self, why: str) -> None:
        """Nothing is to be installed, for this one reason."""
        done = self.fetch("--json")
        assert (done.code, done.error) == (3, "")
        said = json.loads(done.out)
        assert (said["installed"], said["version"], said["file"]) == ("0.2.0+deb12", None, None)
        (refused,) = said["refused"]
        assert refused["name"] == NAME
        assert why in refused["why"]
        assert list(self.output.iterdir()) == []

    def fails(self, why: str) -> None:
        """The package is not what was signed, or not all here: nothing of it stays."""
        done = self.fetch()
        assert (done.code, done.out) == (1, "")
        assert why in done.error
        assert list(self.output.iterdir()) == []


def interrupted_at(number: int) -> Callable[..., Awaitable[Any]]:
    """Return `JetStreamContext.publish` which sends SIGINT with this message, and waits."""
    publish, sent = JetStreamContext.publish, itertools.count(1)

    async def publish_until(context: JetStreamContext, *arguments: Any, **options: Any) -> Any:
        acknowledgement = await publish(context, *arguments, **options)
        if next(sent) == number:
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(WAIT_S)
        return acknowledgement

    return publish_until


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LeafPair]:
    with LeafPair("eyotd", "eyotd", tmp_path_factory.mktemp("pair")) as made:
        yield made


@pytest.fixture
def fleet(
    pair: LeafPair,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Fleet:
    """A bucket of its own for each test; the device is amd64 in the ring `field`, with 0.2.0 installed."""
    make_dpkg(tmp_path / "bin", "0.2.0+deb12")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    release = tmp_path / "os-release"
    release.write_text('VERSION_ID="12"\n')
    monkeypatch.setattr(device_module, "OS_RELEASE", release)
    return Fleet(pair, tmp_path, str(request.node.name)[:40].replace("[", "_").replace("]", ""), capsys)


def test_a_package_reaches_the_devices_ring_by_ring(fleet: Fleet) -> None:
    package = make_package(fleet.folder, VERSION, content=CONTENT)
    assert fleet.publish(package, "--ring", "canary")["package_sent"] is True
    fleet.nothing("it is open to canary, the device is in field")
    opened = fleet.publish(package, "--ring", "canary", "--ring", "field")
    assert (opened["package_sent"], opened["rings"]) == (False, ["canary", "field"])
    done = fleet.fetch("--json")
    assert (done.code, done.error) == (0, "")
    assert json.loads(done.out)["version"] == VERSION
    fetched, signed = sorted(fleet.output.iterdir())
    assert (fetched.name, fetched.read_bytes()) == (NAME, package.read_bytes())
    # The root part of the upgrade reads it without a module of the package.
    assert signed.name == f"{NAME}.signed"
    assert open_signed(signed.read_bytes(), pinned_keys(fleet.pinned)).file_name == NAME
    (listed,) = json.loads(fleet.does(fleet.leaf, "upgrade", "ls", fleet.bucket, "--keys", str(fleet.pinned), "--json"))
    assert (listed["name"], listed["package_stored"], listed["verified"]) == (NAME, True, True)
    text = fleet.does(fleet.hub, "upgrade", "ls", fleet.bucket)
    assert "canary, field" in text
    assert "(not verified)" in text


def test_what_broken_puts_left_is_removed(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a put that was killed: later, since it may still be under way. An interrupted one removes its chunks by itself."""
    package = make_package(fleet.folder, VERSION, content=CONTENT)

    async def leave(js: JetStreamContext) -> None:
        for _ in range(3):
            await js.publish(f"$O.{fleet.bucket}.C.KILLED", b"chunk")
        await js.publish(f"$O.{fleet.bucket}.M.x", b"no record")

    async def chunks(js: JetStreamContext) -> dict[str, int]:
        state = (await js.stream_info(f"OBJ_{fleet.bucket}", subjects_filter=f"$O.{fleet.bucket}.C.>")).state
        return state.subjects or {}

    async def forget(js: JetStreamContext) -> None:
        await js.purge_stream(f"OBJ_{fleet.bucket}", subject=f"$O.{fleet.bucket}.M.x")

    fleet.ask(fleet.hub, leave)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a program of its own
    try:
        with monkeypatch.context() as patch:  # the second chunk is not acknowledged before SIGINT
            patch.setattr("nats.js.JetStreamContext.publish", interrupted_at(2))
            assert fleet.run(fleet.hub, "object", "put", fleet.bucket, str(package)).code == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert list(fleet.ask(fleet.hub, chunks).values()) == [3]
    removed = fleet.publish(package, "--ring", "field")["chunks_removed"]
    monkeypatch.setattr("eyot_cli.upgrade.leftovers.ENDED_AFTER", timedelta())
    beside_no_record = fleet.publish(package, "--ring", "field")["chunks_removed"]
    fleet.ask(fleet.hub, forget)
    assert (removed, beside_no_record) == (0, 0)
    assert fleet.publish(package, "--ring", "field")["chunks_removed"] == 3
    assert len(fleet.ask(fleet.hub, chunks)) == 2
    assert fleet.fetch().code == 0


def test_what_another_key_signed_is_not_installed(fleet: Fleet) -> None:
    other = fleet.folder / "other.key"
    fleet.does(fleet.hub, "upgrade", "keygen", str(other))
    fleet.publish(make_package(fleet.folder, VERSION), "--ring", "field", key=other)
    fleet.nothing("which is not pinned here")
    listed = fleet.does(fleet.hub, "upgrade", "ls", fleet.bucket, "--keys", str(fleet.pinned))
    assert "refused: it is signed by the key" in listed


def test_a_package_that_was_exchanged_in_the_bucket_is_not_installed(fleet: Fleet) -> None:
    package = make_package(fleet.folder, VERSION, content=CONTENT)
    fleet.publish(package, "--ring", "field")
    exchanged = bytearray(package.read_bytes())
    exchanged[-1] ^= 1

    async def exchange(js: JetStreamContext) -> None:
        await (await js.object_store(fleet.bucket)).put(NAME, bytes(exchanged))

    fleet.ask(fleet.hub, exchange)
    fleet.await_mirror()
    fleet.fails("is not the package that was signed")
    again = fleet.run(fleet.hub, "upgrade", "publish", fleet.bucket, str(package))
    assert again.code == 1
    assert f"{fleet.bucket} has another {NAME}" in again.error


def test_a_package_that_is_longer_than_signed_is_not_read(fleet: Fleet) -> None:
    package = make_package(fleet.folder, VERSION, content=CONTENT)
    fleet.publish(package, "--ring", "field")

    async def lengthen(js: JetStreamContext) -> None:
        await (await js.object_store(fleet.bucket)).put(NAME, package.read_bytes() + b"more")

    fleet.ask(fleet.hub, lengthen)
    fleet.await_mirror()
    fleet.fails("bytes, expected are")


def test_a_package_that_is_not_all_here_is_waited_for(fleet: Fleet) -> None:
    package = make_package(fleet.folder, VERSION, content=CONTENT)
    fleet.publish(package, "--ring", "field")
    # The bucket's first message is the package's first chunk.
    fleet.ask(fleet.leaf, lambda js: js.delete_msg(f"OBJ_{fleet.bucket}", 1))
    fleet.fails(f"of {package.stat().st_size} bytes of {NAME} are here: wait for the mirror")


def test_a_manifest_under_another_name_is_not_read(fleet: Fleet) -> None:
    package = make_package(fleet.folder, "0.4.0+deb12")
    fleet.does(fleet.hub, "upgrade", "sign", str(package), "--key", str(fleet.key), "--ring", "field")
    signed = Path(f"{package}.signed").read_bytes()

    async def misname(js: JetStreamContext) -> None:
        await (await js.object_store(fleet.bucket)).put(f"{NAME}.signed", signed)

    fleet.ask(fleet.hub, misname)
    fleet.await_mirror()
    fleet.nothing("it is the manifest of eyot_0.4.0+deb12_amd64.deb")


def test_what_is_deleted_at_the_hub_is_not_installed(fleet: Fleet) -> None:
    fleet.publish(make_package(fleet.folder, VERSION, content=CONTENT), "--ring", "field")
    fleet.does(fleet.hub, "object", "del", fleet.bucket, NAME, "--force")
    fleet.await_mirror()
    fleet.fails(f"{NAME} is signed but not in {fleet.bucket}")
    fleet.does(fleet.hub, "object", "del", fleet.bucket, f"{NAME}.signed", "--force")
    fleet.await_mirror()
    done = fleet.fetch("--json")
    assert (done.code, json.loads(done.out)["refused"]) == (3, [])


def test_objects_that_are_nothing_of_an_upgrade_are_passed_over(fleet: Fleet) -> None:
    """Whoever may write into the bucket can stop no upgrade by what lies beside it."""
    package = make_package(fleet.folder, VERSION, content=CONTENT)

    async def litter(js: JetStreamContext) -> None:
        bucket = await js.object_store(fleet.bucket)
        await bucket.put("notes.txt", b"text")
        await bucket.put("a.signed", b'{"x": ' + b"[" * 50_000)
        await bucket.put("b.signed", b"x" * 70_000)
        for number, record in enumerate((b"text", b'{"x": ' + b"[" * 100_000, b'{"name": "c.signed", "nuid": "*"}')):
            await js.publish(f"$O.{fleet.bucket}.M.odd{number}", record)

    fleet.ask(fleet.hub, litter)
    fleet.publish(package, "--ring", "field")
    done = fleet.fetch("--json")
    assert (done.code, done.error) == (0, "")
    said = json.loads(done.out)
    assert said["version"] == VERSION
    reasons = {each["name"]: each["why"] for each in said["refused"]}
    assert set(reasons) == {"a", "b", "c"}
    assert "no signed manifest" in reasons["a"]
    assert "70000 bytes, expected are 65536 at most" in reasons["b"]
    assert "no valid id" in reasons["c"]


def test_what_a_power_cut_left_goes(fleet: Fleet) -> None:
    package = make_package(fleet.folder, VERSION, content=CONTENT)
    fleet.publish(package, "--ring", "field")
    (fleet.output / f"{NAME}.part-1").write_bytes(b"half")
    assert fleet.fetch().code == 0
    assert sorted(each.name for each in fleet.output.iterdir()) == [NAME, f"{NAME}.signed"]


def test_a_package_from_which_the_device_went_back_is_passed_over(fleet: Fleet) -> None:
    package = make_package(fleet.folder, VERSION, content=CONTENT)
    fleet.publish(package, "--ring", "field")
    refused = fleet.folder / "refused"
    done = fleet.fetch("--refused", str(refused))
    assert (done.code, done.error) == (0, "")
    for each in fleet.output.iterdir():
        each.unlink()
    refused.write_text(f"{sha256(package.read_bytes()).hexdigest()} {VERSION} the store: full\n")
    done = fleet.fetch("--refused", str(refused), "--json")
    assert (done.code, list(fleet.output.iterdir())) == (3, [])
    (why,) = json.loads(done.out)["refused"]
    assert why == {"name": NAME, "why": f"this device went back from it: {VERSION} the store: full"}


def test_an_empty_bucket_has_nothing(fleet: Fleet) -> None:
    done = fleet.fetch()
    assert (done.code, done.error) == (3, "")
    assert done.out == f"0.2.0+deb12 is installed, and {fleet.bucket} has nothing to install here\n"
    assert "none" in fleet.does(fleet.hub, "upgrade", "ls", fleet.bucket)
    assert "there is no bucket nosuch" in fleet.run(fleet.hub, "upgrade", "ls", "nosuch").error


def test_mistakes_are_named_before_anything_is_sent(fleet: Fleet) -> None:
    package = make_package(fleet.folder, VERSION)
    unsigned = fleet.run(fleet.hub, "upgrade", "publish", fleet.bucket, str(package))
    assert unsigned.code == 1
    assert f"eyot upgrade sign {package} makes it" in unsigned.error
    other = make_package(fleet.folder, "1.0", name="other")
    refused = fleet.run(fleet.hub, "upgrade", "sign", str(other), "--key", str(fleet.key), "--ring", "field")
    assert "devices install eyot only" in refused.error
    unnamed = make_package(fleet.folder, "0.5.0")
    refused = fleet.run(fleet.hub, "upgrade", "sign", str(unnamed), "--key", str(fleet.key), "--ring", "field")
    assert refused.code == 2
    assert "--release" in refused.error
    refused = fleet.run(fleet.hub, "upgrade", "sign", str(package), "--key", str(fleet.key), "--ring", "No Ring")
    assert refused.code == 2
    assert "--ring: 1 to 64 of a-z" in refused.error
    always = ("upgrade", "sign", str(package), "--key", str(fleet.key), "--ring", "field")
    for option, value, why in (
        ("--expires", "0", "at least a second"),
        ("--rollback-from", "0.0.1+deb12", f"newer than {VERSION}"),
        ("--rollback-from", "99.0", "name the whole version"),
        ("--minimum", VERSION, f"older than {VERSION}"),
    ):
        refused = fleet.run(fleet.hub, *always, option, value)
        assert refused.code == 2
        assert why in refused.error
    fleet.does(fleet.hub, "upgrade", "sign", str(package), "--key", str(fleet.key), "--ring", "field")
    package.write_bytes(make_package(fleet.folder / "output", VERSION, content=b"rebuilt").read_bytes())
    changed = fleet.run(fleet.hub, "upgrade", "publish", fleet.bucket, str(package))
    assert "is the manifest of another file" in changed.error
    assert "none" in fleet.does(fleet.hub, "upgrade", "ls", fleet.bucket)


def test_a_folder_that_others_may_change_gets_no_package(fleet: Fleet) -> None:
    fleet.publish(make_package(fleet.folder, VERSION), "--ring", "field")
    fleet.output.chmod(0o777)
    fleet.fails("others may change what is in it")
