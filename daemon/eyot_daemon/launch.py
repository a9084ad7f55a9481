"""The first module that `eyotd` executes: it makes the process stoppable while it loads.

Launchers of client test suites stop a server a few milliseconds after its start. Until the daemon handles its signals,
SIGINT ends it silently, as it ends any program, instead of with Python's traceback. HUP, USR1 and USR2 are blocked
until then. The ports for clients are bound before anything else is loaded (`early_listen.py`).
"""

from __future__ import annotations

import gc
import signal
import sys

#: Signals for a running daemon, which would end one that still loads.
LATER_SIGNALS = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def main() -> int:
    """Entry point of `eyotd`; the exit code is that of `eyot_daemon.main.main`."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Their default is to end the process; `watch_signals` unblocks them.
    signal.pthread_sigmask(signal.SIG_BLOCK, LATER_SIGNALS)
    gc.disable()  # until the daemon is ready (collector.py): loaded modules stay, and scanning them takes time
    from eyot_daemon.net.early_listen import listen_early

    listen_early(sys.argv[1:])
    from eyot_daemon import main as daemon

    return daemon.main()


if __name__ == "__main__":
    sys.exit(main())
