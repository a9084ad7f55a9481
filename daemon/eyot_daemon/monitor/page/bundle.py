"""The support bundle: one archive with what a person needs who helps from far away, and without secrets."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Mapping

#: Characters of a server's name that stay in the archive's name.
_OTHER = re.compile(r"[^A-Za-z0-9._-]+")
#: The fastest level that still shrinks JSON to a tenth: the archive is made between two turns.
_LEVEL = 1


def bundle_name(server_name: str, at: str) -> str:
    """Return the archive's name without extension; `at` is RFC 3339."""
    name = _OTHER.sub("-", server_name).strip("-.") or "eyot"
    return f"eyot-support-{name}-{_OTHER.sub('', at.partition('.')[0].replace(':', ''))}"


def archive(name: str, files: Mapping[str, bytes], now_s: int) -> bytes:
    """Return a gzipped tar archive with the files below a folder `name`."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=_LEVEL) as tar:
        for path, content in files.items():
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size, entry.mtime, entry.mode = len(content), now_s, 0o600
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()
