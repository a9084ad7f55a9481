"""Errors that keep the daemon from starting, in the words of nats-server's `[FTL]` line."""


class StartError(Exception):
    """Something the daemon needs is unavailable; the text is the whole line."""


def cannot_listen(what: str, host: str, port: int, error: OSError) -> StartError:
    """Return the error for a port; `what`: the kind of port with a trailing space, empty for clients."""
    return StartError(f'Error listening on {what}port: {host}:{port}, "{error.strerror or error}"')
