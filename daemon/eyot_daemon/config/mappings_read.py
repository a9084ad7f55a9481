"""Reading `mappings { source: destination | [destinations] }`."""

from __future__ import annotations

from eyot_daemon.config.accounts import MappingDestination, MappingOptions
from eyot_daemon.config.reader import Block, expect_integer, expect_string, wrong_type
from eyot_wire import subject
from eyot_wire.conf import ConfEntry, ConfError, ConfMap, ConfValue
from eyot_wire.digits import parse_uint
from eyot_wire.mapping import Mapping, WeightedDest
from eyot_wire.transform import TransformError


def read_mappings(parent: Block, *keys: str) -> tuple[MappingOptions, ...]:
    """Read mappings in order of declaration; the weights of a cluster add up to at most 100."""
    entry = parent.entry(*keys)
    if entry is None:
        return ()
    if not isinstance(entry.value.value, ConfMap):
        raise wrong_type("a map", entry.value, entry.key)
    return tuple(_read_mapping(parent, mapping) for mapping in entry.value.value if not mapping.used_as_variable)


def _read_mapping(parent: Block, mapping: ConfEntry) -> MappingOptions:
    if not subject.is_valid(mapping.key.encode()):
        raise ConfError(f'Subject "{mapping.key}" is not a valid subject', mapping.position, mapping.key)
    value = mapping.value
    listed = value.value if isinstance(value.value, tuple) else (value,)
    destinations = tuple(_read_destination(parent, element, mapping.key) for element in listed)
    try:
        Mapping(
            mapping.key.encode(), [WeightedDest(one.subject.encode(), one.weight, one.cluster) for one in destinations]
        )
    except TransformError as error:
        raise ConfError(str(error), value.position, mapping.key) from None
    return MappingOptions(source=mapping.key, destinations=destinations)


def _read_destination(parent: Block, value: ConfValue, key: str) -> MappingDestination:
    if isinstance(value.value, str):
        return MappingDestination(subject=value.value)
    block = parent.nested(value, key)
    destination = block.string("dest", "destination")
    if not destination:
        raise block.error("a mapping needs a destination", "dest", "destination")
    weight = _read_weight(block, destination)
    mapped = MappingDestination(subject=destination, weight=weight, cluster=block.string("cluster"))
    block.finish()
    return mapped


def _read_weight(block: Block, destination: str) -> int:
    entry = block.entry("weight")
    if entry is None:
        raise block.error(f'missing weight for mapping destination "{destination}"', "weight")
    if isinstance(entry.value.value, str):
        number = parse_uint(expect_string(entry.value, entry.key).strip().removesuffix("%"))
        weight = -1 if number is None else number
    else:
        weight = expect_integer(entry.value, entry.key)
    if not 0 <= weight <= 100:
        raise ConfError("expected a weight from 0 to 100", entry.value.position, entry.key)
    return weight
