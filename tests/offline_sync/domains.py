"""Domains of simulated nodes: a node's first is its name, `leaf1`; a leaf node that is renamed continues as `leaf1-2`."""

from __future__ import annotations

from typing import Any

import msgspec

Config = dict[str, Any]


def renamed(config: Config, before: str, after: str) -> Config:
    """A configuration that names the domain `after` where it named `before`."""
    text = msgspec.json.encode(config).replace(f'"$JS.{before}.API"'.encode(), f'"$JS.{after}.API"'.encode())
    changed: Config = msgspec.json.decode(text)
    return changed


def node_of(domain: str) -> str:
    """Whose domain that is or was."""
    return domain.partition("-")[0]
