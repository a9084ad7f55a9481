"""Errors of the Spark side, each with the server's own words or the option to change."""

from __future__ import annotations

from eyot_wire.jetstream.errors import ApiError


class HubError(Exception):
    """Base of all errors of the Spark side."""


class OptionError(HubError, ValueError):
    """A missing, unknown or unusable option; the text names it."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"option '{option}' {problem}")
        self.option = option
        self.problem = problem

    def __reduce__(self) -> tuple[type[HubError], tuple[str]]:
        return (HubError, (str(self),))


class ConnectionFailed(HubError):
    """No server is reachable, or the connection broke. A retry may help."""


class Refused(HubError):
    """The server rejects the connection (wrong credentials, TLS). A retry does not help."""


class NoAnswer(HubError):
    """A request was not answered in time."""


class NoResponders(NoAnswer):
    """The subject has no subscriber: JetStream is off, the domain or prefix is wrong, or the stream does not exist."""


class ApiFailure(HubError):
    """An error answer of the JetStream API."""

    def __init__(self, request: str, error: ApiError) -> None:
        super().__init__(f"{request}: {error.description} (code {error.code}, err_code {error.err_code})")
        self.request = request
        self.error = error

    def __reduce__(self) -> tuple[type[ApiFailure], tuple[str, ApiError]]:
        return (ApiFailure, (self.request, self.error))


class DataLoss(HubError):
    """Requested messages are gone from the stream."""
