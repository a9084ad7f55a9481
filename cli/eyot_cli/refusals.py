"""Errors of a server in its own words, and what to do next."""

from __future__ import annotations

from typing import Final

from eyot_cli.failure import Failure
from eyot_wire.jetstream import error_codes as codes

#: The next step, by error number.
REMEDIES: Final = {
    codes.JSConsumerNotFoundErr: "eyot consumer ls STREAM lists those that there are",
    codes.JSConsumerNameExistErr: "eyot consumer info shows the one that there is",
    codes.JSConsumerAlreadyExists: "eyot consumer info shows the one that there is",
    codes.JSNoMessageFoundErr: "eyot stream info shows the first and last sequence",
    codes.JSNotEnabledForAccountErr: "the account's configuration lacks jetstream: enabled",
    codes.JSStreamNameExistErr: "eyot stream edit changes the one that there is",
    codes.JSStreamNameExistRestoreFailedErr: "a restore makes the stream: eyot stream rm deletes the one that there is",
    codes.JSStreamNotFoundErr: "eyot stream ls lists those that there are",
    codes.JSStreamSubjectOverlapErr: "eyot stream ls shows which streams there are, eyot stream info their subjects",
}


def refusal(description: str | None, err_code: int | None) -> Failure:
    """Return an error of the API as one line: the server's words, the number, and the next step where one is known."""
    remedy = REMEDIES.get(err_code or 0)
    return Failure(f"{description} ({err_code})" + (f": {remedy}" if remedy else ""))


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


def no_responders(subject: str) -> Failure:
    """Return the error of a request that nobody received."""
    return Failure(f"no responders on {subject}: no service of this account listens there")
