"""The line that tells a person why a command or a round failed."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PythonException

from eyot_hub.causes import cause
from eyot_hub.errors import HubError

WORKER = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "worker.py", line 4327, in invoke_udf
    run_process()
    ^^^^^^^^^^^^^
{first}
During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "files.py", line 159, in _write_group
    self.writer.write_table(rows)
{last}
 SQLSTATE: 38000
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1097)
"""
FULL = "OSError: [Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device"
DELTA = "\x1b[31mGeneric LocalFileSystem error\x1b[0m\n  \x1b[31m↳\x1b[0m Unable to copy data to file\n   \x1b[31m↳\x1b[0m No space left on device\n"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PythonException(WORKER.format(first="ValueError: x\n", last=FULL)), FULL),
        (
            PythonException(WORKER.format(first="eyot_hub.errors.DataLoss: messages 1 to 3 are gone\n", last=FULL)),
            "messages 1 to 3 are gone",
        ),
        (AnalysisException("[PARSE] a mistake\nat line 1"), "[PARSE] a mistake"),
        (
            Py4JError("An error occurred while calling o65.collect.\n: java.lang.Error: x\n\tat a.b"),
            "java.lang.Error: x",
        ),
        (OSError(DELTA), "Generic LocalFileSystem error: Unable to copy data to file: No space left on device"),
        (FileNotFoundError(2, "No such file or directory", "/x"), "/x: No such file or directory"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (OSError(), "OSError"),
        (HubError("stream S was deleted"), "stream S was deleted"),
        (KeyError("x"), "KeyError: 'x'"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_causes(error: Exception, said: str) -> None:
    assert cause(error) == said
