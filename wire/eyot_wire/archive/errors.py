"""What is wrong with an archive; the words go to whoever sent it."""


class ArchiveError(ValueError):
    """The archive cannot be read to its end. str() says why, in nats-server's words where it has words for it."""


class UnexpectedContent(ArchiveError):
    """The archive holds something that does not belong into a stream's backup (a link, a path that leads elsewhere)."""

    def __init__(self, what: str) -> None:
        super().__init__("unexpected content")
        self.what = what


def truncated() -> ArchiveError:
    """The bytes end before the archive does."""
    return ArchiveError("unexpected EOF")
