"""Routing within an account: plain, queue groups, leaf links, mappings, JetStream deliveries."""

import random
from collections import Counter

import pytest

from eyot_daemon.router.account import Account
from eyot_daemon.router.broker import Broker
from eyot_daemon.router.subscription import Kind, Subscription
from eyot_wire.mapping import WeightedDest
from support.clients.destinations import Client, LeafRecorder, Recorder
from support.manual_clock import ManualClock


@pytest.fixture
def account() -> Account:
    return Broker(clock=ManualClock(), rng=random.Random(7)).global_account


def test_every_matching_plain_subscription_gets_the_message(account: Account) -> None:
    one, two, other = Recorder(), Recorder(), Recorder()
    account.subscribe(b"foo.bar", one)
    account.subscribe(b"foo.*", two)
    account.subscribe(b"foo.>", two)
    account.subscribe(b"bar", other)
    assert account.publish(b"foo.bar", b"r", b"NATS/1.0\r\n\r\n", b"hi") == 3
    assert one.subjects == [b"foo.bar"]
    assert [got.sub.subject for got in two.got if got.sub] == [b"foo.*", b"foo.>"]
    assert not other.got
    assert (one.got[0].reply, one.got[0].header, one.got[0].payload) == (b"r", b"NATS/1.0\r\n\r\n", b"hi")


def test_routes_follow_subscriptions_that_come_and_go(account: Account) -> None:
    one, two = Recorder(), Recorder()
    first = account.subscribe(b"a", one)
    assert account.publish(b"a") == 1
    second = account.subscribe(b">", two)
    assert account.publish(b"a") == 2
    account.unsubscribe(first)
    account.unsubscribe(first)
    assert account.publish(b"a") == 1
    account.unsubscribe(second)
    assert account.publish(b"a") == 0
    assert not account.has_interest(b"a")


def test_a_queue_group_spreads_messages_over_its_members(account: Account) -> None:
    members = [Recorder() for _ in range(3)]
    plain = Recorder()
    for member in members:
        account.subscribe(b"work", member, queue=b"q")
    account.subscribe(b"work", plain)
    for _ in range(300):
        assert account.publish(b"work") == 2
    counts = [len(member.got) for member in members]
    assert sum(counts) == 300
    assert min(counts) > 60
    assert len(plain.got) == 300


def test_a_member_that_refuses_is_passed_over(account: Account) -> None:
    broken, good = Recorder(refuses=True), Recorder()
    account.subscribe(b"work", broken, queue=b"q")
    account.subscribe(b"work", good, queue=b"q")
    for _ in range(20):
        assert account.publish(b"work") == 1
    assert len(good.got) == 20
    good.refuses = True
    assert account.publish(b"work") == 0


def test_groups_of_the_same_name_on_different_patterns_are_one_group(account: Account) -> None:
    one, two = Recorder(), Recorder()
    account.subscribe(b"work.a", one, queue=b"q")
    account.subscribe(b"work.*", two, queue=b"q")
    for _ in range(50):
        assert account.publish(b"work.a") == 1
    assert len(one.got) + len(two.got) == 50


def test_a_leaf_link_gets_one_message_however_many_of_its_subscriptions_match(account: Account) -> None:
    leaf = LeafRecorder()
    for subject in (b"a.b", b"a.*", b">"):
        account.subscribe(subject, leaf)
    account.subscribe(b"a.b", leaf, queue=b"q1", weight=2)
    account.subscribe(b"a.>", leaf, queue=b"q2")
    assert account.publish(b"a.b", payload=b"x") == 1
    assert [(got.subject, set(got.queues)) for got in leaf.got] == [(b"a.b", {b"q1", b"q2"})]


def test_local_members_are_preferred_over_leaf_links(account: Account) -> None:
    local, leaf = Recorder(), LeafRecorder()
    account.subscribe(b"work", leaf, queue=b"q", weight=5)
    member = account.subscribe(b"work", local, queue=b"q")
    for _ in range(10):
        account.publish(b"work")
    assert (len(local.got), len(leaf.got)) == (10, 0)
    local.refuses = True
    account.publish(b"work")
    assert [got.queues for got in leaf.got] == [(b"q",)]
    account.unsubscribe(member)
    account.publish(b"work")
    assert len(leaf.got) == 2


def test_leaf_links_are_drawn_by_weight(account: Account) -> None:
    light, heavy = LeafRecorder(), LeafRecorder()
    account.subscribe(b"work", light, queue=b"q", weight=1)
    sub = account.subscribe(b"work", heavy, queue=b"q", weight=1)
    for _ in range(400):
        account.publish(b"work")
    assert abs(len(light.got) - len(heavy.got)) < 120
    account.set_weight(sub, 9)
    light.got.clear()
    heavy.got.clear()
    for _ in range(400):
        account.publish(b"work")
    assert len(heavy.got) > 5 * len(light.got)


def test_nothing_goes_back_to_the_leaf_link_it_came_from(account: Account) -> None:
    leaf, other, local = LeafRecorder(), LeafRecorder(), Recorder()
    for dest in (leaf, other):
        account.subscribe(b"a", dest)
        account.subscribe(b"a", dest, queue=b"q")
    account.subscribe(b"a", local)
    assert account.publish(b"a", origin=leaf, queues=(b"q",)) == 2
    assert not leaf.got
    assert [got.queues for got in other.got] == [(b"q",)]
    assert len(local.got) == 1


def test_a_leaf_message_reaches_only_the_groups_the_peer_chose(account: Account) -> None:
    leaf, plain, in_one, in_two = LeafRecorder(), Recorder(), Recorder(), Recorder()
    account.subscribe(b"a", plain)
    account.subscribe(b"a", in_one, queue=b"one")
    account.subscribe(b"a", in_two, queue=b"two")
    account.publish(b"a", origin=leaf, queues=())
    account.publish(b"a", origin=leaf, queues=(b"two", b"nobody"))
    assert (len(plain.got), len(in_one.got), len(in_two.got)) == (2, 0, 1)


def test_a_link_that_does_not_accept_is_not_chosen(account: Account) -> None:
    closed, open_ = LeafRecorder(denied=frozenset({b"a"})), LeafRecorder()
    for dest in (closed, open_):
        account.subscribe(b"a", dest)
        account.subscribe(b"a", dest, queue=b"q")
    for _ in range(20):
        assert account.publish(b"a") == 1
    assert not closed.got
    assert len(open_.got) == 20


def test_jetstream_deliveries_show_the_original_subject(account: Account) -> None:
    client, leaf = Recorder(), LeafRecorder()
    account.subscribe(b"deliver.x", client)
    account.subscribe(b"deliver.x", leaf)
    ack = b"$JS.ACK.S.C.1.2.3.4.5"
    account.publish(b"deliver.x", ack, payload=b"m", original=b"orders.eu")
    assert [(got.subject, got.reply) for got in client.got] == [(b"orders.eu", ack)]
    assert [(got.subject, got.reply) for got in leaf.got] == [(b"deliver.x", ack + b"@orders.eu")]
    # heartbeats and flow control have no original subject
    account.publish(b"deliver.x", b"$JS.FC.S.C.x", b"NATS/1.0 100 FlowControl Request\r\n\r\n")
    assert leaf.got[-1].reply == b"$JS.FC.S.C.x"


def test_jetstream_deliveries_from_a_leaf_are_split_for_locals_and_passed_on_to_leafs(account: Account) -> None:
    origin, client, further = LeafRecorder(), Recorder(), LeafRecorder()
    account.subscribe(b"deliver.x", client)
    account.subscribe(b"deliver.*", further)
    reply = b"$JS.ACK.S.C.1.2.3.4.5@o@rders"
    account.publish(b"deliver.x", reply, payload=b"m", origin=origin, queues=())
    assert [(got.subject, got.reply) for got in client.got] == [(b"o@rders", b"$JS.ACK.S.C.1.2.3.4.5")]
    assert [(got.subject, got.reply) for got in further.got] == [(b"deliver.x", reply)]


def test_mappings_apply_to_clients_and_leaf_links_only(account: Account) -> None:
    mapped, literal = Recorder(), Recorder()
    account.subscribe(b"b.1", mapped)
    account.subscribe(b"a.1", literal)
    account.mappings.add(b"a.*", [b"b.$1"])
    account.publish(b"a.1", origin=Client())
    account.publish(b"a.1", origin=LeafRecorder(), queues=())
    account.publish(b"a.1")
    assert mapped.subjects == [b"b.1", b"b.1"]
    assert literal.subjects == [b"a.1"]


def test_a_mapping_lifts_the_queue_filter_of_a_leaf_message(account: Account) -> None:
    member = Recorder()
    account.subscribe(b"b", member, queue=b"q")
    account.mappings.add(b"a", [b"b"])
    account.publish(b"a", origin=LeafRecorder(), queues=())
    assert len(member.got) == 1


def test_lossy_mappings_drop(account: Account) -> None:
    dest = Recorder()
    account.subscribe(b"a", dest)
    account.mappings.add(b"a", [WeightedDest(b"a", 50)])
    for _ in range(200):
        account.publish(b"a", origin=Client())
    assert 50 < len(dest.got) < 150


def test_interest_listeners_hear_of_every_change(account: Account) -> None:
    class Listener:
        def __init__(self) -> None:
            self.heard: list[tuple[str, bytes]] = []

        def sub_added(self, sub: Subscription) -> None:
            self.heard.append(("+", sub.subject))

        def sub_removed(self, sub: Subscription) -> None:
            self.heard.append(("-", sub.subject))

        def weight_changed(self, sub: Subscription, previous: int) -> None:
            self.heard.append((f"{previous}>{sub.weight}", sub.subject))

    listener = Listener()
    account.add_interest_listener(listener)
    sub = account.subscribe(b"a", LeafRecorder(), queue=b"q", weight=1)
    account.set_weight(sub, 4)
    account.set_weight(sub, 4)
    account.unsubscribe(sub)
    account.remove_interest_listener(listener)
    account.subscribe(b"b", Recorder())
    assert listener.heard == [("+", b"a"), ("1>4", b"a"), ("-", b"a")]


def test_traffic_is_counted(account: Account) -> None:
    """What streams and the daemon's own services take has not left it."""
    account.subscribe(b"a", Recorder())
    account.subscribe(b"a", Recorder(kind=Kind.CLIENT))
    account.publish(b"a", header=b"NATS/1.0\r\n\r\n", payload=b"1234")
    assert (account.out_msgs, account.out_bytes) == (1, 16)
    account.subscribe(b"a", LeafRecorder())
    account.publish(b"a", header=b"NATS/1.0\r\n\r\n", payload=b"1234")
    assert (account.out_msgs, account.out_bytes) == (3, 3 * 16)
    account.count_in(3, 30)
    assert (account.in_msgs, account.in_bytes, account.broker.in_msgs) == (3, 30, 3)


def test_accounts_are_apart() -> None:
    broker = Broker(clock=ManualClock())
    one, two = broker.add_account("ONE"), broker.add_account("TWO")
    here, there = Recorder(), Recorder()
    one.subscribe(b">", here)
    two.subscribe(b">", there)
    one.publish(b"x")
    assert Counter(here=len(here.got), there=len(there.got)) == Counter(here=1, there=0)


def test_a_subscription_removed_during_a_delivery_gets_nothing_more(account: Account) -> None:
    class Remover(Recorder):
        def deliver(self, *args: object, **kwargs: object) -> bool:
            account.unsubscribe(victim_sub)
            return True

    victim = Recorder()
    account.subscribe(b"a", Remover())
    victim_sub = account.subscribe(b"a", victim)
    assert account.publish(b"a") == 1
    assert not victim.got
