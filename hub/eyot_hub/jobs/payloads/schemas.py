"""Where the schemas of a silver table's payloads come from: a file, a folder, or a registry.

In a folder and in a registry schemas have numbers. Payloads then begin with a zero byte and the number of their schema
in four bytes (Confluent's wire format).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from eyot_hub.jobs.payloads.registry import Registry
from eyot_wire.digits import is_digits
from eyot_wire.quantities import counted

#: The file's suffix by format: an Avro schema, a JSON Schema, a FileDescriptorSet (`protoc --descriptor_set_out`).
SUFFIXES: Final = {"avro": ".avsc", "json": ".json", "protobuf": ".desc"}
SCHEMAS_MAX: Final = 10_000  # in a folder
SCHEMA_BYTES_MAX: Final = 8 * 1024 * 1024


class SchemaSettings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The section [silver.schema]: one of `file`, `folder` and `registry`."""

    file: str = ""
    folder: str = ""
    registry: str = ""
    message: str = ""  # Protobuf, with a file: the full name of the message
    user: str = ""
    password: str = ""
    ca: str = ""

    def source(self, form: str) -> SchemaSource:
        """Read the schemas. Raises ValueError, OSError."""
        given = [name for name in ("file", "folder", "registry") if getattr(self, name)]
        if len(given) != 1:
            raise ValueError("give one of file, folder and registry")
        if (form == "protobuf" and bool(self.file)) != bool(self.message):
            raise ValueError("message is the name of a Protobuf message, and goes together with file")
        if not self.registry and (self.user or self.password or self.ca):
            raise ValueError("user, password and ca go together with registry")
        if self.registry:
            return SchemaSource(registry=Registry(self.registry, self.user, self.password, self.ca))
        if self.folder:
            return SchemaSource(numbered=_numbered(Path(self.folder), SUFFIXES[form]))
        return SchemaSource(text=_content(Path(self.file)), message=self.message)


@dataclass(frozen=True)
class SchemaSource:
    """Plain values: sent to the executors."""

    text: bytes | None = field(default=None, repr=False)  # the one schema of all payloads
    message: str = ""
    numbered: dict[int, bytes] | None = field(default=None, repr=False)
    registry: Registry | None = None


def _numbered(folder: Path, suffix: str) -> dict[int, bytes]:
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}")
    files = {int(path.stem): path for path in folder.glob(f"*{suffix}") if is_digits(path.stem)}
    if not 0 < len(files) <= SCHEMAS_MAX:
        raise ValueError(
            f"{folder} holds {counted(len(files), 'file')} such as 1{suffix}; 1 to {SCHEMAS_MAX} are possible"
        )
    return {number: _content(path) for number, path in sorted(files.items())}


def _content(path: Path) -> bytes:
    content = path.read_bytes()
    if len(content) > SCHEMA_BYTES_MAX:
        raise ValueError(f"{path} has more than {SCHEMA_BYTES_MAX} bytes")
    return content


def json_of(text: bytes | str) -> Any:
    """Parse a schema that is JSON. Raises ValueError."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"the schema is not JSON: {error}") from None
