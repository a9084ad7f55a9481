"""Errors of the JetStream API in the server's words, and what to do next."""

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
    codes.JSStreamNotFoundErr: "eyot stream ls lists those that there are",
    codes.JSStreamSubjectOverlapErr: "eyot stream ls shows which streams there are, eyot stream info their subjects",
}


def refusal(description: str | None, err_code: int | None) -> Failure:
    """Return an error of the API as one line: the server's words, the number, and the next step where one is known."""
    remedy = REMEDIES.get(err_code or 0)
    return Failure(f"{description} ({err_code})" + (f": {remedy}" if remedy else ""))
