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
    Config,
    ConfigError,
    DeviceAge,
    FleetStatus,
    Gaps,
    Gold,
    IcebergCatalog,
    Lake,
    Retention,
    Run,
    Silver,
)
from eyot_hub.jobs.config.config_check import problems
from eyot_hub.jobs.config.rules import QualitySettings

_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`")


def load(path: str | Path) -> Config:
    """Read a configuration file. Raises ConfigError."""
    try:
        text = Path(path).read_text()
        parsed = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}") from None
    return convert(parsed, str(path))


def convert(parsed: dict[str, Any], where: str) -> Config:
    """Convert parsed TOML to a configuration. Raises ConfigError, whose text begins with `where`."""
    parsed = _with_schema_secrets(_with_storage_secrets(parsed, where), where)
    try:
        config = msgspec.convert(parsed, Config)
    except msgspec.ValidationError as error:
        problem, _, key = str(error).partition(" - at `$")
        raise ConfigError(f"{where}: {_misfit(problem, key.strip('.`'))}") from None
    config.nats.update(_secrets(config.nats, where, "nats"))
    try:
        for key, problem in problems(config):
            raise ConfigError(f"{where}: {key}: {problem}")
        config.source()
    except OptionError as error:
        key = {"stream": "bronze.streams", "startingOffsets": "bronze.start"}.get(error.option, f"nats.{error.option}")
        raise ConfigError(f"{where}: {key}: {error}") from None
    return config


def _misfit(problem: str, key: str) -> str:
    """Describe a mismatch, key first; for an unknown key, suggest a known one."""
    unknown = _UNKNOWN.fullmatch(problem)
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
    if section is None:
        section = Silver if key.startswith("silver") else Gold
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
            place = f"{where}: {name}.{key}"
            if set(value) == {"env"}:
                if value["env"] not in os.environ:
                    raise ConfigError(f"{place}: the environment variable {value['env']} is not set")
                found[key] = os.environ[value["env"]]
            elif set(value) == {"file"}:
                try:
                    found[key] = Path(value["file"]).read_text().strip()
                except OSError as error:
                    raise ConfigError(f"{place}: {value['file']}: {error.strerror or error}") from None
            else:
                raise ConfigError(f"{place}: must be a text, {{ env = ... }} or {{ file = ... }}")
    return found
