"""A virtual machine with Debian that boots systemd, emulated in software by QEMU.

The disk is made once for each release by mmdebstrap, with Debian's kernel and initramfs, and stays in ``build/machines``. A machine
works on a copy. Commands reach it over a virtio port, where `agent.py` waits; its port 4222 is forwarded to this machine. When its power is
cut, everything that was not flushed is lost.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).parents[2]
AGENT = Path(__file__).with_name("agent.py")
INCLUDE = (
    "systemd,systemd-sysv,dbus,udev,kmod,python3,tzdata,openssl,iproute2,linux-image-cloud-amd64,initramfs-tools,zstd"
)
MEMORY_MIB = 512
DISK_MIB = 2048
#: Of the slowest case, an emulated processor that others use as well.
BOOT_S_MAX = 1800.0
COMMAND_S_MAX = 1800.0
#: How often the console is looked at meanwhile, and what systemd says there when it starts nothing more.
LOOK_EVERY_S = 10.0
NO_BOOT = "emergency mode"
PORT_NAME = "eyot.agent"

UNIT = f"""[Unit]
Description=Runs what the test asks for
[Service]
ExecStart=/usr/bin/python3 -I /usr/local/lib/agent.py /dev/virtio-ports/{PORT_NAME}
Restart=always
[Install]
WantedBy=multi-user.target
"""
NETWORK = """[Match]
Type=ether
[Network]
Address=10.0.2.15/24
Gateway=10.0.2.2
"""
FSTAB = """/dev/vda / ext4 errors=remount-ro 0 1
/dev/vdb /srv ext4 ro 0 0
"""


class MachineError(Exception):
    """A command failed in the machine, or the machine itself did."""


def have(program: str) -> str:
    """The program's path. Raises SystemExit with the remedy."""
    found = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if found is None:
        raise SystemExit(f"{program} is missing: packaging/ensure-packages machines")
    return found


class DebianImage:
    """The disk, kernel and initramfs of one release, made when they are not there yet; as root, for files have owners."""

    def __init__(self, release: str) -> None:
        self.folder = TOP / "build/machines" / release
        self.disk = self.folder / "disk.img"
        self.kernel = self.folder / "vmlinuz"
        self.initrd = self.folder / "initrd.img"
        if not (self.folder / ".complete").exists():
            self._make(release)

    def _make(self, release: str) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        tree = self.folder / "tree"
        settings = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True).stdout
        wanted = ("Acquire::http", "Acquire::https", "Acquire::Check", "Acquire::AllowReleaseInfoChange")
        options = self.folder / "apt.conf"
        options.write_text("".join(f"{line}\n" for line in settings.splitlines() if line.startswith(wanted)))
        shown = subprocess.run(
            ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        mirror = next(line for line in shown.splitlines() if line.endswith("/debian/"))
        command = [have("mmdebstrap"), "--quiet", "--variant=minbase", f"--aptopt={options}", f"--include={INCLUDE}"]
        done = subprocess.run([*command, release, tree, mirror], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"mmdebstrap {release}: exit code {done.returncode}\n{done.stderr[-3000:]}")
        _prepare(tree)
        for name, path in (("vmlinuz", self.kernel), ("initrd.img", self.initrd)):
            (found,) = (tree / "boot").glob(f"{name}-*")
            shutil.copyfile(found, path)
        make_ext4(self.disk, tree, DISK_MIB)
        shutil.rmtree(tree)
        (self.folder / ".complete").touch()


def _prepare(tree: Path) -> None:
    """What makes the root of mmdebstrap a machine: network, mounts, a journal that stays, and the agent."""
    (tree / "etc/hostname").write_text("gateway\n")
    (tree / "etc/hosts").write_text("127.0.0.1 localhost\n127.0.1.1 gateway\n")
    (tree / "etc/fstab").write_text(FSTAB)
    (tree / "etc/machine-id").write_text("")
    (tree / "etc/systemd/network/10-ether.network").write_text(NETWORK)
    (tree / "etc/systemd/system/agent.service").write_text(UNIT)
    (tree / "var/log/journal").mkdir(exist_ok=True)
    shutil.copyfile(AGENT, tree / "usr/local/lib/agent.py")
    wants = tree / "etc/systemd/system/multi-user.target.wants"
    for unit in ("/etc/systemd/system/agent.service", "/lib/systemd/system/systemd-networkd.service"):
        link = wants / Path(unit).name
        link.unlink(missing_ok=True)
        link.symlink_to(unit)


def make_ext4(image: Path, tree: Path, mib: int) -> None:
    """A file system with the files of `tree`."""
    image.unlink(missing_ok=True)
    subprocess.run([have("mke2fs"), "-q", "-F", "-t", "ext4", "-d", tree, image, f"{mib}M"], check=True)


class Machine:
    """One machine: `boot` and `cut_power`, `run` in between."""

    def __init__(self, folder: Path, image: DebianImage, packages: list[Path], port: int) -> None:
        """`packages` lie in /srv of the machine; `port` of this machine's loopback leads to its port 4222."""
        self.folder = folder
        self.port = port
        self._image = image
        self._disk = folder / "disk.img"
        subprocess.run(["cp", "--sparse=always", image.disk, self._disk], check=True)
        shelf = folder / "srv"
        shelf.mkdir()
        for package in packages:
            shutil.copy(package, shelf)
        size = sum(package.stat().st_size for package in packages) >> 20
        make_ext4(folder / "srv.img", shelf, size * 5 // 4 + 16)
        self._process: subprocess.Popen[bytes] | None = None
        self._agent: socket.socket | None = None
        self._received = b""

    def boot(self) -> None:
        """Start the machine and wait until systemd has started everything. Raises MachineError."""
        agent = self.folder / "agent.sock"
        agent.unlink(missing_ok=True)
        command = [have("qemu-system-x86_64"), "-accel", "tcg", "-cpu", "max"]
        command += ["-m", str(MEMORY_MIB), "-smp", "1", "-nographic", "-nodefaults", "-no-reboot", "-serial", "stdio"]
        command += ["-kernel", str(self._image.kernel), "-initrd", str(self._image.initrd)]
        # On a busy machine udev needs longer than systemd's 90 s until it knows of a disk; Debian 12's systemd has one time for all.
        waits = ("systemd.default_timeout_start_sec", "systemd.default_device_timeout_sec")
        patience = " ".join(f"{name}={BOOT_S_MAX:.0f}" for name in waits)
        command += ["-append", f"root=/dev/vda rw console=ttyS0 quiet panic=-1 {patience}"]
        command += ["-drive", f"file={self._disk},if=virtio,format=raw,cache=writeback"]
        command += ["-drive", f"file={self.folder / 'srv.img'},if=virtio,format=raw,readonly=on"]
        command += ["-netdev", f"user,id=n,restrict=on,hostfwd=tcp:127.0.0.1:{self.port}-:4222"]
        command += ["-device", "virtio-net-pci,netdev=n", "-device", "virtio-serial", "-device", "virtio-rng-pci"]
        command += ["-chardev", f"socket,id=a,path={agent},server=on,wait=off"]
        command += ["-device", f"virtserialport,chardev=a,name={PORT_NAME}"]
        with (self.folder / "console").open("ab") as console:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=console, stderr=console)
        deadline = time.monotonic() + BOOT_S_MAX
        self._agent = socket.socket(socket.AF_UNIX)
        while True:
            try:
                self._agent.connect(str(agent))
                break
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise MachineError(f"the machine does not start: {self.console()}") from None
                time.sleep(0.1)
        self._received = b""
        self.try_run("systemctl is-system-running --wait", BOOT_S_MAX)

    def try_run(self, command: str, timeout_s: float = COMMAND_S_MAX) -> tuple[int, str]:
        """Run a shell command; return its exit status and what it printed."""
        assert self._agent is not None
        deadline = time.monotonic() + timeout_s
        self._agent.settimeout(LOOK_EVERY_S)
        self._agent.sendall(json.dumps(command).encode() + b"\n")
        while b"\n" not in self._received:
            try:
                data = self._agent.recv(65536)
            except TimeoutError:
                if time.monotonic() < deadline and NO_BOOT not in self.console():
                    continue
                raise MachineError(f"{command}: no answer\n{self.console()}") from None
            except OSError as error:
                raise MachineError(f"{command}: {error}\n{self.console()}") from error
            if not data:
                raise MachineError(f"{command}: the machine has ended\n{self.console()}")
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        code, text = json.loads(line)
        return code, text

    def run(self, command: str) -> str:
        """Run a shell command; return what it printed. Raises MachineError when it fails."""
        code, text = self.try_run(command)
        if code != 0:
            raise MachineError(f"{command}: exit status {code}\n{text}")
        return text

    def begin(self, command: str) -> None:
        """Start a shell command, and do not wait for it."""
        self.run(f"systemd-run --quiet --collect --unit=begun-{time.monotonic_ns()} bash -c {_quoted(command)}")

    def cut_power(self) -> None:
        """End the machine at once: what its kernel has not flushed is lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._agent is not None:
            self._agent.close()
            self._agent = None

    def console(self) -> str:
        """The last lines of the console."""
        with contextlib.suppress(OSError):
            return (self.folder / "console").read_text(errors="replace")[-3000:]
        return ""


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


@contextlib.contextmanager
def running(folder: Path, image: DebianImage, packages: list[Path], port: int) -> Iterator[Machine]:
    """A machine that has booted; its power is cut at the end."""
    machine = Machine(folder, image, packages, port)
    try:
        machine.boot()
        yield machine
    finally:
        machine.cut_power()
