"""Payloads of every length over plain sockets, TLS and a leaf link at once, in pieces and at any pace; `make fuzz` plays many more."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.links.transport_crowd import TransportCrowd


@pytest.mark.parametrize("compression", ["off", "s2_fast"])
def test_every_payload_arrives_whole_and_in_order(compression: str, tmp_path: Path) -> None:
    with TransportCrowd(tmp_path, compression=compression) as crowd:
        for seed in range(4):
            crowd.exchange(seed)
