"""The files that tell others about the running daemon: its pid, and the ports it got."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

from eyot_daemon.config.options import Options
from eyot_daemon.process.ports_file import Ports, PortsFile

log = logging.getLogger("eyot")


class StateFiles:
    """`pid_file` and the file in `ports_file_dir`: written at the start, moved at a reload, removed at the end."""

    def __init__(self) -> None:
        self._pid_file: Path | None = None
        self._ports_file: PortsFile | None = None

    def write(self, options: Options, ports: Ports) -> None:
        """Write both. OSError if the pid file cannot be written; a ports file that cannot is logged."""
        if options.pid_file:
            path = Path(options.pid_file)
            path.write_text(f"{os.getpid()}")
            self._pid_file = path
        if options.ports_file_dir:
            ports_file = PortsFile(options.ports_file_dir)
            try:
                ports_file.write(ports)
            except OSError as error:
                log.error("Error writing ports file (%s): %s", ports_file.path, error.strerror)
            else:
                self._ports_file = ports_file

    def follow(self, options: Options, ports: Ports) -> None:
        """A reload: where the files are may have changed."""
        wanted_pid = Path(options.pid_file) if options.pid_file else None
        wanted_ports = PortsFile(options.ports_file_dir).path if options.ports_file_dir else None
        has_ports = self._ports_file.path if self._ports_file is not None else None
        if (wanted_pid, wanted_ports) == (self._pid_file, has_ports):
            return
        self.remove()
        try:
            self.write(options, ports)
        except OSError as error:
            log.error("Could not write pidfile: %s", error)

    def remove(self) -> None:
        """Take away what was written, a pid file only as long as it is ours: a successor may have written its own while we
        said goodbye."""
        if self._pid_file is not None:
            with suppress(OSError, ValueError):
                if int(self._pid_file.read_text()) == os.getpid():
                    self._pid_file.unlink(missing_ok=True)
        if self._ports_file is not None:
            with suppress(OSError):
                self._ports_file.remove()
        self._pid_file = self._ports_file = None
