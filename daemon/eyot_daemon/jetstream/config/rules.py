"""What the checks of stream and consumer configurations share."""

from collections.abc import Mapping

import msgspec

from eyot_daemon.jetstream.config.taken import Taken
from eyot_wire.jetstream.error_codes import JSStreamInvalidConfigF
from eyot_wire.jetstream.errors import JetStreamError, fail
from eyot_wire.jetstream.model import StreamConfig, SubjectTransform
from eyot_wire.subject import is_literal, is_valid
from eyot_wire.transform import Transform, TransformError

_NAME_FORBIDDEN = frozenset(" \t\r\n\f.*>/\\")


class ConfigRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the checks depend on besides the configuration itself: the account's other streams and limits, and server limits."""

    streams: Mapping[str, StreamConfig]
    taken: Taken | None = None  # their subjects; None: to be found out from `streams`
    duplicate_window_max_ns: int = 0  # 0: no server limit
    max_bytes_required: bool = False
    stream_bytes_max: int = -1


def invalid(text: str) -> JetStreamError:
    """Error 10052 with nats-server's words."""
    return fail(JSStreamInvalidConfigF, err=text)


def valid_name(name: str) -> bool:
    """True if `name` may be a stream's or consumer's name."""
    return bool(name) and not _NAME_FORBIDDEN.intersection(name)


def check_transform(transform: SubjectTransform, *, source_error: int, dest_error: int) -> None:
    """Raises `source_error` or `dest_error` for a transform that cannot work; an empty `dest` is a filter only."""
    src = transform.src or ">"
    if not is_valid(src.encode()):
        raise fail(source_error, err=f"invalid subject {transform.src}")
    if transform.dest:
        try:
            Transform(src.encode(), transform.dest.encode())
        except TransformError as err:
            raise fail(dest_error, err=err) from None


def literal_prefix(prefix: str) -> bool:
    """True if `prefix` is a valid subject without wildcards."""
    return is_valid(prefix.encode()) and is_literal(prefix.encode())
