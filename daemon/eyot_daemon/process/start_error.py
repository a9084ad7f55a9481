"""What keeps the daemon from starting, in the words of nats-server's `[FTL]` line."""


class StartError(Exception):
    """Something the daemon needs is not to be had; the text is the whole line."""


def cannot_listen(what: str, host: str, port: int, error: OSError) -> StartError:
    """`what` is the kind of port with a space behind it, nothing for that of clients."""
    return StartError(f'Error listening on {what}port: {host}:{port}, "{error.strerror or error}"')
