"""A client of a schema registry's HTTP API (Confluent's, which Apicurio, Karapace and Redpanda serve, too).

Executors use it: only the standard library. A registry that cannot be reached is an error of the job, which is
repeated; a schema that the registry does not have is a defect of the row.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, urlsplit

import msgspec

from eyot_hub.errors import HubError

ANSWER_BYTES_MAX: Final = 8 * 1024 * 1024
REFERENCES_MAX: Final = 256  # schemas that one schema needs
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_NOT_FOUND: Final = 404
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"


class Reference(msgspec.Struct, frozen=True):
    """A schema that another one imports under `name`."""

    name: str
    subject: str
    version: int


class Registered(msgspec.Struct, frozen=True):
    """A schema as the registry has it; Avro is its default type."""

    schema: str
    schema_type: str = msgspec.field(default="AVRO", name="schemaType")
    references: tuple[Reference, ...] = ()


class UnknownSchema(Exception):
    """The registry has no such schema."""


@dataclass(frozen=True)
class Registry:
    """One registry. Plain values: sent to the executors; repr() shows no secrets."""

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    ca: str = ""  # path of a file with certificates, on every node
    timeout_s: float = 10.0

    def __post_init__(self) -> None:
        """Check the address. Raises ValueError."""
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("registry must be an address such as https://registry:8081")
        if "@" in parts.netloc:
            raise ValueError("registry must not hold a user or password: use user and password")
        if bool(self.user) != bool(self.password):
            raise ValueError("user and password go together")
        if self.password and parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            raise ValueError("registry must be https:// where a password is sent")

    def by_id(self, number: int, *, form: str = "") -> Registered:
        """Return a schema; `form`: `serialized` for Protobuf. Raises UnknownSchema, HubError."""
        return self._get(f"/schemas/ids/{number}", form)

    def referenced(self, schema: Registered, *, form: str = "") -> dict[str, Registered]:
        """Return the schemas that this one needs, by name, each after those that it needs itself."""
        found: dict[str, Registered] = {}
        self._collect(schema, form, found, frozenset())
        return found

    def _collect(self, schema: Registered, form: str, found: dict[str, Registered], above: frozenset[str]) -> None:
        for one in schema.references:
            if one.name in found or one.name in above:
                continue
            if len(found) + len(above) >= REFERENCES_MAX:
                raise HubError(f"a schema of {self.url} needs more than {REFERENCES_MAX} others")
            needed = self._get(f"/subjects/{quote(one.subject, safe='')}/versions/{one.version}", form)
            self._collect(needed, form, found, above | {one.name})
            found[one.name] = needed

    def _get(self, path: str, form: str) -> Registered:
        # Workers of jobs without a registry need no HTTP.
        import http.client
        import ssl
        import urllib.error
        import urllib.request

        query = f"?format={form}" if form else ""
        request = urllib.request.Request(f"{self.url.rstrip('/')}{path}{query}", headers={"Accept": _ACCEPT})
        if self.password:
            # Unredirected: another host that the registry names must not get it.
            token = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {token}")
        context = ssl.create_default_context(cafile=self.ca or None) if self.url.startswith("https") else None
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s, context=context) as answer:
                body = answer.read(ANSWER_BYTES_MAX + 1)
        except urllib.error.HTTPError as error:
            if error.code == _NOT_FOUND:
                raise UnknownSchema(path) from None
            raise HubError(f"the schema registry {self.url} answers {error.code} to {path}") from None
        except (OSError, http.client.HTTPException) as error:
            raise HubError(f"the schema registry {self.url} cannot be reached: {error}") from None
        if len(body) > ANSWER_BYTES_MAX:
            raise HubError(f"the schema registry {self.url} answers more than {ANSWER_BYTES_MAX} bytes to {path}")
        try:
            return msgspec.json.decode(body, type=Registered)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise HubError(f"the answer of the schema registry {self.url} to {path} is malformed") from None
