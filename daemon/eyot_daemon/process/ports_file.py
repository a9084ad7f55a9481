"""The ports file, in which a launcher that requested port -1 reads the actual ports.

It is nats-server's file: `nats-server_<pid>.ports` in `ports_file_dir`, JSON with the URLs of each listener, written
atomically and removed at the end.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import socket
import struct
from pathlib import Path

import msgspec
from msgspec import Struct

_SIOCGIFADDR = 0x8915


class Ports(Struct, omit_defaults=True, kw_only=True):
    """Lists of URLs; a listener that does not exist is left out."""

    nats: list[str] = []
    monitoring: list[str] = []
    websocket: list[str] = []
    mqtt: list[str] = []  # nats-server leaves it out
    leafnodes: list[str] = []


def urls(scheme: str, host: str, port: int) -> list[str]:
    """URLs under which a listener can be reached from here: every local address if it listens on all of them."""
    hosts = local_addresses(with_ipv6=host == "::") if host in ("", "0.0.0.0", "::") else [host]
    return [f"{scheme}://{f'[{one}]' if ':' in one else one}:{port}" for one in hosts]


def local_addresses(*, with_ipv6: bool) -> list[str]:
    """Addresses of this machine's interfaces, loopback first."""
    addresses = ["127.0.0.1", *_ipv4_addresses()]
    if with_ipv6:
        addresses += ["::1", *_ipv6_addresses()]
    return list(dict.fromkeys(addresses))


def _ipv4_addresses() -> list[str]:
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(sock.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # no IPv4 address on this interface
                continue
            found.append(socket.inet_ntoa(answer[20:24]))
    return found


def _ipv6_addresses() -> list[str]:
    try:
        lines = Path("/proc/net/if_inet6").read_text().splitlines()
    except OSError:
        return []
    return [str(ipaddress.IPv6Address(int(line.split()[0], 16))) for line in lines if line]


class PortsFile:
    """The file of this process."""

    def __init__(self, directory: str) -> None:
        self.path = Path(directory) / f"nats-server_{os.getpid()}.ports"

    def write(self, ports: Ports) -> None:
        """Write the file under a temporary name and rename it, so that readers never see half of it. Raises OSError."""
        partial = self.path.with_suffix(".tmp")
        partial.write_bytes(msgspec.json.encode(ports))
        partial.rename(self.path)
