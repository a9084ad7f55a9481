"""Errors of archives; their text goes to the client that sent the archive."""


class ArchiveError(ValueError):
    """An archive that cannot be read to its end; str() gives the reason, in nats-server's words where it has any."""


class UnexpectedContent(ArchiveError):
    """An archive with content that does not belong into a stream's backup (a link, a path outside the directory)."""

    def __init__(self, what: str) -> None:
        super().__init__("unexpected content")
        self.what = what


def truncated() -> ArchiveError:
    """Return the error for bytes that end before the archive does."""
    return ArchiveError("unexpected EOF")
