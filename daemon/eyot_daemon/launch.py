"""What `eyotd` executes first: a process that can be stopped while it still loads, and that loads without detours.

Launchers of client test suites stop a server a few milliseconds after they started it. Until the daemon takes its signals
itself, SIGINT ends it silently, as it ends any program, instead of with Python's traceback.
"""

from __future__ import annotations

import gc
import signal
import sys


def main() -> int:
    """Entry point of `eyotd`; the exit code is that of `eyot_daemon.main.main`."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.disable()  # until the daemon is ready (collector.py): what is loaded stays, and looking through it takes time
    from eyot_daemon import main as daemon

    return daemon.main()


if __name__ == "__main__":
    sys.exit(main())
