"""What keeps a configuration from starting, found without a start: for `eyotd -t`.

Nothing is opened for writing, no port is bound and no folder is made: a daemon may run with the configuration. So a port that
another program has, permissions to write, and what the store holds, are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from eyot_daemon.config.options import Options
from eyot_daemon.net.cert_check import unusable_certificates
from eyot_daemon.net.tls_context import TlsError
from eyot_daemon.process.start_error import StartError

#: Bytes of a Unix socket's path, without the NUL at its end.
_SOCKET_PATH_MAX = 107
#: Folders below these are made when a service starts (`RuntimeDirectory=`).
_MADE_AT_START = (Path("/run"), Path("/var/run"))
_ANY = ("", "0.0.0.0", "::")


class _Listener(NamedTuple):
    kind: str
    host: str
    port: int


def refusals(options: Options, env: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for all that a start would refuse."""
    yield from unusable_certificates(options)
    for check in (_check_mqtt, _check_bridges):
        try:
            check(options)
        except TlsError:
            continue  # unusable_certificates has told it
        except StartError as error:
            yield str(error)
    yield from _store(options, env)
    yield from _resolver(options)
    yield from _files(options, env)
    yield from _ports(options)


def _check_mqtt(options: Options) -> None:
    from eyot_daemon.mqtt.service import check_mqtt

    if options.mqtt is not None:
        check_mqtt(options, options.mqtt)


def _check_bridges(options: Options) -> None:
    from eyot_daemon.bridge.service import check_bridges

    check_bridges(options)


def _store(options: Options, env: Mapping[str, str]) -> Iterator[str]:
    """Check the folder and the key of the store."""
    from eyot_daemon.jetstream.key_files import key_files, key_in

    if options.jetstream is None:
        return
    failed = "Can't start JetStream: "
    if options.jetstream.store_dir:
        yield from (failed + why for why in _folder(Path(options.jetstream.store_dir)))
    if options.jetstream.encryption is not None:
        return
    for file in filter(None, key_files(options.eyot.store, env)):
        try:
            key_in(file)
        except OSError as error:
            yield failed + (f"{error.filename}: {error.strerror}" if error.strerror else str(error))


def _resolver(options: Options) -> Iterator[str]:
    """Check the folder of accounts, and whether it has room."""
    resolver = None if options.operator is None else options.operator.resolver
    if options.operator is None or resolver is None or not resolver.directory:
        return
    folder = Path(resolver.directory)
    yield from (f"account resolver directory: {why}" for why in _folder(folder))
    if resolver.kind == "full" and resolver.limit:
        names = {each.stem for each in folder.glob("*.jwt")} | {name for name, _ in options.operator.preload}
        if len(names) > resolver.limit:
            yield "jwt store is full: `limit` of the resolver leaves no room for `resolver_preload`"


def _files(options: Options, env: Mapping[str, str]) -> Iterator[str]:
    """Check the files that a start writes, and the control socket."""
    if options.log_file:
        yield from (f"error opening log file {options.log_file}: {why}" for why in _file(options.log_file))
    if options.pid_file:
        yield from (f"Could not write pidfile: open {options.pid_file}: {why}" for why in _file(options.pid_file))
    control = options.eyot.control_path(env)
    if control is not None:
        failed = f"Error listening on control socket {control}: "
        if len(str(control).encode()) > _SOCKET_PATH_MAX:
            yield f"{failed}the path is longer than {_SOCKET_PATH_MAX} bytes"
        else:
            yield from (failed + why for why in _file(str(control)))


def _file(name: str) -> Iterator[str]:
    """Say why a file cannot be made, in the words of the system."""
    path = Path(name).absolute()
    if path.is_dir():
        yield "Is a directory"
    elif path.parent.exists():
        yield from (why.removeprefix(f"{path.parent}: ") for why in _folder(path.parent))
    elif not any(path.is_relative_to(each) for each in _MADE_AT_START):
        yield "No such file or directory"


def _folder(path: Path) -> Iterator[str]:
    """Say why a folder, with those above, cannot be made."""
    there = path.absolute()
    while not there.exists() and not there.is_symlink():
        there = there.parent
    if not there.is_dir():
        yield f"{there}: Not a directory"


def _ports(options: Options) -> Iterator[str]:
    """Look for two listeners of the daemon itself on one port."""
    for one, other in combinations(_listeners(options), 2):
        same = one.host == other.host or one.host in _ANY or other.host in _ANY
        if one.port == other.port and same and (":" in one.host) == (":" in other.host):
            yield f"{one.kind} and {other.kind} cannot share the port {one.port}"


def _listeners(options: Options) -> list[_Listener]:
    monitoring = options.http_host or options.host
    leaf, websocket, mqtt = options.leafnodes, options.websocket, options.mqtt
    found = [
        _Listener("clients", options.host, options.port),
        _Listener("http", monitoring, options.http_port),
        _Listener("https", monitoring, options.https_port),
        _Listener("websocket", websocket.host if websocket else "", websocket.port if websocket else 0),
        _Listener("mqtt", mqtt.host if mqtt else "", mqtt.port if mqtt else 0),
        _Listener("leafnodes", leaf.host, leaf.port or 0),
    ]
    return [each for each in found if each.port > 0]
