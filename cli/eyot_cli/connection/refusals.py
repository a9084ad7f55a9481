"""Errors of a server in its own words, and what to do next."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from eyot_cli.terminal.failure import Failure
from eyot_wire.jetstream import error_codes as codes

#: What asyncio raises where each address of a name refuses (`localhost` has two).
_FIRST_OF_SEVERAL: Final = re.compile(r"Multiple exceptions: \[Errno (\d+)\]")
_ACCOUNT: Final = "eyot account info shows what the account uses and may use"
#: The next step, by error number.
REMEDIES: Final = {
    codes.JSInsufficientResourcesErr: _ACCOUNT,
    codes.JSMaximumConsumersLimitErr: _ACCOUNT,
    codes.JSMaximumStreamsLimitErr: _ACCOUNT,
    codes.JSMemoryResourcesExceededErr: _ACCOUNT,
    codes.JSStorageResourcesExceededErr: _ACCOUNT,
    codes.JSStreamOfflineErr: "eyot doctor says why",
    codes.JSStreamOfflineReasonErrF: "eyot doctor says what mends it",
    codes.JSStreamMessageExceedsMaximumErr: "eyot stream edit --max-msg-size allows larger ones",
    codes.JSStreamSealedErr: "a sealed stream stays as it is: eyot stream copy makes another one",
    codes.JSStreamStoreFailedF: "eyot stream info shows the stream's limits, eyot doctor whether the disk has room",
    codes.JSStreamTooManyRequests: "the disk is slower than the publishers: send it again later",
    codes.JSConsumerNotFoundErr: "eyot consumer ls STREAM lists those that there are",
    codes.JSConsumerNameExistErr: "eyot consumer info shows the one that there is",
    codes.JSConsumerAlreadyExists: "eyot consumer info shows the one that there is",
    codes.JSNoMessageFoundErr: "eyot stream info shows the first and last sequence",
    codes.JSStreamMsgDeleteFailedF: "eyot stream info shows the first and last sequence",
    codes.JSNotEnabledForAccountErr: "the account's configuration lacks jetstream: enabled",
    codes.JSStreamNameExistErr: "eyot stream edit changes the one that there is",
    codes.JSStreamNameExistRestoreFailedErr: "a restore makes the stream: eyot stream rm deletes the one that there is",
    codes.JSStreamNotFoundErr: "eyot stream ls lists those that there are",
    codes.JSStreamSubjectOverlapErr: "eyot stream ls shows which streams there are, eyot stream info their subjects",
}


class Refusal(Failure):
    """An error of the API, by its number."""

    def __init__(self, text: str, err_code: int | None) -> None:
        super().__init__(text)
        self.err_code = err_code


def refusal(description: str | None, err_code: int | None) -> Refusal:
    """Return an error of the API as one line: the server's words, the number, and the next step where one is known."""
    remedy = REMEDIES.get(err_code or 0)
    return Refusal(f"{description} ({err_code})" + (f": {remedy}" if remedy else ""), err_code)


@contextmanager
def in_bucket(kind: str, bucket: str, no_message: str = "") -> Iterator[None]:
    """Say in words of a bucket what the API says of its stream. `kind`: kv or object; `no_message`: what a missing message means."""
    try:
        yield
    except Refusal as error:
        if error.err_code == codes.JSStreamNotFoundErr:
            raise no_bucket(kind, bucket) from None
        if error.err_code == codes.JSStreamNameExistErr:
            there = f"the bucket {bucket} is there with another configuration"
            raise Failure(f"{there}: eyot {kind} info {bucket} shows it") from None
        if error.err_code == codes.JSNoMessageFoundErr and no_message:
            raise Failure(no_message) from None
        raise


def no_bucket(kind: str, bucket: str) -> Failure:
    """Return the error of a bucket that is not there."""
    return Failure(f"there is no bucket {bucket}: eyot {kind} ls lists the buckets, eyot {kind} add {bucket} makes it")


def denied(text: str) -> Failure:
    """Return the error of what the user's permissions do not allow."""
    return Failure(
        f"{text}: name another login by --user, --creds, --nkey or --context, or give this one the permission"
    )


def cannot_connect(server: str, why: str, *, is_reached: bool, login_remedy: str = "") -> Failure:
    """Return the error of a connection that was not made.

    `is_reached`: the server answered. `login_remedy`: the next step where it takes no login, unless the options name that.
    """
    text = f"cannot connect to {server}: {why}"
    if not is_reached:
        return Failure(f"{text}: is a server running there? --server or --context names another")
    if "authorization" in why.lower():
        return Failure(f"{text}: {login_remedy or '--user, --creds, --nkey or --context names who logs in'}")
    return Failure(text)


def no_stream(subject: str) -> Failure:
    """Return the error of a message that was to be stored."""
    return Failure(f"no stream stores {subject}: eyot stream add NAME --subjects {subject} makes one")


class NoJetStream(Failure):
    """Nobody received a request of the API."""


def no_jetstream(prefix: str, domain: str | None) -> NoJetStream:
    """Return the error of a request of the API that nobody received."""
    known = f"domain {domain} cannot be reached" if domain else "the server has no JetStream"
    return NoJetStream(f"no responders on {prefix}: {known}, or this account may not use it")


def no_responders(subject: str) -> Failure:
    """Return the error of a request that nobody received."""
    return Failure(f"no responders on {subject}: no service of this account listens there")


def said(error: BaseException) -> str:
    """Return a client error in the server's own words."""
    if isinstance(error, ssl.SSLError):
        return getattr(error, "verify_message", "") or str(error)
    if isinstance(error, OSError) and error.strerror and not isinstance(error, TimeoutError):
        return error.strerror if error.errno is None or error.errno < 0 else os.strerror(error.errno)
    text = str(error).removeprefix("nats: ").strip("'")
    if isinstance(error, OSError) and (number := _FIRST_OF_SEVERAL.match(text)):
        return os.strerror(int(number[1]))
    return text or ("no answer" if isinstance(error, TimeoutError) else type(error).__name__)
