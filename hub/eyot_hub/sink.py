"""The sink: rows become messages, each with a `Nats-Msg-Id`, so that a repeated task publishes nothing twice.

Columns: `subject` (or the option of that name), `payload` (binary or string; null is an empty payload), and optionally
`headers` (map of string to string) and `msg_id` (string). Without `msg_id`, the id is made from the job, the task, the
row's content and the number of equal rows before it, all of which repeat with the task. The job is the query and its
batch. In a batch write every `save()` is a job of its own, unless the option `job` names it: then messages that a job
of that name wrote before are not written again.

The stream drops duplicates within its duplicate window (2 minutes unless configured): a later retry is stored twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, MapType, NullType, StringType, StructType

from eyot_hub.errors import HubError, OptionError
from eyot_hub.options import SinkOptions
from eyot_hub.publisher import EXPECTED_STREAM, MSG_ID, Publisher
from eyot_wire import headers
from eyot_wire import subject as subjects
from eyot_wire.nuid import nuid

_COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "subject": (StringType,),
    "payload": (BinaryType, StringType),
    "headers": (MapType,),
    "msg_id": (StringType,),
}


class Published(WriterCommitMessage):
    """The result of one task."""

    def __init__(self, stored: int, duplicates: int) -> None:
        self.stored = stored
        self.duplicates = duplicates


class JetStreamWriter(DataSourceArrowWriter):
    """Writer of batch queries."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._job = options.job or nuid()  # chosen on the driver, once for all tasks and their retries
        check_schema(schema, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return publish_rows(self._options, self._job, iterator)


class JetStreamStreamWriter(DataSourceStreamArrowWriter):
    """Writer of streaming queries; a repeated micro-batch publishes nothing twice."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        check_schema(schema, options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return publish_rows(self._options, self._options.job or "", iterator)


def check_schema(schema: StructType, options: SinkOptions) -> None:
    """Check that the columns can be published. Raises OptionError or HubError."""
    have = {field.name: field.dataType for field in schema.fields}
    for name, kind in have.items():
        if name not in _COLUMNS:
            raise HubError(f"column '{name}' is not one of the sink's: {', '.join(_COLUMNS)}")
        if not isinstance(kind, _COLUMNS[name]):
            wanted = " or ".join(one.typeName() for one in _COLUMNS[name])
            raise HubError(f"column '{name}' has type {kind.simpleString()}; it must be {wanted}")
        if isinstance(kind, MapType) and not isinstance(kind.valueType, StringType | NullType):
            raise HubError(f"column '{name}' has type {kind.simpleString()}; its values must be strings")
    if "payload" not in have:
        raise HubError("column 'payload' is missing")
    if ("subject" in have) == (options.subject is not None):
        problem = (
            "is missing, and so is the column"
            if "subject" not in have
            else "and a column of that name exclude each other"
        )
        raise OptionError("subject", problem)


def publish_rows(options: SinkOptions, job: str, batches: Iterator[pa.RecordBatch]) -> Published:
    """Publish all rows of one task, and wait for every acknowledgement."""
    publisher = Publisher(options.connect, options.max_in_flight)
    ids = _Ids(job)
    try:
        for batch in batches:
            for row in batch.to_pylist():
                _publish(publisher, options, ids, row)
        publisher.flush()
    finally:
        publisher.close()
    return Published(publisher.stored, publisher.duplicates)


def _publish(publisher: Publisher, options: SinkOptions, ids: _Ids, row: dict[str, Any]) -> None:
    target = options.subject or row["subject"]
    if target is None or not subjects.is_literal(target.encode()):
        raise HubError(f"column 'subject' holds {target!r}, which is not a valid subject")
    body = row["payload"] or b""
    payload = body.encode() if isinstance(body, str) else body
    fields = [(str(name), value or "") for name, value in row.get("headers") or () if name != MSG_ID]
    for name, value in fields:
        if not name or set(name) & set(":\r\n") or set(value) & set("\r\n"):
            raise HubError(f"column 'headers' holds a name or value that cannot be a header: {name!r}")
    given = row.get("msg_id")
    fields.append((MSG_ID, given if given else ids.next(target, payload, fields)))
    if options.expect_stream:
        fields.append((EXPECTED_STREAM, options.expect_stream))
    publisher.publish(target.encode(), headers.build(fields=fields), payload)


class _Ids:
    """Ids that repeat when the same task repeats over the same rows, in any order."""

    def __init__(self, job: str) -> None:
        context = TaskContext.get()
        self._task = job
        if context is not None:
            query = context.getLocalProperty("sql.streaming.queryId") or ""
            batch = context.getLocalProperty("streaming.sql.batchId") or ""
            parts = [job, query, batch, str(context.partitionId())]
            self._task = "/".join(parts if job else parts[1:])
        self._seen: Counter[bytes] = Counter()

    def next(self, subject: str, payload: bytes, fields: list[tuple[str, str]]) -> str:
        digest = blake2b(digest_size=16)
        for part in (self._task, subject, repr(sorted(fields))):
            digest.update(part.encode() + b"\0")
        digest.update(payload)
        key = digest.digest()
        self._seen[key] += 1
        return f"{key.hex()}-{self._seen[key]}"
