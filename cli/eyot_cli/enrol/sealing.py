"""Seals a device's key with systemd-creds: by a key of this machine, its TPM, or both. Root seals and unseals."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.private_files import write_private
from eyot_wire.quoting import printable
from eyot_wire.trust.nkey import NkeyError
from eyot_wire.trust.sealed_key import CREDENTIAL, sealed_seed

#: What systemd-creds may seal with: a key in /var/lib/systemd, the TPM, both, or what this machine has.
WITH_KEYS: Final = ("auto", "host", "tpm2", "host+tpm2")
#: Units that need the seed: the daemon logs in with it, and renewals are signed with it.
UNITS: Final = ("eyotd.service", "eyot-renew.service")
_DROP_IN: Final = "60-sealed-key.conf"
#: Where drop-ins of units are.
SYSTEMD: Final = Path("/etc/systemd/system")


def seal(seed: str, with_key: str) -> bytes:
    """Return the sealed seed. Raises Failure."""
    return _run("encrypt", f"--with-key={with_key}", f"--name={CREDENTIAL}", "-", "-", given=seed.encode())


def unseal(path: Path) -> str:
    """Return the seed of a sealed file: from systemd within a unit, else by systemd-creds, which needs root. Raises Failure."""
    try:
        return sealed_seed()
    except NkeyError:
        return unseal_file(path)


def unseal_file(path: Path) -> str:
    """Return the seed of a sealed file by systemd-creds, which needs root. Raises Failure."""
    return _run("decrypt", f"--name={CREDENTIAL}", str(path), "-").decode("utf-8", "replace").strip()


def write_drop_ins(path: Path) -> list[Path]:
    """Have systemd give the seed to the units that need it; return the files. Raises Failure."""
    made = []
    for unit in UNITS:
        drop_in = SYSTEMD / f"{unit}.d" / _DROP_IN
        drop_in.parent.mkdir(parents=True, exist_ok=True)
        text = f"# Made by `eyot enrol --seal`.\n[Service]\nLoadCredentialEncrypted={CREDENTIAL}:{path.absolute()}\n"
        write_private(drop_in, text.encode(), mode=0o644)
        made.append(drop_in)
    systemctl = shutil.which("systemctl")
    if systemctl is not None and Path("/run/systemd/system").is_dir():
        subprocess.run([systemctl, "daemon-reload"], capture_output=True, check=False)
    return made


def _run(*words: str, given: bytes = b"") -> bytes:
    program = shutil.which("systemd-creds")
    if program is None:
        raise Failure("systemd-creds is not here: systemd seals keys from version 250 on")
    done = subprocess.run([program, *words], input=given, capture_output=True, check=False)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise Failure(f"systemd-creds {words[0]}: {printable(said[0])}: {_remedy(done.stderr)}")
    return done.stdout


def _remedy(said: bytes) -> str:
    if os.geteuid() != 0:
        return "run the command as root"
    return "see what `systemd-creds has-tpm2` says" if b"tpm" in said.lower() else "see systemd-creds(1)"
