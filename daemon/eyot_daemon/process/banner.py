"""The lines at start that people and launchers look for, in nats-server's words."""

from __future__ import annotations

import logging
import platform
import sys

from eyot_daemon.config.jetstream import JetStreamOptions
from eyot_daemon.config.reader import Reading
from eyot_daemon.router.broker import Broker
from eyot_daemon.version import VERSION

log = logging.getLogger("eyot")

PAYLOAD_WARN_BYTES = 8 * 1024 * 1024


def log_banner(broker: Broker, reading: Reading) -> None:
    """Log the server's identity, and warnings about the configuration."""
    options = broker.options
    log.info("Starting eyotd (nats-server protocol %s)", VERSION)
    log.info("  Version:  %s", VERSION)
    log.debug("  Python:   %s on %s", platform.python_version(), sys.platform)
    log.info("  Name:     %s", broker.server_name)
    log.info("  ID:       %s", broker.server_id)
    if reading.plaintext_passwords:
        log.warning("Plaintext passwords detected, use nkeys or bcrypt")
    if options.max_payload > PAYLOAD_WARN_BYTES:
        log.warning("Maximum payloads over 8.00 MB are generally discouraged and could lead to poor performance")
    if options.config_file:
        log.info("Using configuration file: %s (%s)", options.config_file, options.config_digest)
    log_warnings(reading)


def log_warnings(reading: Reading, known: Reading | None = None) -> None:
    """Log what a configuration's reader warns of, except what it warned of at `known`."""
    before = set() if known is None else {*known.warnings, *known.notes}
    for warning in (*reading.warnings, *reading.notes):
        if warning not in before:
            log.warning("%s", warning)


def log_jetstream(jetstream: JetStreamOptions, store_path: str) -> None:
    """Log JetStream's part of the start."""
    log.info("---------------- JETSTREAM ----------------")
    log.info("  Max Memory:      %s", friendly_bytes(jetstream.memory_max))
    log.info("  Max Storage:     %s", friendly_bytes(jetstream.file_max))
    log.info('  Store Directory: "%s"', store_path)
    if jetstream.domain:
        log.info("  Domain:          %s", jetstream.domain)
    log.info("-------------------------------------------")


def friendly_bytes(size: int) -> str:
    """Return a size as nats-server prints it, `95.37 MB`; -1: no limit of its own."""
    if size < 0:
        return "unlimited"
    if size < 1024:
        return f"{size} B"
    power = min((size.bit_length() - 1) // 10, 6)
    return f"{size / 1024**power:.2f} {'KMGTPE'[power - 1]}B"
