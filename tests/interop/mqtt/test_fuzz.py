"""A short run of MQTT's fuzzing with fixed seeds (see `support/mqtt/fuzz.py`, which `make fuzz` runs for long)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.mqtt.faults import faults, faulty_connects
from support.mqtt.fuzz import Brokers


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with Brokers(tmp_path_factory.mktemp("fuzz")) as running:
        yield running
        running.check_processes()


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_conversations_from_the_grammar(brokers: Brokers, first: int) -> None:
    for seed in range(first, first + 20):
        brokers.converse(seed)


@pytest.mark.parametrize("first", range(0, 90, 30))
def test_damaged_conversations(brokers: Brokers, first: int) -> None:
    for seed in range(first, first + 30):
        brokers.damage(seed)


def test_each_forbidden_packet_ends_its_connection(brokers: Brokers) -> None:
    for seed in range(max(4 * len(faults(4)), 4 * len(faults(5)), len(faulty_connects()))):
        brokers.faults(seed)
