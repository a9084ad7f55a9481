"""What can go wrong between the service and its hub, with texts for people."""

from __future__ import annotations


class FleetError(Exception):
    """Base of all; the text says what to do, and holds no secret."""


class ConfigError(FleetError):
    """The configuration, the command line or a file that they name cannot be used."""


class ConnectionLost(FleetError):
    """The connection to the hub could not be made, or broke."""


class Refused(FleetError):
    """The hub refuses: a login, a subject, TLS."""


class NoAnswer(FleetError):
    """A request was not answered in time, or nobody listens."""


class ApiFailure(FleetError):
    """JetStream answers with an error. `code`: nats-server's `err_code`."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(f"{description} ({code})")
        self.code = code


class Conflict(FleetError):
    """Somebody else has changed the same key first: read it again."""
