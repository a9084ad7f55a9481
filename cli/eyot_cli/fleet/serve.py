"""`eyot fleet serve`: answers devices that enrol or renew, at any NATS server of the operator."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from eyot_cli.connection.refusals import said
from eyot_cli.connection.target import Target
from eyot_cli.fleet.login import own_login
from eyot_cli.fleet.registrar import Registrar
from eyot_cli.messages.common import Done, ending_by_errors, until_done
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.show import print_line
from eyot_cli.trust.command import TrustCommand, account_option, in_session
from eyot_cli.values.numbers import at_least
from eyot_wire.quoting import printable
from eyot_wire.trust.enrolment import ENROL, MAX_REQUEST, RENEW, EnrolmentAnswer

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from eyot_cli.trust.session import Session
    from eyot_wire.trust.creds import Credentials

#: Requests that wait; devices repeat those that are dropped beyond.
_WAITING: Final = 1000
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 30.0
_QUEUE: Final = "eyot-enrolment"


@click.command("serve", cls=TrustCommand)
@click.option("--leaf-url", "leaf_urls", multiple=True, metavar="URL", required=True, help="where devices link")
@click.option("--count", type=at_least(1), help="end after so many requests")
@account_option
@in_session
def serve(session: Session, account: str | None, leaf_urls: tuple[str, ...], count: int | None) -> None:
    """Answer devices that enrol or renew, until stopped.

    Runs where the store with the signing keys is, and logs in to --server as a user of the account that exists for
    this process only. While the server is away it dials again.
    """
    target = click.get_current_context().find_object(Target)
    assert target is not None
    of = session.account_name(account)
    for url in leaf_urls:
        if "://" not in url or any(char.isspace() or char in "\"'{}" for char in url):
            raise Failure(f"{printable(url)}: expected an address as in nats-leaf://hub:7422 or tls://hub:7422")
    service = _Service(session, of, leaf_urls, count)
    pause_s = _FIRST_PAUSE_S
    while True:
        began = time.monotonic()
        try:
            dataclasses.replace(
                target, login=service.login(), context="" if target.given_server else target.context
            ).with_client(service.run)
        except Failure as failure:
            print_line(f"eyot: {failure.lines[0]}; dialled again in {pause_s:g} s", error=True)
        else:
            return
        time.sleep(pause_s)
        pause_s = _FIRST_PAUSE_S if time.monotonic() - began > _LONGEST_PAUSE_S else min(2 * pause_s, _LONGEST_PAUSE_S)


class _Service:
    """Answers requests on one connection after the other, one request at a time."""

    def __init__(self, session: Session, account: str, leaf_urls: tuple[str, ...], count: int | None) -> None:
        self._session = session
        self._account = account
        self._registrar = Registrar(session, account, leaf_urls)
        self._left = count

    def login(self) -> Credentials:
        """Return a user of the account that may hear the requests and answer them. Raises Failure."""
        return own_login(
            self._session,
            self._account,
            hears=[f"{ENROL}.*", f"{RENEW}.*"],
            publishes=["_INBOX.>"],
            called="eyot fleet serve",
        )

    async def run(self, client: Client) -> None:
        """Answer requests until `count` of them. Raises Failure when the connection ends."""
        done: Done = asyncio.get_running_loop().create_future()

        async def respond(request: Msg) -> None:
            if not request.reply:
                return
            answer, line = await asyncio.to_thread(self._answer, request)
            await client.publish(request.reply, msgspec.json.encode(answer))
            print_line(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {line}")
            if self._left is not None:
                self._left -= 1
                if self._left == 0:
                    await client.flush()
                    done.set_result(None)

        bounds: dict[str, Any] = {"pending_msgs_limit": _WAITING, "pending_bytes_limit": _WAITING * MAX_REQUEST}
        for kind in (ENROL, RENEW):
            await client.subscribe(f"{kind}.*", queue=_QUEUE, cb=ending_by_errors(done, respond), **bounds)
        await client.flush()
        target = click.get_current_context().find_object(Target)
        assert target is not None
        print_line(f"answers enrolments in account {self._account}")
        await until_done(target, client, done)

    def _answer(self, request: Msg) -> tuple[EnrolmentAnswer, str]:
        """Return the answer, and a line for the log."""
        try:
            answer, line = self._registrar.answer(request.subject, request.data, request.headers or {})
        except Failure as failure:  # the store: a full disk, a file that is damaged
            answer = EnrolmentAnswer(error="the hub cannot enrol at present: its log says why")
            line = "not answered: " + "; ".join(failure.lines)
        except (OSError, ValueError) as error:
            answer, line = EnrolmentAnswer(error="the hub cannot enrol at present"), f"not answered: {said(error)}"
        return answer, line
