"""A virtual machine that runs eyotd on a disk of its own, made of this machine's Python and Debian's kernel.

Nothing is installed but QEMU and busybox; the kernel is unpacked, not installed. The root disk is read-only and holds the
interpreter, the project and what it needs; the data disk is ext4 and all that outlives a boot.
"""

from __future__ import annotations

import contextlib
import gzip
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
OURS = ("wire", "serving", "store", "sync", "daemon")
KERNEL = "linux-image-cloud-amd64"
MODULES = (
    "virtio_ring",
    "virtio",
    "virtio_pci_modern_dev",
    "virtio_pci_legacy_dev",
    "virtio_pci",
    "virtio_blk",
    "failover",
    "net_failover",
    "virtio_net",
)
INIT = """#!/bin/busybox sh
export PATH=/bin
for module in {modules}; do [ -f /modules/$module.ko ] && busybox insmod /modules/$module.ko; done
busybox mount -t devtmpfs dev /dev
busybox mount -t ext4 -o ro /dev/vda /disk
busybox mount -t ext4 /dev/vdb /disk/data || exec busybox poweroff -f
busybox mount -t proc proc /disk/proc
busybox mount -t tmpfs tmp /disk/tmp
busybox mount -t devtmpfs dev /disk/dev
busybox ifconfig lo 127.0.0.1 up
busybox ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up
exec busybox chroot /disk {python} -m eyot_daemon.main -c /eyotd.conf
"""
CONF = """
listen: 0.0.0.0:4222
jetstream {{
    store_dir: "/data"
    {more}
}}
"""


def have(program: str) -> str:
    found = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if found is None:
        raise SystemExit(f"{program} is missing: apt-get install qemu-system-x86 busybox-static e2fsprogs")
    return found


class Machine:
    """A machine built once in `folder`; `boot` runs it until its power is cut."""

    def __init__(self, folder: Path, more: str = "") -> None:
        self.folder = folder
        self._kernel = self._unpack_kernel()
        self._initrd = self._make_initrd()
        self._root = self._make_root(more)
        self.data = folder / "data.img"
        subprocess.run([have("mke2fs"), "-q", "-F", "-t", "ext4", self.data, "256M"], check=True)

    @contextlib.contextmanager
    def boot(self, port: int) -> Iterator[subprocess.Popen[bytes]]:
        """A running machine whose broker is at ``port``; whatever happens, it is killed at the end."""
        command = [have("qemu-system-x86_64"), "-accel", "tcg", "-m", "512", "-nographic", "-no-reboot", "-nodefaults"]
        command += ["-serial", "stdio", "-kernel", str(self._kernel), "-initrd", str(self._initrd)]
        command += ["-append", "console=ttyS0 quiet panic=-1 no_timer_check mitigations=off"]
        command += ["-drive", f"file={self._root},if=virtio,format=raw,readonly=on"]
        command += ["-drive", f"file={self.data},if=virtio,format=raw,cache=writeback"]
        command += ["-netdev", f"user,id=n,hostfwd=tcp:127.0.0.1:{port}-:4222", "-device", "virtio-net-pci,netdev=n"]
        with (self.folder / "console").open("ab") as console:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=console, stderr=console)
            try:
                yield process
            finally:
                process.kill()
                process.wait()

    def take_out_store(self, to: Path) -> Path:
        """What is on the data disk, after the file system's own recovery; the disk itself is left as it was."""
        copy = self.folder / "copy.img"
        shutil.copyfile(self.data, copy)
        checked = subprocess.run([have("e2fsck"), "-p", copy], capture_output=True, text=True, check=False)
        if checked.returncode not in (0, 1):
            raise AssertionError(f"the file system is damaged: {checked.stdout}{checked.stderr}")
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir()
        subprocess.run([have("debugfs"), "-R", f"rdump /eyot {to}", copy], check=True, capture_output=True)
        copy.unlink()
        return to / "eyot"

    # -- building --------------------------------------------------------------------------------------------------------

    def _unpack_kernel(self) -> Path:
        shown = subprocess.run(["apt-cache", "depends", KERNEL], capture_output=True, text=True, check=True).stdout
        package = re.findall(r"Depends: (linux-image-\S+)", shown)[0]
        subprocess.run(["apt-get", "download", "-qq", package], cwd=self.folder, check=True, capture_output=True)
        [deb] = self.folder.glob("linux-image-*.deb")
        subprocess.run(["dpkg", "-x", deb, self.folder / "kernel"], check=True)
        [image] = (self.folder / "kernel" / "boot").glob("vmlinuz-*")
        return image

    def _make_initrd(self) -> Path:
        tree = self.folder / "initrd"
        for name in ("bin", "dev", "modules", "disk"):
            (tree / name).mkdir(parents=True)
        shutil.copy2(have("busybox"), tree / "bin" / "busybox")
        for module in (self.folder / "kernel" / "lib" / "modules").rglob("*.ko"):
            if module.stem in MODULES:
                shutil.copy2(module, tree / "modules")
        init = tree / "init"
        init.write_text(INIT.format(modules=" ".join(MODULES), python=Path(sys.base_prefix) / "bin" / "python3"))
        init.chmod(0o755)
        names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
        packed = subprocess.run(
            [have("busybox"), "cpio", "-o", "-H", "newc"],
            input=names.encode() + b"\n",
            cwd=tree,
            capture_output=True,
            check=True,
        ).stdout
        initrd = self.folder / "initrd.gz"
        initrd.write_bytes(gzip.compress(packed, 1))
        return initrd

    def _make_root(self, more: str) -> Path:
        tree = self.folder / "tree"
        for name in ("data", "proc", "tmp", "dev", "etc"):
            (tree / name).mkdir(parents=True)
        (tree / "eyotd.conf").write_text(CONF.format(more=more))
        (tree / "etc" / "passwd").write_text("root:x:0:0::/:/bin/false\n")
        _copy_python(tree)
        _copy_libraries(tree)
        size = sum(path.stat().st_size + 4096 for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
        image = self.folder / "root.img"
        subprocess.run(
            [have("mke2fs"), "-q", "-F", "-t", "ext4", "-d", tree, image, f"{size * 5 // 4 // 1024 + 16384}k"],
            check=True,
        )
        return image


def _copy_python(tree: Path) -> None:
    """The interpreter, its library, the project and the packages it needs, where they are here."""
    base = Path(sys.base_prefix)
    library = Path(sysconfig.get_path("stdlib", vars={"installed_base": str(base), "base": str(base)}))
    unwanted = shutil.ignore_patterns(
        "test", "tests", "idlelib", "site-packages", "dist-packages", "ensurepip", "tkinter"
    )
    shutil.copytree(library, _inside(tree, library), ignore=unwanted, symlinks=True)
    (_inside(tree, base) / "bin").mkdir(parents=True, exist_ok=True)
    shutil.copy2(base / "bin" / f"python3.{sys.version_info.minor}", _inside(tree, base) / "bin" / "python3")
    packages = _inside(tree, library) / "site-packages"
    packages.mkdir()
    for name in OURS:
        [package] = (ROOT / name).glob("eyot_*/__init__.py")
        shutil.copytree(package.parent, packages / package.parent.name, ignore=shutil.ignore_patterns("*.pyx"))
    for name in sorted(_needed()):
        distribution = importlib.metadata.distribution(name)
        for file in distribution.files or ():
            if ".." not in file.parts:
                target = packages / file
                target.parent.mkdir(parents=True, exist_ok=True)
                with contextlib.suppress(FileNotFoundError):
                    shutil.copy2(distribution.locate_file(file), target)


def _needed() -> set[str]:
    """Distributions that the project needs on a device, and what they need."""
    listed = (ROOT / "pyproject.toml").read_text().split("dependencies = [", 1)[1].split("]", 1)[0]
    todo = re.findall(r'"([A-Za-z0-9_.-]+)', listed)
    found: set[str] = set()
    while todo:
        name = todo.pop().lower().replace("_", "-")
        if name in found:
            continue
        try:
            wanted = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # of another platform or Python
        found.add(name)
        todo += [re.split(r"[^A-Za-z0-9_.-]", each)[0] for each in wanted if "extra ==" not in each]
    return found


def _copy_libraries(tree: Path) -> None:
    """The shared libraries of every program and module in the tree."""
    programs = [path for path in tree.rglob("*") if path.is_file() and (".so" in path.name or path.name == "python3")]
    wanted: set[str] = set()
    for program in programs:
        shown = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
        wanted.update(re.findall(r"(/\S+) \(0x", shown))
    for name in wanted:
        library = Path(name)
        if not library.is_relative_to(tree):
            target = _inside(tree, library)
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                shutil.copy2(library.resolve(), target)


def _inside(tree: Path, path: Path) -> Path:
    return tree / path.relative_to("/")
