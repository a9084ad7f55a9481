"""Certificates of this server's own that are out of date, or soon will be: at a device that nobody visits, the link fails first."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from eyot_daemon.config.options import Options
from eyot_daemon.config.tls import TlsOptions

if TYPE_CHECKING:
    from cryptography import x509

#: So long beforehand it is told that a certificate expires.
SOON = datetime.timedelta(days=7)


def own_certificates(options: Options) -> list[str]:
    """The files of all certificates that this server shows: to clients, leafs, browsers, and by remotes to hubs. Each once."""
    leaf_links = options.leafnodes
    blocks: list[TlsOptions | None] = [options.tls]  # the monitoring pages show it, too
    blocks.append(None if options.websocket is None else options.websocket.tls)
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


def out_of_date(options: Options, now: datetime.datetime) -> Iterator[str]:
    """A line for each file with a certificate that is not good at `now` (with a time zone) or for `SOON` from then on.

    A file that cannot be had is passed over: whoever needs it says so.
    """
    for file in own_certificates(options):
        try:
            pem = Path(file).read_bytes()
        except OSError:
            continue
        trouble = _trouble(pem, now)
        if trouble:
            yield f"TLS certificate {file} {trouble}"


def not_after(file: str) -> datetime.datetime | None:
    """Until when the first certificate of a file is good; None where that cannot be had. Read again when the file has changed."""
    try:
        return _not_after(file, Path(file).stat().st_mtime_ns)
    except (OSError, ValueError):
        return None


@lru_cache(maxsize=32)
def _not_after(file: str, _changed_ns: int) -> datetime.datetime:
    from cryptography import x509

    return x509.load_pem_x509_certificates(Path(file).read_bytes())[0].not_valid_after_utc


def _trouble(pem: bytes, now: datetime.datetime) -> str:
    """What is wrong with the dates of a certificate, or else of the issuers' that come along with it; "" if nothing is."""
    from cryptography import x509

    try:
        chain = x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        return f"cannot be looked at, when it expires is not known: {error}"
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
