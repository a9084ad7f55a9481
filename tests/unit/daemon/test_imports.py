"""Stream and service imports across accounts."""

import json
import random
from typing import Any

import msgspec
import pytest

from eyot_daemon.config.accounts import AccountOptions, ExportOptions, ImportOptions
from eyot_daemon.config.options import Options
from eyot_daemon.router import service_replies as service_replies_module
from eyot_daemon.router.account import Account
from eyot_daemon.router.account_setup import add_domain_mappings, set_up_accounts
from eyot_daemon.router.broker import Broker
from eyot_daemon.router.imports import REQUEST_INFO
from eyot_daemon.router.service_replies import service_replies
from eyot_daemon.router.subscription import CallbackDest, Kind, Origin, Subscription
from eyot_wire.headers import get as get_field
from support.clients.destinations import Client, LeafRecorder, Recorder
from support.manual_clock import ManualClock
from support.servers.broker import running


class Accounts:
    """Two accounts, E exporting to I."""

    def __init__(self, exports: list[ExportOptions], imports: list[ImportOptions]) -> None:
        self.clock = ManualClock()
        options = Options(
            accounts=(
                AccountOptions(name="E", exports=tuple(exports)),
                AccountOptions(name="I", imports=tuple(imports)),
            )
        )
        self.broker = Broker(options, clock=self.clock, rng=random.Random(1))
        set_up_accounts(self.broker, options)
        self.exporter: Account = self.broker.accounts["E"]
        self.importer: Account = self.broker.accounts["I"]

    def serve(self, subject: bytes, answers: list[bytes], queue: bytes = b"") -> Recorder:
        """A service in E that answers each request with `answers`; the Recorder holds the requests."""
        seen = Recorder()

        def answer(
            sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
        ) -> None:
            seen.deliver(sub, subject, reply, header, payload, origin)
            for text in answers:
                self.exporter.publish(reply, payload=text)

        self.exporter.subscribe(subject, CallbackDest(answer, Kind.SYSTEM), queue=queue)
        return seen


def streams(subject: bytes, **changes: bytes) -> Accounts:
    return Accounts(
        [ExportOptions(kind="stream", subject=subject)],
        [ImportOptions(kind="stream", account="E", subject=subject, **changes)],
    )


def services(
    subject: bytes, *, to: bytes = b"", response: str = "singleton", threshold_s: float = 120.0, share: bool = False
) -> Accounts:
    export = ExportOptions(kind="service", subject=subject, response_type=response, response_threshold_s=threshold_s)  # type: ignore[arg-type]
    return Accounts([export], [ImportOptions(kind="service", account="E", subject=subject, to=to, share=share)])


# -- streams


def test_an_imported_stream_arrives_under_its_own_name() -> None:
    accounts = streams(b"news.>")
    reader, outsider = Recorder(), Recorder()
    accounts.importer.subscribe(b"news.*", reader)
    accounts.importer.subscribe(b"other", outsider)
    assert accounts.exporter.publish(b"news.eu", payload=b"1") == 1
    assert accounts.exporter.publish(b"news.eu.fr", payload=b"2") == 0
    assert accounts.exporter.publish(b"other") == 0
    assert accounts.importer.publish(b"news.local") == 1
    assert reader.subjects == [b"news.eu", b"news.local"]


@pytest.mark.parametrize(
    ("subject", "changes", "wanted", "published", "arrives"),
    [
        (b"news.>", {"prefix": b"from.e"}, b"from.e.news.eu", b"news.eu", b"from.e.news.eu"),
        (b"news.>", {"prefix": b"from.e"}, b"from.>", b"news.eu", b"from.e.news.eu"),
        (b"news.>", {"prefix": b"from.e"}, b">", b"news.eu", b"from.e.news.eu"),
        (b"news.>", {"prefix": b"from.e"}, b"from.*.news.*", b"news.eu", b"from.e.news.eu"),
        (b"news.>", {"prefix": b"from.e"}, b"from.e.*.eu", b"news.us", None),
        (b"news.>", {"prefix": b"from.e"}, b"news.eu", b"news.eu", None),
        (b"a.*.b.*", {"to": b"x.$2.$1"}, b"x.*.1", b"a.1.b.2", b"x.2.1"),
        (b"a.*.b.*", {"to": b"x.$2.$1"}, b"x.2.*", b"a.1.b.3", None),
        (b"a.*.b.*", {"to": b"x.{{wildcard(2)}}.$1"}, b"x.>", b"a.1.b.2", b"x.2.1"),
        (b"a.*", {"to": b"b.*"}, b"b.1", b"a.1", b"b.1"),
        (b"one", {"to": b"two"}, b"two", b"one", b"two"),
        (b"one", {"to": b"two"}, b"*", b"one", b"two"),
    ],
)
def test_imported_streams_are_renamed(
    subject: bytes, changes: dict[str, bytes], wanted: bytes, published: bytes, arrives: bytes | None
) -> None:
    accounts = streams(subject, **changes)
    reader = Recorder()
    accounts.importer.subscribe(wanted, reader)
    assert accounts.exporter.publish(published) == (arrives is not None)
    assert reader.subjects == ([] if arrives is None else [arrives])


def test_the_interest_goes_with_the_subscription() -> None:
    accounts = streams(b"news.>", prefix=b"p")
    sub = accounts.importer.subscribe(b"p.news.eu", Recorder())
    assert [shadow.subject for shadow in accounts.exporter.subscriptions()] == [b"news.eu"]
    accounts.importer.unsubscribe(sub)
    assert not len(accounts.exporter.sublist)
    assert not len(accounts.importer.sublist)


def test_subscriptions_made_before_the_import_are_joined() -> None:
    broker = Broker(clock=ManualClock())
    early = Recorder()
    broker.add_account("I").subscribe(b"news.eu", early)
    options = Options(
        accounts=(
            AccountOptions(name="E", exports=(ExportOptions(kind="stream", subject=b"news.>"),)),
            AccountOptions(name="I", imports=(ImportOptions(kind="stream", account="E", subject=b"news.>"),)),
        )
    )
    set_up_accounts(broker, options)
    assert broker.accounts["E"].publish(b"news.eu") == 1
    assert early.subjects == [b"news.eu"]


def test_queue_groups_span_the_import() -> None:
    accounts = streams(b"work", to=b"jobs")
    members = [Recorder(), Recorder()]
    for member in members:
        accounts.importer.subscribe(b"jobs", member, queue=b"q")
    for _ in range(40):
        assert accounts.exporter.publish(b"work") == 1
    assert sum(len(member.got) for member in members) == 40
    assert all(member.got for member in members)


def test_a_leaf_link_of_the_importer_gets_one_message_under_the_importers_name() -> None:
    accounts = streams(b"news.>", prefix=b"p")
    leaf = LeafRecorder()
    accounts.importer.subscribe(b"p.news.>", leaf)
    accounts.importer.subscribe(b"p.news.eu", leaf)
    accounts.importer.subscribe(b"p.news.*", leaf, queue=b"q")
    assert accounts.exporter.publish(b"news.eu", b"r", payload=b"x") == 1
    assert [(got.subject, got.reply, got.queues) for got in leaf.got] == [(b"p.news.eu", b"r", (b"q",))]


def test_jetstream_deliveries_keep_their_subject_through_an_import() -> None:
    accounts = streams(b"deliver.>")
    reader = Recorder()
    accounts.importer.subscribe(b"deliver.x", reader)
    accounts.exporter.publish(b"deliver.x", b"$JS.ACK.S.C.1.1.1.1.0", payload=b"m", original=b"orders.1")
    assert [(got.subject, got.reply) for got in reader.got] == [(b"orders.1", b"$JS.ACK.S.C.1.1.1.1.0")]


# -- services


def test_a_request_crosses_and_its_reply_comes_back() -> None:
    accounts = services(b"svc.*")
    requests = accounts.serve(b"svc.*", [b"yes", b"again"])
    asker = Recorder()
    accounts.importer.subscribe(b"_INBOX.1", asker)
    assert accounts.importer.publish(b"svc.a", b"_INBOX.1", payload=b"?", origin=Client()) == 1
    assert requests.subjects == [b"svc.a"]
    assert requests.got[0].reply.startswith(b"_R_.")
    # response type singleton: one reply, the second finds nobody
    assert asker.payloads == [b"yes"]
    assert not service_replies(accounts.exporter).awaited


@pytest.mark.parametrize(
    ("subject", "to", "asked", "arrives"),
    [
        (b"svc.a", b"local.b", b"local.b", b"svc.a"),
        (b"$JS.hub.API.>", b"JS.acc@hub.API.>", b"JS.acc@hub.API.INFO", b"$JS.hub.API.INFO"),
        (b"svc.*.*", b"l.*.*", b"l.1.2", b"svc.1.2"),
        (b"svc.*.*", b"l.$2.$1", b"l.1.2", b"svc.2.1"),
    ],
)
def test_services_may_be_renamed(subject: bytes, to: bytes, asked: bytes, arrives: bytes) -> None:
    accounts = services(subject, to=to)
    requests = accounts.serve(b">", [])
    accounts.importer.publish(asked, payload=b"?")
    assert requests.subjects == [arrives]


def test_streams_of_replies_last_until_the_threshold_passes_in_silence() -> None:
    accounts = services(b"svc", response="stream", threshold_s=10.0)
    accounts.serve(b"svc", [b"1", b"2", b""])
    asker = Recorder()
    accounts.importer.subscribe(b"_INBOX.1", asker)
    accounts.importer.publish(b"svc", b"_INBOX.1", origin=Client())
    assert asker.payloads == [b"1", b"2", b""]
    replies = service_replies(accounts.exporter)
    (reply,) = replies.awaited
    accounts.clock.advance(8)
    accounts.broker.timers.run_due(accounts.clock.monotonic())
    accounts.exporter.publish(reply, payload=b"3")
    accounts.clock.advance(8)
    accounts.broker.timers.run_due(accounts.clock.monotonic())
    accounts.exporter.publish(reply, payload=b"4")
    assert asker.payloads[3:] == [b"3", b"4"]
    accounts.clock.advance(11)
    accounts.broker.timers.run_due(accounts.clock.monotonic())
    assert accounts.exporter.publish(reply, payload=b"5") == 0
    assert replies.expired == 1


def test_one_importer_does_not_push_out_what_another_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_replies_module, "REPLIES_MAX", 8)
    accounts = services(b"svc")
    replies, others = service_replies(accounts.exporter), accounts.broker.add_account("O")
    first = replies.expect(accounts.importer, b"_INBOX.1", "singleton", 120.0)
    flood = [replies.expect(others, b"_INBOX.%d" % number, "singleton", 120.0) for number in range(40)]
    assert list(replies.awaited) == [first, *flood[-7:]]
    assert replies.given_up == 33
    more = [replies.expect(accounts.importer, b"_INBOX.2", "singleton", 120.0) for _ in range(5)]
    assert list(replies.awaited) == [*flood[-4:], *more[1:]], "who asks as much as the others gives up his own"
    for subject in tuple(replies.awaited):
        replies.forget(subject)
    assert not replies._of


@pytest.mark.parametrize("share", [False, True])
def test_a_request_that_a_consumer_delivers_says_whose_it_is(share: bool) -> None:
    """What JetStream publishes is the account's; a header that it stored is a client's word."""
    accounts = services(b"svc", share=share)
    requests = accounts.serve(b"svc", [])
    accounts.importer.publish(b"svc", payload=b"1")
    accounts.importer.publish(b"svc", header=b'NATS/1.0\r\nNats-Request-Info: {"acc":"ADMIN"}\r\n\r\n', payload=b"2")
    told = [msgspec.json.decode(get_field(got.header, REQUEST_INFO) or b"{}") for got in requests.got]
    assert [one["acc"] for one in told] == ["I", "I"]


def test_a_status_does_not_end_chunked_replies() -> None:
    accounts = services(b"svc", response="chunked")
    asker = Recorder()
    accounts.importer.subscribe(b"_INBOX.1", asker)
    requests = accounts.serve(b"svc", [])
    accounts.importer.publish(b"svc", b"_INBOX.1", origin=Client())
    reply = requests.got[0].reply
    for header, payload in ((b"NATS/1.0 100\r\n\r\n", b""), (b"", b"1"), (b"", b""), (b"", b"late")):
        accounts.exporter.publish(reply, header=header, payload=payload, origin=Client())
    assert asker.payloads == [b"", b"1", b""]


def test_chunked_replies_end_with_an_empty_one() -> None:
    accounts = services(b"svc", response="chunked")
    accounts.serve(b"svc", [b"1", b"2", b"", b"late"])
    asker = Recorder()
    accounts.importer.subscribe(b"_INBOX.1", asker)
    accounts.importer.publish(b"svc", b"_INBOX.1", origin=Client())
    assert asker.payloads == [b"1", b"2", b""]


def test_nobody_there_is_told_as_nobody_there() -> None:
    accounts = services(b"svc")
    assert accounts.importer.has_interest(b"svc")
    assert accounts.importer.publish(b"svc", b"_INBOX.1", origin=Client()) == 0
    assert not service_replies(accounts.exporter).awaited


def test_acknowledgements_keep_their_subject() -> None:
    accounts = services(b"$JS.ACK.S.C.>")
    acks = accounts.serve(b"$JS.ACK.S.C.>", [])
    accounts.importer.publish(b"$JS.ACK.S.C.1.1.1.1.0", payload=b"+ACK", origin=Client())
    assert acks.subjects == [b"$JS.ACK.S.C.1.1.1.1.0"]


def test_pulled_messages_come_back_with_their_subject_and_ack_reply() -> None:
    accounts = services(b"$JS.API.CONSUMER.MSG.NEXT.S.C", to=b"next", response="stream")
    requests = accounts.serve(b"$JS.API.CONSUMER.MSG.NEXT.S.C", [])
    asker, leaf = Recorder(), LeafRecorder()
    accounts.importer.subscribe(b"_INBOX.1", asker)
    accounts.importer.subscribe(b"_INBOX.1", leaf)
    accounts.importer.publish(b"next", b"_INBOX.1", origin=Client())
    ack = b"$JS.ACK.S.C.1.7.1.1.0"
    accounts.exporter.publish(requests.got[0].reply, ack, payload=b"m", original=b"orders.1")
    assert [(got.subject, got.reply, got.payload) for got in asker.got] == [(b"orders.1", ack, b"m")]
    assert [(got.subject, got.reply) for got in leaf.got] == [(b"_INBOX.1", ack + b"@orders.1")]


def test_the_exporters_mappings_apply() -> None:
    accounts = services(b"$JS.hub.API.>", to=b"JS.acc@hub.API.>")
    add_domain_mappings(accounts.exporter, "hub")
    requests = accounts.serve(b"$JS.API.>", [])
    accounts.importer.publish(b"JS.acc@hub.API.STREAM.NAMES")
    assert requests.subjects == [b"$JS.API.STREAM.NAMES"]


@pytest.mark.parametrize("share", [False, True])
def test_an_imported_service_learns_the_account_that_asks(share: bool) -> None:
    accounts = services(b"svc", share=share)
    requests = accounts.serve(b"svc", [])
    claim = b'NATS/1.0\r\nNats-Request-Info: {"acc":"forged"}\r\n\r\n'
    accounts.importer.publish(b"svc", b"_INBOX.1", claim, payload=b"?", origin=Client())
    info = request_info(requests.got[0].header)
    assert info["acc"] == "I"
    assert ("server" in info) == share


def request_info(header: bytes) -> dict[str, Any]:
    name, _, value = header.split(b"\r\n")[1].partition(b": ")
    assert name == b"Nats-Request-Info"
    found: dict[str, Any] = json.loads(value)
    return found


def test_a_responder_that_expects_an_answer_gets_one() -> None:
    accounts = services(b"svc")
    requests = accounts.serve(b"svc", [])
    asker, responder = Recorder(), Recorder()
    accounts.importer.subscribe(b"_INBOX.1", asker)
    accounts.exporter.subscribe(b"back", responder)
    accounts.importer.publish(b"svc", b"_INBOX.1", origin=Client())
    accounts.exporter.publish(requests.got[0].reply, b"back", payload=b"and you?")
    accounts.importer.publish(asker.got[0].reply, payload=b"me too")
    assert responder.payloads == [b"me too"]


def test_a_service_may_be_chained_through_three_accounts() -> None:
    clock = ManualClock()
    options = Options(
        accounts=(
            AccountOptions(name="A", exports=(ExportOptions(kind="service", subject=b"svc"),)),
            AccountOptions(
                name="B",
                exports=(ExportOptions(kind="service", subject=b"mid"),),
                imports=(ImportOptions(kind="service", account="A", subject=b"svc", to=b"mid"),),
            ),
            AccountOptions(name="C", imports=(ImportOptions(kind="service", account="B", subject=b"mid", to=b"end"),)),
        )
    )
    broker = Broker(options, clock=clock)
    set_up_accounts(broker, options)
    provider, asker = broker.accounts["A"], Recorder()

    def answer(
        sub: Subscription, subject: bytes, reply: bytes, header: bytes, payload: bytes, origin: Origin | None
    ) -> None:
        info = request_info(header)
        assert (info["acc"], info["svc"]) == ("C", "B")
        provider.publish(reply, payload=b"from A")

    provider.subscribe(b"svc", CallbackDest(answer, Kind.SYSTEM))
    broker.accounts["C"].subscribe(b"_INBOX.1", asker)
    assert broker.accounts["C"].publish(b"end", b"_INBOX.1", origin=Client()) == 1
    assert asker.payloads == [b"from A"]


async def test_a_shared_import_describes_the_client() -> None:
    options = Options(
        host="127.0.0.1",
        port=-1,
        server_name="edge",
        accounts=(
            AccountOptions(name="E", exports=(ExportOptions(kind="service", subject=b"svc"),)),
            AccountOptions(
                name="$G", imports=(ImportOptions(kind="service", account="E", subject=b"svc", share=True),)
            ),
        ),
    )
    async with running(options) as up:
        seen = Recorder()
        up.broker.accounts["E"].subscribe(b"svc", seen)
        client = await up.raw(b'CONNECT {"verbose":false,"name":"app","lang":"c","version":"3"}\r\n')
        await client.ask(b"PUB svc r 0\r\n\r\n")
        info = json.loads(seen.got[0].header.split(b"\r\n")[1].partition(b": ")[2])
        assert (info["acc"], info["name"], info["lang"], info["ver"]) == ("$G", "app", "c", "3")
        assert (info["host"], info["id"], info["server"]) == ("127.0.0.1", 1, "edge")
