"""Failures of an Iceberg catalog in one line that names the catalog: a database that is full, a server that does not answer.

pyiceberg passes on what its libraries raise. What the jobs act on (another commit came in between, there is no such
table yet) passes unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

import pydantic
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
    ValidationException,
)
from requests.exceptions import RequestException, Timeout
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from eyot_hub.errors import HubError
from eyot_hub.jobs.tables.table_format import Fenced

TEXT_MAX: Final = 300  # of an answer, which may be a page of HTML


class CatalogFailed(HubError):
    """The catalog did not do what it was asked for. A retry may help."""


@contextmanager
def catalog_errors(catalog: Catalog) -> Iterator[None]:
    """Raise the failures of an opened catalog as CatalogFailed, and a refused commit as Fenced."""
    with errors_of(catalog.properties.get("uri", "")):
        yield


@contextmanager
def errors_of(uri: str) -> Iterator[None]:
    """Raise the failures of the catalog at this address as CatalogFailed, and a refused commit as Fenced."""
    try:
        yield
    except (CommitFailedException, ValidationException) as error:
        raise Fenced(f"{place(uri)}: {error}") from error
    except (
        SQLAlchemyError,
        RESTError,
        RequestException,
        NoSuchTableError,
        NoSuchNamespaceError,
        pydantic.ValidationError,
    ) as error:
        raise CatalogFailed(f"{place(uri)}: {_said(error)}") from error


def place(uri: str) -> str:
    """Return how errors name the catalog, without a password."""
    if uri.startswith(("http://", "https://")):
        parts = urlsplit(uri)
        return f"catalog {parts._replace(netloc=parts.netloc.rpartition('@')[2], query='').geturl()}"
    try:
        return f"catalog {make_url(uri).set(query={})!r}"
    except SQLAlchemyError:
        return "the catalog"


def _said(error: Exception) -> str:
    """Return the failure's own words."""
    if isinstance(error, DBAPIError) and error.orig is not None:
        return _line(str(error.orig))
    if isinstance(error, Timeout):
        return "no answer in time"
    if isinstance(error, RequestException):
        return _line(_system_words(error) or str(error))
    if isinstance(error, pydantic.ValidationError):
        return f"its answer is none of an Iceberg catalog ({error.title})"
    if isinstance(error, CommitStateUnknownException):
        return f"{_line(str(error))}; the commit may have been made, which the next start finds"
    return _line(str(error) or type(error).__name__)


def _line(text: str) -> str:
    lines = text.strip().splitlines() or [""]
    return lines[0] if len(lines[0]) <= TEXT_MAX else f"{lines[0][:TEXT_MAX]}..."


def _system_words(error: BaseException) -> str:
    """Return what the system said about a connection; "": nothing."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return ""
