"""Expiry of this server's own certificates: on an unattended device the failing link would otherwise be the first sign."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from eyot_daemon.config.options import Options
from eyot_daemon.config.tls import TlsOptions
from eyot_wire.status import CertificateStatus

if TYPE_CHECKING:
    from cryptography import x509

#: How long before its expiry a certificate is reported.
SOON = datetime.timedelta(days=7)


def own_certificates(options: Options) -> list[str]:
    """Return the files of all certificates that this server presents to clients, leaf nodes, browsers and hubs, each once."""
    leaf_links = options.leafnodes
    blocks: list[TlsOptions | None] = [options.tls]  # the monitoring pages show it, too
    blocks.append(None if options.websocket is None else options.websocket.tls)
    blocks.append(None if options.mqtt is None else options.mqtt.tls)
    blocks.append(None if leaf_links.port is None else leaf_links.tls)
    blocks += [remote.tls for remote in leaf_links.remotes if not remote.disabled]
    files = [
        file
        for block in blocks
        if block is not None
        for file in (block.cert_file, *(more for more, _ in block.more_certs))
        if file
    ]
    return list(dict.fromkeys(files))


def certificates_of(options: Options, now_ns: int) -> list[CertificateStatus]:
    """Return this server's own certificates, the first to expire first."""
    now = datetime.datetime.fromtimestamp(now_ns / 1e9, datetime.UTC)
    found = []
    for file in own_certificates(options):
        ends = not_after(file)
        found.append(
            CertificateStatus(
                file=file,
                not_after=None if ends is None else ends.strftime("%Y-%m-%dT%H:%M:%SZ"),
                trouble=trouble_of(file, now) or (None if ends is not None else "cannot be read"),
            )
        )
    return sorted(found, key=lambda each: each.not_after or "")


def out_of_date(options: Options, now: datetime.datetime) -> Iterator[tuple[str, str]]:
    """Yield each file with a certificate that is invalid at `now` (with a time zone) or within `SOON` after, and the problem.

    An unreadable file is skipped: the code that needs it reports it.
    """
    for file in own_certificates(options):
        trouble = trouble_of(file, now)
        if trouble:
            yield file, trouble


def trouble_of(file: str, now: datetime.datetime) -> str:
    """Return the problem with the dates of a file's certificates at `now`; "" without one, or if the file is unreadable."""
    try:
        return _trouble(_chain(file), now)
    except OSError:
        return ""
    except ValueError as error:
        return f"cannot be looked at, when it expires is not known: {error}"


def not_after(file: str) -> datetime.datetime | None:
    """Return the expiry of a file's first certificate, or None."""
    try:
        return _chain(file)[0].not_valid_after_utc
    except (OSError, ValueError):
        return None


def _chain(file: str) -> list[x509.Certificate]:
    """Return a file's certificates; a changed file is read again. Raises OSError, ValueError."""
    return _read(file, Path(file).stat().st_mtime_ns)


@lru_cache(maxsize=32)
def _read(file: str, _changed_ns: int) -> list[x509.Certificate]:
    from cryptography import x509

    return x509.load_pem_x509_certificates(Path(file).read_bytes())


def _trouble(chain: list[x509.Certificate], now: datetime.datetime) -> str:
    """Return the problem with the dates of a certificate or of its accompanying issuers; "" if there is none."""
    for place, certificate in enumerate(chain):
        trouble = _dates(certificate, now)
        if trouble:
            return trouble if place == 0 else f"holds one of {certificate.subject.rfc4514_string()}, which {trouble}"
    return ""


def _dates(certificate: x509.Certificate, now: datetime.datetime) -> str:
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > ends:
        return f"has expired: it was valid until {_formatted(ends)}"
    if now < begins:
        return f"is not valid yet: by the clock here it will be from {_formatted(begins)} on"
    if ends - now < SOON:
        return f"expires soon: it is valid until {_formatted(ends)}"
    return ""


def _formatted(time: datetime.datetime) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC")
