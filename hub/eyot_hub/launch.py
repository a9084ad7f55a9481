"""What `eyot-hub` executes: it says what to install where PySpark and its companions are missing, as on a device.

Loading takes a second. Until then SIGINT ends the process silently, as it ends any program, instead of with a traceback.
"""

from __future__ import annotations

import importlib
import sys

from eyot_wire.program import ended_by_interrupt


def main() -> int:
    """Run `eyot-hub` with the command line; return its exit status."""
    try:
        with ended_by_interrupt():
            command = importlib.import_module("eyot_hub.main")
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if not missing or missing.startswith("eyot_"):
            raise
        print(
            f"eyot-hub: the Python package {missing} is missing: install Eyot with its extra hub, in a checkout "
            "pip install '.[hub]'; docs/hub.md says what else the hub needs",
            file=sys.stderr,
        )
        return 1
    status: int = command.main()
    return status


if __name__ == "__main__":
    sys.exit(main())
