"""Request services of the system account, and those that every account has.

`$SYS.REQ.SERVER.PING[.X]`, `$SYS.REQ.SERVER.<id>.X` and `$SYS.REQ.ACCOUNT.<acc>.X` answer in the system account with
the monitoring pages. Every account may request `$SYS.REQ.USER.INFO` about its user, and
`$SYS.REQ.ACCOUNT.PING.{CONNZ,STATZ}` and `$SYS.REQ.SERVER.PING.CONNZ` about its own connections. Answers are
`{"server": {...}, "data": {...}}`. A request may filter servers by name, host, domain or tags; a server that does not
match stays silent.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, Protocol

import msgspec

from eyot_daemon.client.clients import Clients
from eyot_daemon.client.served import ServedClient
from eyot_daemon.config.permissions import Permissions, SubjectPermission
from eyot_daemon.monitor import accounts as monitor_accounts
from eyot_daemon.monitor import connz as monitor_connz
from eyot_daemon.monitor import process as monitor_process
from eyot_daemon.monitor import server as monitor_server
from eyot_daemon.monitor import system_requests as requests
from eyot_daemon.monitor.other_servers import OtherServers
from eyot_daemon.monitor.server import CpuMeter
from eyot_daemon.monitor.system_events import SystemEvents
from eyot_daemon.router.account import Account
from eyot_daemon.router.imports import REQUEST_INFO
from eyot_daemon.router.providers import Json
from eyot_daemon.router.subscription import IMPORTED, CallbackDest, Kind, Origin, SubjectSpace, Subscription
from eyot_daemon.turn.slices import Slices
from eyot_daemon.version import VERSION
from eyot_wire.go.time import ns_to_rfc3339
from eyot_wire.headers import get
from eyot_wire.jetstream.struct import InvalidJson

log = logging.getLogger("eyot.system")


class Service(NamedTuple):
    """A service. `options`: type of the request; `data`: (options) -> the answer's `data` or `Slices` of it, `SILENT` for no answer."""

    options: type[requests.EventFilterOptions]
    data: Callable[[Any], object]


class _Silent:
    """A request that is left without an answer."""


SILENT = _Silent()
_NO_REQUESTS: Counter[str] = Counter()


class Steering(Protocol):
    """Commands of the system account to the daemon."""

    def reload(self) -> str:
        """Reload the configuration; return the error, "" for success."""
        ...

    def lame_duck(self) -> None: ...


class SystemServices:
    """Subscribes the services of one server. Made once, after the accounts."""

    def __init__(self, clients: Clients, steering: Steering | None = None) -> None:
        self.clients = clients
        self._steering = steering
        self.broker = clients.broker
        self.broker.server_info = self.server_info
        self._cpu = CpuMeter()
        self._seq = 0
        self.events = SystemEvents(clients, self.server_info, self._statsz)
        self._others = OtherServers(self.broker, self.events.announce)

    def start(self) -> None:
        """Subscribe in the system account and in all others, those made later included."""
        self.events.start()
        self._others.start()
        self.broker.account_listeners.append(self._serve_account)
        for account in tuple(self.broker.each_account()):
            self._serve_account(account)
        system = self.broker.system_account
        if system is None:
            return
        own = f"$SYS.REQ.SERVER.{self.broker.server_id}."
        subjects = ["$SYS.REQ.SERVER.PING"]
        for name in ("STATSZ", "IDZ", *self._server_services()):
            subjects += [f"$SYS.REQ.SERVER.PING.{name}", own + name]
        if self._steering is not None:
            subjects += [own + "RELOAD", own + "LDM", own + "KICK"]
        for subject in subjects:
            system.subscribe(subject.encode(), CallbackDest(self._server_request, Kind.SYSTEM, "server"))
        # One by one: an unknown request ends with "no responders".
        for name in ("CONNS", *self._account_services("")):
            dest = CallbackDest(self._account_request, Kind.SYSTEM, "account")
            system.subscribe(b"$SYS.REQ.ACCOUNT.*.%b" % name.encode(), dest)
        system.subscribe(b"$SYS.DEBUG.SUBSCRIBERS", CallbackDest(self._count_subscribers, Kind.SYSTEM, "subscribers"))

    def _serve_account(self, account: Account) -> None:
        account.subscribe(b"$SYS.REQ.USER.INFO", CallbackDest(self._user_info, Kind.SYSTEM, "user info"))
        if not account.is_system:
            for subject in (
                b"$SYS.REQ.ACCOUNT.PING.CONNZ",
                b"$SYS.REQ.ACCOUNT.PING.STATZ",
                b"$SYS.REQ.SERVER.PING.CONNZ",
            ):
                account.subscribe(subject, CallbackDest(self._own_account, Kind.SYSTEM, "own account"))

    # -- requests ------------------------------------------------------------------------------------------------

    def _server_request(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> None:
        what = subject.rpartition(b".")[2].decode("utf-8", "replace")
        if what in ("PING", "STATSZ"):
            self._answer(sub.account, reply, payload, self._statsz_service, member="statsz")
            return
        if what in ("RELOAD", "LDM", "KICK"):
            self._steer(what, sub.account, reply, payload)
            return
        if what == "IDZ":
            broker = self.broker
            identity = {"name": broker.server_name, "host": broker.options.host, "id": broker.server_id}
            sub.account.publish(reply, payload=msgspec.json.encode(identity))
            return
        service = self._server_services().get(what)
        if service is not None:
            self._answer(sub.account, reply, payload, service)

    def _steer(self, what: str, account: SubjectSpace, reply: bytes, payload: bytes) -> None:
        """Handle `RELOAD`, and `LDM` and `KICK` (`{"cid": n}`) for one connection; a malformed request is not answered."""
        answer: Json = {}
        if what == "RELOAD":
            assert self._steering is not None
            wrong = self._steering.reload()
            if wrong:
                answer = {"error": {"code": 500, "description": wrong}}
        else:
            try:
                wrong = self._let_go(what, requests.read(requests.Chosen, payload).cid)
            except InvalidJson as error:
                log.error("Error unmarshalling kick client request: %s", error)
                return
            if wrong:
                answer = {"error": {"code": 500, "description": wrong}}
        if reply:
            account.publish(reply, payload=msgspec.json.encode({"server": self.server_info()} | answer))

    def _let_go(self, what: str, cid: int) -> str:
        """Carry out the request; return the error."""
        client = self.clients.connections.get(cid)
        if what == "LDM":
            if client is None:
                return "no such client id"
            if not client.connected or client.protocol < 1:
                return "client does not support Lame Duck Mode or is not ready to receive the notification"
            client.send_lame_duck()
            return ""
        link = self.broker.links.connections.get(cid)
        if client is not None:
            client.close("Kicked", linger=True)
        elif link is not None:
            link.close(reason="Kicked")
        else:
            return "no such client or leafnode id"
        return ""

    def _server_services(self) -> dict[str, Service]:
        clients, broker = self.clients, self.broker
        return {
            "VARZ": Service(
                requests.VarzEventOptions, lambda asked: monitor_server.varz(clients, self._cpu, _NO_REQUESTS)
            ),
            "SUBSZ": Service(requests.SubszEventOptions, lambda asked: monitor_accounts.subsz(broker, asked.query())),
            "CONNZ": Service(requests.ConnzEventOptions, lambda asked: monitor_connz.connz(clients, asked.query())),
            "ROUTEZ": Service(requests.RoutezEventOptions, lambda asked: monitor_server.routez(clients)),
            "GATEWAYZ": Service(requests.GatewayzEventOptions, lambda asked: monitor_server.gatewayz(clients)),
            "LEAFZ": Service(requests.LeafzEventOptions, lambda asked: monitor_accounts.leafz(broker, asked.query())),
            "ACCOUNTZ": Service(
                requests.AccountzEventOptions, lambda asked: monitor_accounts.accountz(broker, asked.account)
            ),
            "JSZ": Service(requests.JszEventOptions, lambda asked: monitor_accounts.jsz(broker, asked.query())),
            "HEALTHZ": Service(requests.HealthzEventOptions, self._healthz),
            "EXPVARZ": Service(requests.ExpvarzEventOptions, lambda asked: monitor_process.expvarz()),
            "IPQUEUESZ": Service(requests.IpqueueszEventOptions, lambda asked: {}),
            "RAFTZ": Service(requests.RaftzEventOptions, lambda asked: {}),
            "PROFILEZ": Service(requests.ProfilezEventOptions, _profilez),
        }

    @property
    def _statsz_service(self) -> Service:
        return Service(requests.StatszEventOptions, lambda asked: self._statsz())

    def _healthz(self, asked: requests.HealthzEventOptions) -> Json:
        """Unlike the page over HTTP, which has a status line, the answer holds the code."""
        code, page = monitor_server.healthz(self.clients, asked.query())
        return {"status": page.pop("status"), "status_code": code} | page

    def _account_request(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> None:
        tokens = subject.decode("utf-8", "replace").split(".")
        name = tokens[3]
        if tokens[4] == "CONNS":
            self._connections(sub.account, name, reply, payload)
            return
        service = self._account_services("" if (name, tokens[4]) == ("PING", "STATZ") else name).get(tokens[4])
        if service is not None:
            self._answer(sub.account, reply, payload, service)

    def _account_services(self, name: str) -> dict[str, Service]:
        """Return the services for one account; for `STATZ` the name "" means all accounts."""
        clients, broker = self.clients, self.broker
        return {
            "SUBSZ": Service(
                requests.SubszEventOptions, lambda asked: monitor_accounts.subsz(broker, asked.query(name))
            ),
            "CONNZ": Service(requests.ConnzEventOptions, lambda asked: monitor_connz.connz(clients, asked.query(name))),
            "LEAFZ": Service(
                requests.LeafzEventOptions, lambda asked: monitor_accounts.leafz(broker, asked.query(name))
            ),
            "JSZ": Service(
                requests.JszEventOptions, lambda asked: monitor_accounts.jsz_account(broker, asked.query(name))
            ),
            "INFO": Service(
                requests.AccInfoEventOptions,
                lambda asked: monitor_accounts.accountz(broker, name)["account_detail"],
            ),
            "STATZ": Service(requests.AccountStatzEventOptions, lambda asked: self._statz(asked, name)),
        }

    def _connections(self, system: SubjectSpace, name: str, reply: bytes, payload: bytes) -> None:
        """Answer `CONNS` with an event; an account without connections does not answer."""
        try:
            asked = requests.read(requests.AccountConnections, payload).acc or name
        except InvalidJson as error:
            log.error("Error unmarshalling account connections request message: %s", error)
            return
        account = self.broker.accounts.get(name)
        if asked == name and account is not None and account.connections and reply:
            system.publish(reply, payload=msgspec.json.encode(self.events.account_connections(account)))

    def _count_subscribers(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> None:
        """`$SYS.DEBUG.SUBSCRIBERS`: how many subscribe to a subject, and to a queue group of it, in the requester's account."""
        account = self._requester(header) if origin is IMPORTED else self.broker.accounts.get(sub.account.name)
        if account is None or not reply:
            return
        wanted, _, queue = payload.strip().partition(b" ")
        count = monitor_accounts.count_subscribers(account, wanted, queue)
        sub.account.publish(reply, payload=b"%d" % count)

    def _requester(self, header: bytes) -> Account | None:
        """Return the account whose import brought a request, as the import says in the request's header."""
        asked = requests.read(requests.Requester, get(header, REQUEST_INFO) or b"")
        return self.broker.accounts.get(asked.svc or asked.acc)

    def _own_account(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> None:
        name = sub.account.name
        service = self._account_services(name)["STATZ" if subject.endswith(b"STATZ") else "CONNZ"]
        self._answer(sub.account, reply, payload, service)

    def _user_info(
        self, sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> None:
        if not isinstance(origin, ServedClient):
            return  # over a leaf link, the server the user is connected to answers
        data: Json = {"user": origin.user, "account": sub.account.name, "account_name": sub.account.name_tag}
        token = origin.token
        if token is not None and token.claims.name:
            data["user_name"] = token.claims.name
        if origin.access is not None:
            data["permissions"] = _permissions(origin.access.permissions)
        left_s = (origin.expires_ns - self.broker.clock.now_ns()) // 10**9
        if left_s > 0:
            data["expires"] = left_s * 10**9
        self._answer(sub.account, reply, b"", Service(requests.EventFilterOptions, lambda asked: data))

    # -- answers -------------------------------------------------------------------------------------------------

    def _answer(
        self, account: SubjectSpace, reply: bytes, payload: bytes, service: Service, member: str = "data"
    ) -> None:
        if not reply:
            return

        def data() -> Slices[object]:
            asked = requests.read(service.options, payload)
            if not self._is_meant(asked):
                return SILENT
            found = service.data(asked)
            return (yield from found) if isinstance(found, Generator) else found

        self._go_on(data(), account, reply, member)

    def _go_on(self, data: Slices[object], account: SubjectSpace, reply: bytes, member: str) -> None:
        """Do one slice of an answer, and the others in later turns; answer at the end."""
        answer: Json = {}
        try:
            next(data)
        except StopIteration as end:
            if end.value is SILENT:
                return
            answer[member] = end.value
        except InvalidJson as error:
            answer["error"] = {"code": 400, "description": str(error)}
        except ValueError as error:
            answer |= {"data": None, "error": {"code": 500, "description": str(error)}}
        except KeyError as error:
            text = f"Account {error.args[0]} does not exist"
            answer |= {"data": None, "error": {"code": 500, "description": text}}
        else:
            self.broker.later_turns.add(lambda: self._go_on(data, account, reply, member))
            return
        account.publish(reply, payload=msgspec.json.encode({"server": self.server_info()} | answer))

    def _is_meant(self, wanted: requests.EventFilterOptions) -> bool:
        """Return whether the request's filter includes this server."""
        options = self.broker.options
        domain = options.jetstream.domain if options.jetstream is not None else ""
        exact = wanted.exact_match
        for name, own, whole in (
            (wanted.server_name, self.broker.server_name, exact),
            (wanted.host, options.host, exact),
            (wanted.domain, domain, True),
            (wanted.cluster, self.broker.cluster, exact),
        ):
            if name and (own != name if whole else name not in own):
                return False
        return all(tag.lower() in options.server_tags for tag in wanted.tags)

    def server_info(self) -> Json:
        """Return the `server` of an answer or event."""
        self._seq += 1
        options = self.broker.options
        info: Json = {"name": self.broker.server_name, "host": options.host, "id": self.broker.server_id}
        if self.broker.cluster:
            info["cluster"] = self.broker.cluster
        if options.jetstream is not None and options.jetstream.domain:
            info["domain"] = options.jetstream.domain
        info["ver"] = VERSION
        if options.server_tags:
            info["tags"] = list(options.server_tags)
        info |= {
            "jetstream": options.jetstream is not None,
            "flags": 0,
            "seq": self._seq,
            "time": ns_to_rfc3339(self.broker.clock.now_ns()),
        }
        return info

    def _statsz(self) -> Json:
        broker, traffic = self.broker, self.clients.traffic()
        figures: Json = {
            "start": ns_to_rfc3339(broker.started_ns),
            "mem": monitor_server.memory_bytes(),
            "cores": monitor_server.cores(),
            "gomaxprocs": 1,
            "cpu": self._cpu.percent(),
            "connections": len(self.clients.connections),
            "total_connections": broker.connections_total,
            "active_accounts": sum(bool(one.connections or one.leafnodes) for one in broker.each_account()),
            "subscriptions": broker.subscriptions,
            "sent": {"msgs": broker.out_msgs, "bytes": broker.out_bytes},
            "sent_to_clients": {"msgs": traffic.out_msgs, "bytes": traffic.out_bytes},
            "received": {"msgs": broker.in_msgs, "bytes": broker.in_bytes},
            "received_from_clients": {"msgs": traffic.in_msgs, "bytes": traffic.in_bytes},
            "slow_consumers": broker.slow_consumers,
            "active_servers": 1 + self._others.count(),
        }
        jetstream = broker.providers.jetstream_varz()
        if jetstream:
            config = {name: value for name, value in jetstream["config"].items() if name != "store_dir"}
            figures["jetstream"] = jetstream | {"config": config}
        return figures

    def _statz(self, asked: requests.AccountStatzEventOptions, name: str) -> object:
        page = monitor_accounts.accstatz(
            self.broker, unused=asked.include_unused, names=[name] if name else asked.accounts
        )
        return page if page["account_statz"] or asked.include_unused else SILENT


def _profilez(asked: requests.ProfilezEventOptions) -> Json:
    """Profiles are made by Go's runtime; there are none of Python's."""
    text = f'Profile "{asked.name}" not found' if asked.name else "Profile name not specified"
    return {"profile": None, "error": text}


def _permissions(permissions: Permissions) -> Json:
    """Return a user's permissions as `$SYS.REQ.USER.INFO` shows them."""
    shown: Json = {}
    for key, part in (("publish", permissions.publish), ("subscribe", permissions.subscribe)):
        listed = _subjects(part)
        if listed:
            shown[key] = listed
    responses = permissions.allow_responses
    if responses is not None:
        shown["responses"] = {"max": responses.max_messages, "ttl": int(responses.expires_s * 1e9)}
    return shown


def _subjects(part: SubjectPermission) -> Json:
    listed: Json = {}
    if part.allow is not None:
        listed["allow"] = [subject.decode("utf-8", "replace") for subject in part.allow]
    if part.deny:
        listed["deny"] = [subject.decode("utf-8", "replace") for subject in part.deny]
    return listed
