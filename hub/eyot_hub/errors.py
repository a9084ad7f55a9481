"""What can go wrong on the way to a stream, each with the server's own words or the option that is to be changed."""

from __future__ import annotations

from eyot_wire.jetstream.errors import ApiError


class HubError(Exception):
    """Base of all errors of the Spark side."""


class OptionError(HubError, ValueError):
    """An option that is missing, unknown or not usable; the text names it."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"option '{option}' {problem}")
        self.option = option

    def __reduce__(self) -> tuple[type[HubError], tuple[str]]:
        return (HubError, (str(self),))


class ConnectionFailed(HubError):
    """No server could be reached, or the connection broke. Trying again may help."""


class Refused(HubError):
    """The server does not want us (wrong credentials, TLS). Trying again does not help."""


class NoAnswer(HubError):
    """A request was not answered in time."""


class NoResponders(NoAnswer):
    """The server says that nobody listens on the subject: JetStream off, wrong domain or prefix, no such stream."""


class ApiFailure(HubError):
    """The JetStream API answered with an error of its own."""

    def __init__(self, request: str, error: ApiError) -> None:
        super().__init__(f"{request}: {error.description} (code {error.code}, err_code {error.err_code})")
        self.request = request
        self.error = error

    def __reduce__(self) -> tuple[type[ApiFailure], tuple[str, ApiError]]:
        return (ApiFailure, (self.request, self.error))


class DataLoss(HubError):
    """Messages that were to be read are gone from the stream."""
