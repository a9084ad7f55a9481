"""The daemon that a command addresses, and the connection to it.

The clients of HTTP and NATS load where they are used: no command needs both, and each costs more than all of `eyot`.
"""

from __future__ import annotations

import math
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from eyot_cli.connection import contexts
from eyot_cli.connection.logins import check_creds, home_file, read_seed, without_login
from eyot_cli.connection.refusals import cannot_connect, denied, no_jetstream, refusal, said
from eyot_cli.terminal.failure import Failure, NoSuchPage
from eyot_wire.trust.creds import Credentials
from eyot_wire.trust.tls import verifying_context

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nats.aio.client import Client
    from nats.js import JetStreamContext

    from eyot_cli.connection.command_client import CommandClient

DEFAULT_CONTROL = "/run/eyot/control.sock"
DEFAULT_SERVER = "nats://127.0.0.1:4222"
#: How long an answer may take without --timeout, seconds.
TIMEOUT_S = 5.0
#: Prefix of the JetStream API of the server itself.
OWN_API = "$JS.API"
#: Prefix of JetStream's advisories and metrics.
OWN_EVENTS = "$JS.EVENT"
#: Devices of a group that are asked at the same time.
AT_ONCE = 32
#: The commands that ask devices.
DEVICE_COMMANDS = "status, sync, doctor, top and support-bundle"
GROUP_COMMANDS = "status, sync, doctor and support-bundle"
T = TypeVar("T")
#: The resolver would say so of a name that Python cannot give it.
NOT_A_HOST = "not a host name"
#: Errors of the system that end a connection in use. nats-py keeps BrokenPipeError to itself: that one is standard output's.
_OF_CONNECTIONS = (TimeoutError, ConnectionResetError, ConnectionAbortedError)


@dataclass(frozen=True)
class TlsFiles:
    """A certificate authority, a client certificate, its key, and whether TLS comes before INFO."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    first: bool = False

    @property
    def are_given(self) -> bool:
        """Whether any of these requests TLS, whatever the address says (as in nats.go)."""
        return self.ca is not None or self.cert is not None or self.first

    def context(self) -> ssl.SSLContext:
        """Return a TLS context that verifies the server. Raises Failure."""
        try:
            context = verifying_context(self.ca)
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key)
        except OSError as error:
            files = ", ".join(str(each) for each in (self.ca, self.cert, self.key) if each is not None)
            raise Failure(f"{files}: {said(error)}") from error
        return context


@dataclass(frozen=True)
class Target:
    """The daemon: its control socket (or monitoring URL), and its NATS listener with credentials.

    The members hold what options and environment give. `server`, `domain` and a connection take what these leave open from the
    context of the `nats` tool.
    """

    control: str
    given_server: str | None
    user: str | None
    password: str | None
    creds: Path | None
    nkey: Path | None
    given_domain: str | None
    as_json: bool
    tls: TlsFiles
    #: name of the context; None: the selected one, if any; "": none
    context: str | None = None
    #: who logs in instead of what the options name: a user of the moment, whose seed is in no file
    login: Credentials | None = None
    #: what to do where the server does not take `login`
    login_remedy: str = "`eyot trust push -A` sends servers the accounts, and so the one that this login is of"
    #: subjects of answers begin with this; "": as the context says
    inbox_prefix: str = ""
    #: prefix of the JetStream API; None: that of the domain
    given_api_prefix: str | None = None
    #: prefix of JetStream's events; "": as the context says
    given_event_prefix: str = ""
    #: SOCKS5 proxy in front of the server; "": as the context says
    socks_proxy: str = ""
    #: how long an answer may take, seconds
    timeout_s: float = TIMEOUT_S
    #: name of the connection, which the server shows
    connection_name: str = "eyot"
    #: whether requests and their answers are shown on standard error
    trace: bool = False
    #: the device whose reports are asked for over NATS; "": the control socket's daemon
    device: str = ""
    #: the devices that are asked over NATS, one after the other: names and tags; "": none
    group: str = ""
    #: how many devices of the group are asked at the same time
    at_once: int = AT_ONCE

    def get(self, path: str) -> bytes:
        """Return the body of a page of the control socket or the monitoring port, or a device's. Raises Failure."""
        if self.device:
            from eyot_cli.connection.device import page

            return replace(self, device="").with_client(lambda client: page(client, self.device, path))
        if self.group:
            raise _here_only("--group", GROUP_COMMANDS)
        import httpx

        over_http = self.control.startswith(("http://", "https://"))
        transport = None if over_http else httpx.HTTPTransport(uds=self.control)
        base = self.control.rstrip("/") if over_http else "http://eyot"
        try:
            verify: ssl.SSLContext | bool = self.tls.context() if over_http else False
            with httpx.Client(transport=transport, timeout=self.timeout_s, verify=verify) as client:
                answer = client.get(base + path)
        except UnicodeError:  # of the codec for names of hosts
            raise Failure(f"no answer from {self.control}: {NOT_A_HOST}") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Failure(f"no answer from {self.control}: {_unanswered(error)}") from error
        if answer.status_code != 200:
            kind = NoSuchPage if answer.status_code == 404 else Failure
            raise kind(f"{self.control}{path} answered {answer.status_code}: {answer.text.strip()}")
        return answer.content

    def with_client(self, action: Callable[[CommandClient], Awaitable[T]]) -> T:
        """Run `action` with a connected NATS client. Raises Failure in the server's own words."""
        return self.with_clients(1, lambda clients: action(clients[0]))

    def with_clients(self, number: int, action: Callable[[list[CommandClient]], Awaitable[T]]) -> T:
        """Run `action` with so many connected NATS clients. Raises Failure in the server's own words."""
        if self.device:
            raise _here_only("--device", DEVICE_COMMANDS)
        if self.group:
            raise _here_only("--group", GROUP_COMMANDS)
        import asyncio

        from nats.errors import ConnectionClosedError
        from nats.errors import Error as NatsError
        from nats.js.errors import APIError, ServiceUnavailableError

        from eyot_cli.connection.socks import ProxyError

        clients: list[CommandClient] = []

        def lost() -> bool:
            return any(each.is_closed for each in clients)

        async def run() -> T:
            try:
                while len(clients) < number:
                    clients.append(await self._connect())
                try:
                    return await action(clients)
                except APIError as error:
                    if isinstance(error, ServiceUnavailableError) and error.err_code is None:  # nobody answered
                        raise no_jetstream(self.api_prefix, self.domain) from error
                    raise refusal(error.description, error.err_code) from error
                except Failure as error:
                    # What an action says of an answer that did not come in time.
                    if isinstance(error.__context__, TimeoutError) and lost():
                        raise self.gone() from error
                    raise
                except (NatsError, TimeoutError) as error:
                    if isinstance(error, TimeoutError | ConnectionClosedError) and lost():
                        raise self.gone() from error
                    raise _failed(error, next(filter(None, (each.refused() for each in clients)), "")) from error
            finally:
                for client in clients:
                    await client.close()

        try:
            return asyncio.run(run())
        except (NatsError, OSError, TimeoutError) as error:
            is_reached = not isinstance(error, OSError) or isinstance(error, ssl.SSLError | ProxyError)
            if len(clients) == number and not is_reached:
                if isinstance(error, _OF_CONNECTIONS):
                    raise self.gone() from error
                raise  # of a file that the action reads or writes, or of standard output
            remedy = self.login_remedy if self.login is not None else ""
            raise cannot_connect(self.shown_server, said(error), is_reached=is_reached, login_remedy=remedy) from error

    def gone(self) -> Failure:
        """Return the error of a connection that ended while a command waited."""
        return Failure(f"the connection to {self.shown_server} is gone")

    def context_name(self) -> str | None:
        """Return the name of the context in use: the named one, else the selected one. Raises Failure."""
        return contexts.selected() if self.context is None else self.context or None

    @cached_property
    def _context(self) -> contexts.NatsContext:
        name = self.context_name()
        return contexts.NatsContext() if name is None else contexts.usable(name)

    @property
    def server(self) -> str:
        """URL of the NATS listener, or several with commas between. Raises Failure."""
        return self.given_server or self._context.url or DEFAULT_SERVER

    @property
    def domain(self) -> str | None:
        """JetStream domain to ask instead of the server's own. Raises Failure."""
        if self.given_domain or self.given_api_prefix:
            return self.given_domain
        return self._context.jetstream_domain or None

    @property
    def api_prefix(self) -> str:
        """Prefix of the subjects of the JetStream API, without a dot at its end. Raises Failure."""
        if self.given_api_prefix and self.given_domain:
            raise Failure("--js-api-prefix and --domain exclude each other: a domain's prefix is $JS.DOMAIN.API")
        prefix = self.given_api_prefix or (None if self.domain else self._context.jetstream_api_prefix)
        return prefix.removesuffix(".") if prefix else f"$JS.{self.domain}.API" if self.domain else OWN_API

    @property
    def is_elsewhere(self) -> bool:
        """Whether the JetStream API is not that of the server itself. Raises Failure."""
        return self.api_prefix != OWN_API

    @property
    def event_prefix(self) -> str:
        """Prefix of the subjects of JetStream's advisories and metrics, without a dot at its end. Raises Failure."""
        return (self.given_event_prefix or self._context.jetstream_event_prefix or OWN_EVENTS).removesuffix(".")

    def _with_context(self) -> Target:
        """Return the target with the context's login and files where the options give none. Raises Failure."""
        found = self._context
        tls = TlsFiles(
            self.tls.ca or home_file(found.ca),
            self.tls.cert or home_file(found.cert),
            self.tls.key or (None if self.tls.cert else home_file(found.key)),
            self.tls.first or found.tls_first,
        )
        target = replace(self, given_server=self.server, tls=tls)
        if self.login or self.user is not None or self.creds is not None or self.nkey is not None:
            return target  # a login is taken whole, from one place
        if found.user:
            return replace(target, user=found.user, password=found.password)
        if found.creds or found.nkey:
            return replace(target, creds=home_file(found.creds), nkey=None if found.creds else home_file(found.nkey))
        return replace(target, user=found.token or None, password=None)

    @property
    def shown_server(self) -> str:
        """The server's URL without passwords."""
        return ",".join(map(without_login, self.server.split(",")))

    def jetstream(self, client: Client) -> JetStreamContext:
        return client.jetstream(prefix=self.api_prefix, timeout=self.timeout_s)

    async def _connect(self) -> CommandClient:
        """Connect to the first server that answers. Raises what the last one said."""
        from nats.errors import Error as NatsError

        target = self._with_context()
        *others, last = target.server.split(",")
        for each in others:
            with suppress(NatsError, OSError, TimeoutError):
                return await replace(target, given_server=each)._connect_to_one()
        return await replace(target, given_server=last)._connect_to_one()

    async def _connect_to_one(self) -> CommandClient:
        from nats.errors import NoServersError

        from eyot_cli.connection.command_client import CommandClient
        from eyot_cli.connection.secure_client import SecureClient
        from eyot_cli.connection.socks import SocksTransport, proxy_of

        errors: list[Exception] = []

        async def note(error: Exception) -> None:
            """Ignore the error: the one that ends the command is raised and printed once."""
            errors.append(error)
            client.note_error(error)

        if self.creds is not None and self.nkey is not None:
            raise Failure("both --creds and --nkey are given (or NATS_CREDS and NATS_NKEY): leave one out")
        if self.creds is not None:
            check_creds(self.creds)
        seed = None if self.nkey is None else read_seed(self.nkey)
        login = self.login
        inbox_prefix = self.inbox_prefix or self._context.inbox_prefix or "_INBOX"
        token = self.user if self.password is None else None
        scheme, separator, rest = self.server.strip().rpartition("://")
        scheme = scheme.lower()
        if scheme not in ("", "nats", "tls"):
            raise Failure(f"{self.shown_server}: expected nats://HOST:PORT or tls://HOST:PORT")
        client = SecureClient() if scheme == "tls" or self.tls.are_given else CommandClient()
        client.trace = self.trace
        if proxy := self.socks_proxy or self._context.socks_proxy:
            client.use_transport(SocksTransport(proxy_of(proxy)))
        try:
            await client.connect(
                scheme + separator + rest,
                user=self.user if self.password is not None else None,
                password=self.password,
                token=token,
                user_credentials=str(self.creds) if self.creds else None,
                nkeys_seed_str=seed,
                user_jwt_cb=None if login is None else lambda: bytearray(login.jwt.encode()),
                signature_cb=None if login is None else lambda nonce: login.sign(nonce).encode(),
                allow_reconnect=False,
                max_reconnect_attempts=1,  # 0 would mean 60 attempts, two seconds apart
                reconnect_time_wait=0,
                connect_timeout=max(1, math.ceil(self.timeout_s)),
                error_cb=note,
                closed_cb=client.note_closed,
                tls=self.tls.context(),
                tls_handshake_first=self.tls.first,
                name=self.connection_name,
                inbox_prefix=inbox_prefix,
            )
        except NoServersError:
            if errors and isinstance(errors[-1], UnicodeError):  # of the codec for names of hosts
                raise socket.gaierror(socket.EAI_NONAME, NOT_A_HOST) from None
            raise errors[-1] if errors else NoServersError from None
        return client


def _here_only(option: str, commands: str) -> Failure:
    return Failure(f"{option} is for {commands}: this command would act here, not on a device")


def _failed(error: Exception, refused: str) -> Failure:
    """Return the error of an action. `refused`: what the server refused meanwhile, which explains why an answer does not come."""
    from eyot_cli.connection.command_client import PermissionViolation

    if isinstance(error, PermissionViolation) or (refused and isinstance(error, TimeoutError)):
        return denied(refused if isinstance(error, TimeoutError) else said(error))
    if isinstance(error, TimeoutError):
        return Failure(f"{said(error)}: no answer came in time, and the log of the server may tell why")
    return Failure(said(error))


def _unanswered(error: Exception) -> str:
    """Return why the daemon did not answer, and the remedy."""
    text = str(error).partition("] ")[2] or str(error)
    if "Permission denied" in text:
        return "Permission denied: only root and members of the group that the daemon runs as may ask it"
    return (
        f"{text.rstrip('.')}: is eyotd running? `systemctl status eyotd` tells why not. "
        "Another daemon is named with --control PATH or --control http://HOST:PORT"
    )
