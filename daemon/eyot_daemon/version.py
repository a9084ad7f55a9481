"""The version that this daemon announces to NATS clients, leaf links and JetStream.

Clients enable features by it: announcing a version means following its rules. JetStream's API level belongs to it
(ADR-44): 0 is 2.10, 1 is 2.11, 2 and 3 are 2.12, 4 is 2.14. A request for a higher level is refused with error 10185.
"""

from pathlib import Path

#: The nats-server version whose behaviour is implemented.
VERSION = "2.14.0"
#: JetStream's API level of that version.
API_LEVEL = 4


def commit() -> str:
    """Return the commit that a package was built from (written by packaging/build-deb), "" elsewhere."""
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
