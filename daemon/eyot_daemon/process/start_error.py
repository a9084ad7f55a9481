"""Errors that keep the daemon from starting, in the words of nats-server's `[FTL]` line, and what a later start can do about them."""

from __future__ import annotations

import errno
from enum import Enum

#: sysexits.h; `RestartPreventExitStatus=` of the unit names both. systemd tries again after any other.
EX_USAGE, EX_CONFIG = 64, 78


class Cause(Enum):
    """Why a start failed, and whether a later start can succeed although nobody changes anything on the device.

    In doubt it can: a start that is tried again costs a line in the log, one that is not costs a visit. A path may lie on a disk that
    is mounted later, a certificate may be about to be renewed. docs/operate/run.md has these rows.
    """

    PORT = ("a port that is taken, an address that the machine does not have", True)
    PORT_FORBIDDEN = ("a port that the user may not use", False)
    CONTROL_SOCKET = ("the control socket cannot be made", True)
    CONTROL_PATH = ("the path of the control socket is too long for the system", False)
    LOG_FILE = ("the log file cannot be opened", True)
    PID_FILE = ("the pid file cannot be written", True)
    CONFIG_FILE = ("the configuration file, or one that it includes, cannot be read", True)
    CONFIGURATION = ("a mistake in the configuration", False)
    COMMAND_LINE = ("a mistake on the command line", False)
    STORE = ("the store or its key file cannot be read or written, is in use, or has no room", True)
    STORE_FORMAT = ("the store has a format that this release does not read", False)
    STORE_KEY = ("the store is encrypted, and its key is not configured", False)
    CERTIFICATE = ("a certificate or key that cannot be read or used", True)
    TLS_SETTING = ("a curve or cipher suite that OpenSSL does not have", False)
    ACCOUNTS = ("accounts cannot be read from their directory, or fetched", True)
    ACCOUNTS_LIMIT = ("`limit` of the resolver leaves no room for `resolver_preload`", False)
    UNFORESEEN = ("a fault of eyotd", True)

    def __init__(self, what: str, mends: bool) -> None:
        self.what = what
        #: a later start can succeed
        self.mends = mends

    @property
    def exit_code(self) -> int:
        """The daemon's exit code: systemd starts it again after 1 alone."""
        if self is Cause.COMMAND_LINE:
            return EX_USAGE
        return 1 if self.mends else EX_CONFIG


class StartError(Exception):
    """Something the daemon needs is unavailable; the text is the whole line."""

    def __init__(self, text: str, cause: Cause) -> None:
        super().__init__(text)
        self.cause = cause


class OptionsError(StartError):
    """Options that do not fit each other."""

    def __init__(self, text: str) -> None:
        super().__init__(text, Cause.CONFIGURATION)


def cannot_listen(what: str, host: str, port: int, error: OSError) -> StartError:
    """Return the error for a port; `what`: the kind of port with a trailing space, empty for clients."""
    text = f'Error listening on {what}port: {host}:{port}, "{error.strerror or error}"'
    if error.errno in (errno.EACCES, errno.EPERM):
        remedy = "choose a port from 1024 on, or lower net.ipv4.ip_unprivileged_port_start by sysctl"
        return StartError(f"{text}: {remedy}", Cause.PORT_FORBIDDEN)
    remedy = ": another program listens there: `ss -ltnp` names it" if error.errno == errno.EADDRINUSE else ""
    return StartError(text + remedy, Cause.PORT)
