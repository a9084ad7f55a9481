"""`eyotd`: the composition root.

`main()` reads the command line and the configuration, then builds everything the daemon is made of, hands each part
its clock, randomness, store and network, and runs them in one Trio nursery:

    store, JetStream, monitoring, leaf links, clients     started in this order, stopped in the reverse

Exit codes: 0 after SIGINT, SIGTERM or lame duck; 64 (EX_USAGE) for a mistake on the command line and 78 (EX_CONFIG) for what else a
restart does not mend (`process/start_error.py`); 1 for any other failed start and for all that `-t` and `--signal` say.
"""

from __future__ import annotations

import logging
import os
import resource
import sys
from collections.abc import Sequence
from contextlib import suppress

from eyot_daemon.config.args import Arguments, apply_arguments, parse_args
from eyot_daemon.config.check import check_options
from eyot_daemon.config.flags import UsageError
from eyot_daemon.config.options import Options
from eyot_daemon.config.read import Loaded, load_options
from eyot_daemon.config.reader import Reading
from eyot_daemon.config.usage import TLS_USAGE, USAGE
from eyot_daemon.process.logs import Logs, priority, stderr_is_journal
from eyot_daemon.process.reload_answer import SignalError
from eyot_daemon.process.signals import send_signal
from eyot_daemon.process.start_error import Cause, StartError
from eyot_daemon.version import VERSION, own_version
from eyot_wire.conf import ConfError, ConfFileError
from eyot_wire.native import COMPILED
from eyot_wire.program import not_utf8, run_program

log = logging.getLogger("eyot")


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `eyotd`."""
    given = sys.argv[1:] if argv is None else argv
    try:
        if wrong := not_utf8(given, os.environ):
            raise UsageError(wrong)
        arguments = parse_args(given)
        if arguments.help or arguments.help_tls:
            return run_program("eyotd", lambda: _print_usage(arguments))
        if arguments.version:
            return run_program("eyotd", _print_version)
        if arguments.test_config and not arguments.config:
            raise UsageError("must specify [-c, --config] option to check configuration file syntax")
        loaded = load(arguments)
        if arguments.signal is not None:
            send_signal(arguments.signal, loaded.options.pid_file, loaded.options.eyot.control_path(os.environ))
            return 0
        if arguments.test_config:
            return _report_test(loaded, arguments)
    except UsageError as error:
        _complain(f"{error}\nrun eyotd --help for the options")
        return Cause.COMMAND_LINE.exit_code
    except ConfError as error:
        _complain(str(error))
        if arguments.test_config or arguments.signal is not None:
            return 1
        return (Cause.CONFIG_FILE if isinstance(error, ConfFileError) else Cause.CONFIGURATION).exit_code
    except SignalError as error:
        _complain(str(error))
        return 1
    return run(loaded, arguments)


def _complain(text: str) -> None:
    """Print an error that occurs before the log is open, on stderr."""
    prefix = priority(logging.ERROR) if stderr_is_journal() else ""
    first, *rest = text.splitlines()
    print("\n".join(prefix + line for line in (f"eyotd: {first}", *rest)), file=sys.stderr)


def _print_usage(arguments: Arguments) -> int:
    print(TLS_USAGE if arguments.help_tls else USAGE)
    return 0


def _print_version() -> int:
    """Print the version.

    The first word and the number are nats-server's: launchers and test tools of client libraries parse them.
    """
    print(f"nats-server: v{VERSION} (eyotd {own_version()})")
    return 0


def load(arguments: Arguments) -> Loaded:
    """Options of the file, the command line laid over them, checked. Raises ConfError, UsageError."""
    loaded = load_options(arguments.config) if arguments.config else Loaded(Options(), Reading())
    options = apply_arguments(loaded.options, arguments)
    check_options(options, loaded.reading)
    return Loaded(options, loaded.reading)


def _report_test(loaded: Loaded, arguments: Arguments) -> int:
    """`-t`: warnings count as mistakes, as in nats-server, and so does what a start would refuse.

    Notes are shown, and are no mistakes.
    """
    from eyot_daemon.start_check import refusals

    wrong = [*loaded.reading.warnings, *refusals(loaded.options, os.environ)]
    for line in (*(f"warning: {note}" for note in loaded.reading.notes), *wrong):
        print(f"eyotd: {line}", file=sys.stderr)
    if wrong:
        return 1
    print(f"eyotd: configuration file {arguments.config} is valid ({loaded.options.config_digest})", file=sys.stderr)
    return 0


#: How long a thread computes before it releases the interpreter to a waiting thread. With Python's default of 5 ms, the
#: loop would wait that long at each system call while a thread applies the journal to LMDB.
SWITCH_S = 0.0005


def _allow_open_files() -> None:
    """Raise the limit of open files to the hard limit: the usual soft limit is far below a broker's connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def run(loaded: Loaded, arguments: Arguments) -> int:
    """Run the daemon until it is stopped; return the exit code."""
    # Loaded only here: printing a version or checking a configuration needs nothing of it.
    import trio

    from eyot_daemon.auth.account_tokens import TokenStoreError, TokenStoreFullError
    from eyot_daemon.net.heap import keep_buffers
    from eyot_daemon.server import Server

    logs = Logs()
    try:
        logs.configure(loaded.options)
    except OSError as error:
        _complain(f"error opening log file {loaded.options.log_file}: {error.strerror}")
        return Cause.LOG_FILE.exit_code
    _allow_open_files()
    sys.setswitchinterval(SWITCH_S)
    keep_buffers()
    log.debug("Scanner and fan-out: %s", "compiled" if COMPILED else "plain Python")
    try:
        server = Server(loaded, logs, reload=lambda: load(arguments), env=os.environ)
        trio.run(server.run, restrict_keyboard_interrupt_to_checkpoints=True)
    except StartError as error:
        return _report_failed_start(str(error), error.cause)
    except TokenStoreError as error:
        is_full = isinstance(error, TokenStoreFullError)
        return _report_failed_start(str(error), Cause.ACCOUNTS_LIMIT if is_full else Cause.ACCOUNTS)
    except BaseException:
        log.critical("eyotd failed", exc_info=True)
        return Cause.UNFORESEEN.exit_code
    return 0


def _report_failed_start(text: str, cause: Cause) -> int:
    """Log why the daemon did not start; return the exit code."""
    if cause.mends:
        log.critical("%s", text)
    else:
        log.critical("%s. A restart does not mend this", text)
    return cause.exit_code


if __name__ == "__main__":
    sys.exit(main())
