"""The state files of the running daemon, as one of its services: its pid, and the ports it listens on."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from eyot_daemon.config.options import Options
from eyot_daemon.process.ports_file import Ports, PortsFile
from eyot_daemon.process.service import ReloadSteps, Runtime
from eyot_daemon.process.start_error import Cause, StartError
from eyot_daemon.router.providers import HealthzQuery, Unhealthy

log = logging.getLogger("eyot")


class FileError(OSError):
    """A file of the daemon's cannot be written; the text is the whole line."""


class Files(NamedTuple):
    """Paths; None: not configured. The name of the ports file holds our pid."""

    pid: Path | None
    ports: Path | None

    def without(self, others: Files) -> Files:
        """Those that are not among `others`."""
        return Files(None if self.pid == others.pid else self.pid, None if self.ports == others.ports else self.ports)


class StateFiles:
    """`pid_file` and the file in `ports_file_dir`: written at the start, moved at a reload, removed at the end."""

    name = "state files"

    def __init__(self) -> None:
        self._files = Files(None, None)
        self._ports = Ports()

    def configure(self, options: Options) -> Files:
        pid_file = Path(options.pid_file) if options.pid_file else None
        return Files(pid_file, PortsFile(options.ports_file_dir).path if options.ports_file_dir else None)

    def start(self, prepared: Files, runtime: Runtime) -> None:
        self._ports = runtime.ports
        runtime.when_open(lambda: self._write_first(prepared))

    def _write_first(self, files: Files) -> None:
        """Write the files. Raises StartError for the pid file; a failing ports file is only logged, as in nats-server."""
        try:
            _write_pid(files.pid)
        except FileError as error:
            raise StartError(str(error), Cause.PID_FILE) from error
        self._files = files
        try:
            self._write_ports(files.ports)
        except FileError as error:
            log.error("%s", error)

    def reload(self, prepared: Files, steps: ReloadSteps) -> None:
        """Where the files are may have changed: new ones are written now, old ones go last. Raises FileError."""
        before = self._files
        if prepared == before:
            return

        def undo() -> None:
            self._files = before
            _remove(prepared.without(before))

        steps.undo(undo)
        fresh = prepared.without(before)
        _write_pid(fresh.pid)
        self._write_ports(fresh.ports)
        self._files = prepared
        steps.last(lambda: _remove(before.without(prepared)))

    def health(self, query: HealthzQuery) -> Unhealthy | None:
        return None

    def stop(self) -> None:
        """Take away what was written."""
        _remove(self._files)
        self._files = Files(None, None)

    def _write_ports(self, path: Path | None) -> None:
        if path is not None:
            try:
                PortsFile(str(path.parent)).write(self._ports)
            except OSError as error:
                raise FileError(f"Error writing ports file ({path}): {error.strerror}") from error


def _write_pid(path: Path | None) -> None:
    """Write the pid file. Raises FileError."""
    if path is not None:
        try:
            path.write_text(f"{os.getpid()}")
        except OSError as error:
            raise FileError(f"Could not write pidfile: open {path}: {error.strerror}") from error


def _remove(files: Files) -> None:
    """Remove a pid file unless it holds another pid: a successor may have replaced it."""
    if files.pid is not None:
        with suppress(OSError, ValueError):
            if int(files.pid.read_text()) == os.getpid():
                files.pid.unlink(missing_ok=True)
    if files.ports is not None:
        with suppress(OSError):
            files.ports.unlink(missing_ok=True)
