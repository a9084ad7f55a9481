"""The version this daemon announces to NATS clients, leaf links and JetStream.

Clients switch features by it: announcing a version means keeping its rules. JetStream's API level goes with it (ADR-44):
0 is 2.10, 1 is 2.11, 2 and 3 are 2.12, 4 is 2.14. A request that asks for a higher level is refused with error 10185.
"""

from pathlib import Path

#: The nats-server version whose behaviour is kept.
VERSION = "2.14.0"
#: JetStream's API level of that version.
API_LEVEL = 4


def commit() -> str:
    """The commit a package was built from (packaging/build-deb writes it down), "" elsewhere."""
    try:
        return Path(__file__).with_name("commit.json").read_text(encoding="ascii").strip().strip('"')
    except OSError:
        return ""


def own_version() -> str:
    """Eyot's own version, of the installed distribution."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("eyot")
    except PackageNotFoundError:  # run from a folder that was never installed
        return "unknown"
