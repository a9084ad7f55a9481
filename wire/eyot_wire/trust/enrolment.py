"""Enrolment of a device over NATS: token, request and answer (docs/operate/enrolment.md).

A token is the credentials of a user that may do one thing, ask for enrolment: `<user JWT>.<seed>`, four parts with dots
between. The request goes to `$EYOT.ENROL.<public key of the token's user>`, that of a renewal to `$EYOT.RENEW.<name>`.
Both are JSON, signed in header fields by the token and by the device's own key. The seed of the device never leaves it.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec import Struct

from eyot_wire.trust import nkey
from eyot_wire.trust.creds import Credentials
from eyot_wire.trust.jwt import Claims, JwtError, decode
from eyot_wire.trust.jwt_account import AccountClaims, OperatorClaims, decode_account, decode_operator

ENROL: Final = "$EYOT.ENROL"
RENEW: Final = "$EYOT.RENEW"
#: Signature of subject and payload by the device's own key, and by the token's.
SIGNED_BY_KEY: Final = "Eyot-Key-Signature"
SIGNED_BY_TOKEN: Final = "Eyot-Token-Signature"  # noqa: S105 - a header field's name
#: Tag of a token: the operator's public key, in lower case as all tags are.
OPERATOR_TAG: Final = "eyot-operator:"
#: What the inbox of a token's user begins with, before the user's public key: it hears no answers of others.
INBOX: Final = "_INBOX"
#: Most bytes of a request.
MAX_REQUEST: Final = 16 * 1024
_MAX_FACTS: Final = 32
_MAX_FACT_CHARS: Final = 256
_MAX_NAME_CHARS: Final = 128
_LABEL: Final = re.compile(r"[^\s,<>\"'`\\]{1,100}")


class EnrolmentError(Exception):
    """A token, request or answer that cannot be used; the text says why and holds no secret."""


class EnrolmentRequest(Struct, frozen=True, kw_only=True):
    """What a device asks for. `key`: its public key. `name`: "" takes the one that the token names."""

    key: str
    name: str = ""
    #: what the device is, for the operator to see: model, serial number, architecture
    facts: dict[str, str] = {}


class EnrolmentAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the hub gives. `error`: why not, everything else is empty then. `leaf_urls`: where the device links."""

    error: str = ""
    name: str = ""
    jwt: str = ""
    account_jwt: str = ""
    operator_jwt: str = ""
    leaf_urls: tuple[str, ...] = ()


class Token(Struct, frozen=True):
    """A token that was read. repr() leaves the seed out."""

    credentials: Credentials
    claims: Claims
    #: public key of the operator that the device shall trust
    operator: str

    @property
    def id(self) -> str:
        """Public key of the token's user."""
        return self.claims.sub

    @property
    def account(self) -> str:
        """Public key of the account in which the device becomes a user."""
        return self.claims.account

    @property
    def inbox_prefix(self) -> str:
        """The only subjects on which the token's user may hear answers begin with this."""
        return f"{INBOX}.{self.id}"

    def __repr__(self) -> str:
        return f"Token({self.id})"


def format_token(jwt: str, seed: str) -> str:
    """Return the text of a token."""
    return f"{jwt}.{seed}"


def parse_token(text: str) -> Token:
    """Read a token. Raises EnrolmentError, whose text holds nothing of it."""
    jwt, _, seed = "".join(text.split()).rpartition(".")
    try:
        claims = decode(jwt)
        signer = nkey.Signer(seed)
    except (JwtError, nkey.NkeyError):
        raise EnrolmentError("not a whole enrolment token: copy all of it, four parts with dots between") from None
    named = (tag.removeprefix(OPERATOR_TAG).upper() for tag in claims.all_tags if tag.startswith(OPERATOR_TAG))
    operator = next(named, "")
    if claims.kind != "user" or signer.public_key != claims.sub or not nkey.is_public(operator, "O"):
        raise EnrolmentError("not an enrolment token: those are made by `eyot fleet enrol`")
    return Token(Credentials(jwt, seed), claims, operator)


def signed_text(subject: str, payload: bytes) -> bytes:
    """Return the bytes that both signatures cover."""
    return subject.encode() + b"\n" + payload


def parse_request(payload: bytes) -> EnrolmentRequest:
    """Read a request, within bounds. Raises EnrolmentError."""
    if len(payload) > MAX_REQUEST:
        raise EnrolmentError(f"the request has {len(payload)} bytes, at most {MAX_REQUEST} are read")
    try:
        request = msgspec.json.decode(payload, type=EnrolmentRequest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EnrolmentError(f"the request is malformed: {error}") from None
    if not nkey.is_public(request.key, "U"):
        raise EnrolmentError("the request names no public key of a user")
    long = [*request.facts, *request.facts.values()]
    if len(request.facts) > _MAX_FACTS or any(len(each) > _MAX_FACT_CHARS for each in long):
        raise EnrolmentError(f"too many facts, or too long: {_MAX_FACTS} of {_MAX_FACT_CHARS} characters")
    return request


def is_device_name(name: str) -> bool:
    """Return whether a device can have this name: it becomes a token of subjects, a domain and a file's name."""
    return 0 < len(name) <= _MAX_NAME_CHARS and name.isascii() and name[0] != "." and all(map(_may_stand, name))


def _may_stand(char: str) -> bool:
    return char.isalnum() or char in "-_"


def is_label(text: str) -> bool:
    """Return whether a device can have this tag or label: pages and tables show it, and lists of labels are split at commas."""
    return _LABEL.fullmatch(text) is not None and text.isprintable()


def check_answer(answer: EnrolmentAnswer, key: str, account: str, operator: str) -> Claims:
    """Return the claims of the device's new token. Raises EnrolmentError unless the chain of trust is whole.

    The token is for `key`, signed for `account`, whose own token a key of `operator` signed: what the answer says must
    lead to the two public keys that the device knew before.
    """
    try:
        user, members, trusted = (
            decode(answer.jwt),
            decode_account(answer.account_jwt),
            decode_operator(answer.operator_jwt),
        )
    except JwtError as error:
        raise EnrolmentError(f"the hub's answer holds a token that is not valid: {error}") from None
    reason = _break_in_chain(user, members, trusted, (key, account, operator))
    if reason:
        raise EnrolmentError(f"the hub's answer is not trusted: {reason}")
    return user


def _break_in_chain(user: Claims, account: AccountClaims, operator: OperatorClaims, known: tuple[str, str, str]) -> str:
    if user.kind != "user" or user.sub != known[0]:
        return "its token is for another key than this device's"
    if account.name != known[1] or user.account != known[1]:
        return "it is of another account than the one that the enrolment token names"
    if user.iss not in (account.name, *account.signing_keys()):
        return "its token is signed by a key that the account does not have"
    if operator.claims.sub != known[2] or operator.claims.iss != known[2]:
        return "it is of another operator than the one that the enrolment token names"
    if account.claims.iss not in operator.trusted_keys:
        return "the operator did not sign the account"
    return ""
