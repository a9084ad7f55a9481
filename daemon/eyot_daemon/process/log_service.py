"""Log output as a service of the daemon."""

from __future__ import annotations

from eyot_daemon.config.options import Options
from eyot_daemon.process.logs import Logs
from eyot_daemon.process.service import ReloadSteps, Runtime
from eyot_daemon.router.providers import HealthzQuery, Unhealthy

#: The options of the log.
LOGGING = (
    "debug",
    "trace",
    "trace_verbose",
    "trace_headers",
    "logtime",
    "logtime_utc",
    "log_file",
    "log_size_limit",
    "log_max_num",
    "syslog",
    "remote_syslog",
    "max_traced_msg_len",
)


class LogService:
    """`logs` are configured with `options` already: what keeps the daemon from starting is logged."""

    name = "log"

    def __init__(self, logs: Logs, options: Options) -> None:
        self._logs = logs
        self._options = options

    def configure(self, options: Options) -> Options:
        return options

    def start(self, prepared: Options, runtime: Runtime) -> None:
        """Do nothing: the log is open since before the daemon was created."""

    def reload(self, prepared: Options, steps: ReloadSteps) -> None:
        """Apply changed options. Raises OSError when the file cannot be opened."""
        before = self._options
        if all(getattr(before, name) == getattr(prepared, name) for name in LOGGING):
            return

        def undo() -> None:
            self._options = before
            self._logs.configure(before)

        self._logs.configure(prepared)
        steps.undo(undo)
        self._options = prepared

    def health(self, query: HealthzQuery) -> Unhealthy | None:
        return None

    def stop(self) -> None:
        """Do nothing: the daemon's last lines are logged, too."""
