"""The conversation with the hub: a signed request, and an answer that is believed only if its chain of trust is whole."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

import msgspec

from eyot_cli.terminal.failure import Failure
from eyot_wire.trust import nkey
from eyot_wire.trust.enrolment import (
    ENROL,
    RENEW,
    SIGNED_BY_KEY,
    SIGNED_BY_TOKEN,
    EnrolmentAnswer,
    EnrolmentError,
    EnrolmentRequest,
    check_answer,
    signed_text,
)

if TYPE_CHECKING:
    from nats.aio.client import Client

    from eyot_cli.connection.target import Target
    from eyot_wire.trust.creds import Credentials
    from eyot_wire.trust.enrolment import Token
    from eyot_wire.trust.jwt import Claims

#: How long the hub may take, seconds: it may be behind a slow radio.
WITHIN_S: Final = 30.0
_MAX_ANSWER: Final = 256 * 1024
#: What to do where the hub does not take the login of a token or of an enrolled device, which look the same from here.
_REMEDIES: Final = {
    ENROL: "the token has expired, or its signing key was not pushed (`eyot trust push -A`): ask for a new token",
    RENEW: "the device was revoked, or its token has expired: enrol it anew with a token, after a revocation with --new-key",
}


@dataclasses.dataclass(frozen=True)
class Asker:
    """One device's key and facts, and the hub that it asks. All methods raise Failure."""

    target: Target
    seed: str
    facts: dict[str, str]

    @property
    def key(self) -> str:
        return nkey.Signer(self.seed).public_key

    def enrol(self, token: Token, name: str) -> tuple[EnrolmentAnswer, Claims]:
        """Ask for enrolment with a token; return the answer and the claims of the device's token in it."""
        request = EnrolmentRequest(key=self.key, name=name, facts=self.facts)
        asker = dataclasses.replace(self, target=dataclasses.replace(self.target, inbox_prefix=token.inbox_prefix))
        signers = {SIGNED_BY_TOKEN: token.credentials.seed}
        answer = asker._ask(f"{ENROL}.{token.id}", request, token.credentials, signers)
        return answer, self._checked(answer, token.account, token.operator)

    def renew(self, credentials: Credentials, name: str, account: str, operator: str) -> tuple[EnrolmentAnswer, Claims]:
        """Ask for a new token of an enrolled device."""
        request = EnrolmentRequest(key=self.key, name=name, facts=self.facts)
        answer = self._ask(f"{RENEW}.{name}", request, credentials, {})
        return answer, self._checked(answer, account, operator)

    def _ask(
        self, subject: str, request: EnrolmentRequest, login: Credentials, signers: dict[str, str]
    ) -> EnrolmentAnswer:
        payload = msgspec.json.encode(request)
        signed = signed_text(subject, payload)
        headers = {
            name: nkey.encode_signature(nkey.Signer(seed).sign(signed))
            for name, seed in {SIGNED_BY_KEY: self.seed, **signers}.items()
        }

        async def ask(client: Client) -> bytes:
            from nats.errors import NoRespondersError

            try:
                return (await client.request(subject, payload, timeout=WITHIN_S, headers=headers)).data
            except NoRespondersError:
                raise Failure(
                    "nobody answers enrolments at the hub: `eyot fleet serve` must run there, in the same account"
                ) from None
            except TimeoutError:
                raise Failure(
                    f"the hub did not answer within {WITHIN_S:g} s: run the command again, which asks with the same key"
                ) from None

        data = dataclasses.replace(
            self.target, login=login, login_remedy=_REMEDIES[subject.rpartition(".")[0]]
        ).with_client(ask)
        try:
            answer = msgspec.json.decode(data[:_MAX_ANSWER], type=EnrolmentAnswer)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise Failure("what answered is no enrolment service: nothing is changed") from None
        if answer.error:
            raise Failure(f"the hub refuses: {answer.error}")
        return answer

    def _checked(self, answer: EnrolmentAnswer, account: str, operator: str) -> Claims:
        try:
            return check_answer(answer, self.key, account, operator)
        except EnrolmentError as error:
            raise Failure(f"{error}: nothing is changed") from None
