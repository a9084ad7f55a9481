"""The Iceberg catalog of a lake: a REST catalog, or tables of an SQL database.

Secrets and the storage's options reach pyiceberg under its own names. Metadata in local folders is flushed before a commit
names it, like the files of tasks.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from pyiceberg.catalog import AVAILABLE_CATALOGS, Catalog, CatalogType, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter
from sqlalchemy.exc import OperationalError, ProgrammingError

from eyot_hub.jobs.config.config import Lake
from eyot_hub.jobs.tables.catalog_errors import errors_of
from eyot_hub.jobs.tables.files import sync

#: pyiceberg's names of delta-rs's options.
_STORAGE: Final = {
    "AWS_ENDPOINT_URL": "s3.endpoint",
    "AWS_ACCESS_KEY_ID": "s3.access-key-id",
    "AWS_SECRET_ACCESS_KEY": "s3.secret-access-key",
    "AWS_SESSION_TOKEN": "s3.session-token",
    "AWS_REGION": "s3.region",
    "AZURE_STORAGE_ACCOUNT_NAME": "adls.account-name",
    "AZURE_STORAGE_ACCOUNT_KEY": "adls.account-key",
    "AZURE_STORAGE_SAS_TOKEN": "adls.sas-token",
}
#: How long a REST catalog may take to accept a connection, and to answer, in seconds. pyiceberg would wait for ever.
TIMEOUTS_S: Final = (10.0, 60.0)
_FILE_IO: Final = f"{__name__}.DurableFileIO"
_catalogs: dict[tuple[tuple[str, str], ...], Catalog] = {}
_opening = threading.Lock()


def catalog_of(lake: Lake) -> Catalog:
    """Return the lake's catalog, one for all of its tables in this process."""
    properties = catalog_properties(lake)
    key = tuple(sorted({**properties, "name": lake.catalog.name}.items()))
    with _opening:
        if key not in _catalogs:
            _catalogs[key] = _opened(lake.catalog.name, properties)
        return _catalogs[key]


def catalog_properties(lake: Lake) -> dict[str, str]:
    """Return the properties by which pyiceberg, and anybody who reads with it, opens the catalog."""
    catalog = lake.catalog
    storage = {_STORAGE[name]: value for name, value in lake.storage_options.items() if name in _STORAGE}
    uri = catalog.uri or f"sqlite:///{Path(lake.path).absolute()}/catalog.db"
    given = {"type": catalog.type, "uri": uri, "warehouse": catalog.warehouse}
    if "://" not in lake.path:
        given["py-io-impl"] = _FILE_IO
    return {name: value for name, value in {**storage, **given, **catalog.properties}.items() if value}


def _opened(name: str, properties: dict[str, str]) -> Catalog:
    uri = properties["uri"]
    if uri.startswith("sqlite:///") and not uri.startswith("sqlite:///file:"):
        Path(uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
    with errors_of(uri):
        try:
            return load_catalog(name, **properties)
        except (OperationalError, ProgrammingError):  # another process created the database's tables at the same time
            return load_catalog(name, **properties)


class _TimedAdapter(HTTPAdapter):
    """Ends requests that are not answered in time."""

    def send(self, request: PreparedRequest, *given: Any, **more: Any) -> Response:
        return super().send(request, *given, **{**more, "timeout": more.get("timeout") or TIMEOUTS_S})


class _TimedRestCatalog(RestCatalog):
    """A REST catalog that may be away."""

    def _create_session(self) -> Session:
        session = super()._create_session()
        for scheme in ("http://", "https://"):
            if type(session.get_adapter(scheme)) is HTTPAdapter:  # no adapter that signs requests
                session.mount(scheme, _TimedAdapter())
        return session


class _RememberingSqlCatalog(SqlCatalog):
    """An SQL catalog that parses no metadata twice: of each table it keeps the last that it read or wrote.

    Metadata names every snapshot, and each round reads it several times. A file of metadata never changes, and the
    database says which one is the present one.
    """

    def __init__(self, name: str, **properties: str) -> None:
        self._last: dict[tuple[str, ...], Table] = {}  # by the table's name
        super().__init__(name, **properties)

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        name = (*self.identifier_to_tuple(orm_table.table_namespace), orm_table.table_name)
        held = self._last.get(name)
        if held is None or held.metadata_location != orm_table.metadata_location:
            held = self._last[name] = super()._convert_orm_to_iceberg(orm_table)
        return Table(name, held.metadata, held.metadata_location, held.io, self)

    def _update_and_stage_table(self, current_table: Table | None, *given: Any) -> StagedTable:
        """As pyiceberg, but never back in time: readers refuse metadata that are older than their last snapshot."""
        staged = super()._update_and_stage_table(current_table, *given)
        if current_table is not None:
            earliest_ms = current_table.metadata.last_updated_ms
            if staged.metadata.last_updated_ms < earliest_ms:
                staged.metadata = staged.metadata.model_copy(update={"last_updated_ms": earliest_ms})
        return staged

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        made = super().commit_table(table, requirements, updates)
        self._last[table.name()] = Table(table.name(), made.metadata, made.metadata_location, table.io, self)
        return made


AVAILABLE_CATALOGS[CatalogType.SQL] = lambda name, conf: _RememberingSqlCatalog(name, **conf)
AVAILABLE_CATALOGS[CatalogType.REST] = lambda name, conf: _TimedRestCatalog(name, **conf)


class DurableFileIO(PyArrowFileIO):
    """Writes local files durably: the file and its folder are flushed when it is closed."""

    def new_output(self, location: str) -> PyArrowFile:
        scheme, netloc, path = self.parse_location(location, self.properties)
        kind = _DurableFile if scheme == "file" else PyArrowFile
        return kind(location, path, self.fs_by_scheme(scheme, netloc))


class _DurableFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> OutputStream:
        return _DurableStream(super().create(overwrite), self._path)


class _DurableStream(OutputStream):
    """A file that is whole and flushed once it is closed, or removed: a full disk must not keep what nothing names."""

    def __init__(self, stream: OutputStream, path: str) -> None:
        self._stream = stream
        self._path = path
        self._abandoned = False

    def write(self, b: bytes) -> int:
        try:
            return self._stream.write(b)
        except OSError:
            self._abandon()  # at once: whoever writes a header closes nothing when it fails
            raise

    def tell(self) -> int:
        return self._stream.tell()

    def close(self) -> None:
        if self._abandoned:
            return
        try:
            self._stream.close()
            sync(self._path)
            sync(os.path.dirname(self._path))
        except OSError:
            self._abandon()
            raise

    def _abandon(self) -> None:
        self._abandoned = True
        with suppress(OSError):
            self._stream.close()
        with suppress(OSError):
            os.unlink(self._path)

    def __enter__(self) -> OutputStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._abandon()
        self.close()


def reader_properties(lake: Lake) -> Mapping[str, str]:
    """Return the catalog's properties without what only the hub's writers need."""
    return {name: value for name, value in catalog_properties(lake).items() if value != _FILE_IO}
