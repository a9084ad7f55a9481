"""What a command can refuse before Spark starts, which takes seconds, and on a cluster takes its share of it."""

from __future__ import annotations

import errno
import os
from argparse import Namespace
from pathlib import Path
from typing import Final

from eyot_hub.connection import check_files
from eyot_hub.errors import OptionError
from eyot_hub.jobs.config.config import Config, ConfigError
from eyot_hub.jobs.config.config_check import page_problem
from eyot_hub.jobs.lake.lake import check_format
from eyot_hub.jobs.tables.kept_format import MARKS
from eyot_wire import subject

#: Commands that read or write bronze as a table; made beside plain Parquet, it would be an empty one in the same folder.
_OF_A_TABLE: Final = ("aggregate", "backfill", "gaps", "fleet", "report", "run", "explain", "erase")
_CONNECTS: Final = ("ingest", "gaps", "devices", "report", "run")


def check_command(config: Config, options: Namespace) -> None:
    """Raise ConfigError where the command's options or what the configuration names do not fit, HubError without pyiceberg."""
    command, where = options.command, options.config
    parquet = config.bronze.format == "parquet"
    if parquet and command in _OF_A_TABLE:
        raise ConfigError(f"{where}: bronze.format: {command} needs a table, not parquet")
    if command == "devices":
        if not config.silver and not config.fleet.subjects:
            raise ConfigError(f"{where}: devices needs a silver table or fleet.subjects")
        config.checkpoint(command)
    if command == "ingest" and parquet:
        config.checkpoint("bronze")
    if command == "backfill":
        _check_tables(config, options)
    if command == "erase":
        _check_erasure(options)
    if command == "report":
        _check_page(options.output)
    check_format(config.lake)
    _check_kept_format(config, where)
    if command in _CONNECTS:
        try:
            check_files(config.source().read.connect)
        except OptionError as error:
            raise ConfigError(f"{where}: nats.{error.option}: {error.problem}") from None


def _check_kept_format(config: Config, where: str) -> None:
    """Refuse a lake on this machine that has tables of the other format. On object storage, the first new table is refused."""
    bronze = Path(config.lake.path, "bronze")
    has = {name for name, mark in MARKS.items() if (bronze / mark).is_dir()}
    if has and config.lake.format not in has:
        raise ConfigError(
            f"{where}: lake.format: {config.lake.path} holds tables of format {has.pop()}; name another lake.path"
        )


def _check_tables(config: Config, options: Namespace) -> None:
    known = {one.name for one in config.silver} | {one.name for one in config.gold}
    for name in options.tables:
        if name not in known:
            raise ConfigError(f"{options.config}: there is no silver or gold table {name!r}")


def _check_erasure(options: Namespace) -> None:
    for pattern in options.subject:
        if not subject.is_valid(pattern.encode()):
            raise ConfigError(f"--subject: {pattern!r} is no subject")
    if options.resume and options.subject:
        raise ConfigError(
            "--subject: cannot be used together with --resume, which finishes erasures as they were asked for"
        )


def _check_page(page: str) -> None:
    if problem := page_problem(page):
        raise ConfigError(f"--output: {problem}")
    if not os.access(page if os.path.exists(page) else Path(page).parent, os.W_OK):
        raise ConfigError(f"--output: {page}: {os.strerror(errno.EACCES)}")
