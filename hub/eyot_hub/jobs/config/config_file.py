"""Reads the jobs' configuration file: TOML, and secrets from the environment or files. Every error names file and key."""

from __future__ import annotations

import os
import re
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import msgspec

from eyot_hub.errors import OptionError
from eyot_hub.jobs.config.config import (
    Bronze,
    Column,
    Config,
    ConfigError,
    DeviceAge,
    FleetStatus,
    Gaps,
    Gold,
    IcebergCatalog,
    Lake,
    Name,
    Retention,
    Run,
    Silver,
)
from eyot_hub.jobs.config.config_check import problems
from eyot_hub.jobs.config.rules import QualitySettings
from eyot_hub.jobs.config.settings_check import dotted, has_control, key_of
from eyot_hub.jobs.payloads.schemas import SchemaSettings

#: Tables whose keys are not fixed: the types of their keys and values.
_OPEN_TABLES: Final[dict[str, tuple[Any, Any]]] = {
    "columns": (Name, str | Column),
    "storage_options": (str, str),
    "properties": (str, str),
}
_OF_NAME: Final = "key` in `"
_MISSING: Final = re.compile(r"Object missing required field `(.*)`")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`")


def load(path: str | Path) -> Config:
    """Read a configuration file. Raises ConfigError."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")  # some editors put a mark before the text
        parsed = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: values are nested too deeply") from None
    return convert(parsed, str(path))


def convert(parsed: dict[str, Any], where: str) -> Config:
    """Convert parsed TOML to a configuration. Raises ConfigError, whose text begins with `where`."""
    parsed = _with_schema_secrets(_with_storage_secrets(parsed, where), where)
    try:
        config = msgspec.convert(parsed, Config)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `")
        raise ConfigError(f"{where}: {_misfit(problem, _named_key(place, parsed))}") from None
    config.nats.update(_secrets(config.nats, where, "nats"))
    config.spark = dotted(config.spark)
    try:
        for key, problem in problems(config):
            raise ConfigError(f"{where}: {key}: {problem}")
        config.source()
    except OptionError as error:
        raise ConfigError(f"{where}: {key_of(error.option)}: {error.problem}") from None
    return config


def _named_key(place: str, parsed: dict[str, Any]) -> str:
    """Return the key at which msgspec found a misfit (`$.lake.path`); it leaves out the names of a table's own keys."""
    of_name = place.startswith(_OF_NAME)
    key = place.removeprefix(_OF_NAME).strip("$.`")
    before, unnamed, after = key.partition("[...]")
    if not (of_name or unnamed):
        return key
    section: Any = parsed
    for name, number in re.findall(r"(\w+)|\[(\d+)\]", before):
        section = section[name or int(number)]
    names, values = _OPEN_TABLES[before.rpartition(".")[2]]
    for name, value in section.items():
        try:
            msgspec.convert(*((name, names) if of_name else (value, values)))
        except msgspec.ValidationError:
            return f"{before}.{name}{after}"
    return key


def _misfit(problem: str, key: str) -> str:
    """Describe a mismatch, key first; for an unknown key, suggest a known one."""
    unknown = _UNKNOWN.fullmatch(problem)
    missing = _MISSING.fullmatch(problem)
    if missing is not None:
        return f"{key and f'{key}.'}{missing[1]}: is missing"
    if unknown is None:
        return f"{key or 'file'}: {problem[0].lower()}{problem[1:]}"
    sections = {
        "": Config,
        "lake": Lake,
        "lake.catalog": IcebergCatalog,
        "bronze": Bronze,
        "gaps": Gaps,
        "fleet": FleetStatus,
        "run": Run,
        "retention": Retention,
    }
    section: Any = {**sections, "quality": QualitySettings}.get(key)
    if key.endswith("]") and ".quality[" in key:
        return f"{key}.{unknown[1]}: there is no such key of this rule"
    if key.startswith("retention.devices["):
        section = DeviceAge
    if key.startswith("silver["):
        section = SchemaSettings if key.endswith(".schema") else Column if ".columns" in key else Silver
    if section is None:
        section = Gold
    like = get_close_matches(unknown[1], section.__struct_fields__, n=1)
    return f"{key and f'{key}.'}{unknown[1]}: there is no such key{f', did you mean {like[0]}?' if like else ''}"


def _with_storage_secrets(parsed: dict[str, Any], where: str) -> dict[str, Any]:
    """Resolve the secrets of the storage and the catalog. A section of another shape is left to the check of types."""
    lake = parsed.get("lake")
    if not isinstance(lake, dict):
        return parsed
    made, options = dict(lake), lake.get("storage_options")
    if isinstance(options, dict):
        made["storage_options"] = {**options, **_secrets(options, where, "lake.storage_options")}
    catalog = lake.get("catalog")
    if isinstance(catalog, dict):
        made["catalog"] = {
            **catalog,
            **_secrets({k: v for k, v in catalog.items() if k == "uri"}, where, "lake.catalog"),
        }
        properties = catalog.get("properties")
        if isinstance(properties, dict):
            found = _secrets(properties, where, "lake.catalog.properties")
            made["catalog"]["properties"] = {**properties, **found}
    return {**parsed, "lake": made}


def _with_schema_secrets(parsed: dict[str, Any], where: str) -> dict[str, Any]:
    """Resolve the secrets in the sections [silver.schema]."""
    tables = parsed.get("silver")
    if not isinstance(tables, list):
        return parsed
    found = []
    for index, silver in enumerate(tables):
        schema = silver.get("schema") if isinstance(silver, dict) else None
        if isinstance(silver, dict) and isinstance(schema, dict):
            secrets = _secrets(schema, where, f"silver[{index}].schema")
            silver = {**silver, "schema": {**schema, **secrets}}
        found.append(silver)
    return {**parsed, "silver": found}


def _secrets(section: dict[str, Any], where: str, name: str) -> dict[str, str]:
    """Resolve values given as `{ env = "NAME" }` or `{ file = "PATH" }`, which keep secrets out of the file."""
    found = {}
    for key, value in section.items():
        if isinstance(value, dict):
            try:
                found[key] = _secret(value)
            except ValueError as error:
                raise ConfigError(f"{where}: {name}.{key}: {error}") from None
    return found


def _secret(given: dict[str, Any]) -> str:
    """Read one secret. Raises ValueError."""
    kind, place = next(iter(given.items()), ("", ""))
    if len(given) != 1 or kind not in ("env", "file") or not isinstance(place, str) or has_control(place):
        raise ValueError('must be a text, { env = "NAME" } or { file = "PATH" }')
    try:
        return os.environ[place] if kind == "env" else Path(place).read_text(encoding="utf-8").strip()
    except KeyError:
        raise ValueError(f"the environment variable {place} is not set") from None
    except UnicodeDecodeError:
        raise ValueError(f"{place}: is not UTF-8 text") from None
    except OSError as error:
        raise ValueError(f"{place}: {error.strerror or error}") from None
