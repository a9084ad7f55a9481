"""`eyot`, the operator's tool: state of a gateway, progress of replication, and simple messaging.

The tool uses the daemon's network interfaces only: the control socket (or the monitoring port) for reports, the NATS
protocol for streams and messages. A command's module loads when the command is used (`COMMANDS`).
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Final

import click

from eyot_cli.connection.anywhere import take_anywhere
from eyot_cli.connection.target import AT_ONCE, DEFAULT_CONTROL, DEFAULT_SERVER, Target, TlsFiles
from eyot_cli.terminal.completion import ASKED_BY
from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.lazy import LazyGroup, Place
from eyot_cli.terminal.show import print_line
from eyot_cli.values.paths import FilePath
from eyot_cli.values.seconds import seconds
from eyot_wire.program import INTERRUPTED, run_program

FILE = FilePath(exists=True, dir_okay=False)
#: Every command: where it is, and its line of help
COMMANDS: Final = {
    "status": Place("eyot_cli.device.status", "status", "Show links, streams, backlog and commits."),
    "sync": Place("eyot_cli.device.sync", "sync", "Show what has reached the hub."),
    "doctor": Place("eyot_cli.device.doctor", "doctor", "Check the installation, links and sourcing."),
    "stream": Place("eyot_cli.jetstream.streams", "stream", "List, make, change, read and delete streams."),
    "consumer": Place("eyot_cli.jetstream.consumers", "consumer", "List, make, change, read and delete consumers."),
    "account": Place("eyot_cli.account", "account", "Show who this login is, and what its account uses."),
    "rtt": Place("eyot_cli.account", "rtt", "Measure round trips to the server."),
    "server": Place("eyot_cli.server.group", "server", "Check servers, and list those of the system account."),
    "context": Place(
        "eyot_cli.connection.context_commands", "context", "Named connections, shared with the nats tool."
    ),
    "kv": Place("eyot_cli.buckets.kv", "kv", "Key-value buckets."),
    "object": Place("eyot_cli.buckets.objects", "objects", "Object buckets: files of any size."),
    "backup": Place("eyot_cli.jetstream.backups", "backup", "Back STREAM up into FOLDER, which is created."),
    "restore": Place("eyot_cli.jetstream.backups", "restore", "Restore a stream from the backup in FOLDER."),
    "check": Place("eyot_cli.offline", "check", "Verify every page, checksum and counter of a store."),
    "compact": Place("eyot_cli.offline", "compact", "Make a store smaller: rewrite it without deleted messages."),
    "pub": Place("eyot_cli.messages.pub", "publish", "Publish PAYLOAD (or standard input) to SUBJECT."),
    "sub": Place("eyot_cli.messages.sub", "subscribe", "Print messages published to SUBJECT."),
    "request": Place("eyot_cli.messages.request", "request", "Send a request to SUBJECT and print the answer."),
    "reply": Place("eyot_cli.messages.replies", "reply", "Answer requests on SUBJECT with PAYLOAD."),
    "top": Place("eyot_cli.top.command", "top", "Show connections and rates in the terminal."),
    "events": Place("eyot_cli.messages.events", "events", "Show advisories and metrics as they happen."),
    "bench": Place("eyot_cli.bench.commands", "bench", "Measure rates of messages."),
    "report": Place("eyot_cli.jetstream.reports", "report", "Compare streams of an account, or consumers of a stream."),
    "trace": Place("eyot_cli.messages.traces", "trace", "Show which way a message takes."),
    "mqtt": Place("eyot_cli.mqtt.commands", "mqtt", "Publish and subscribe over MQTT; inspect sessions."),
    "support-bundle": Place(
        "eyot_cli.device.support_bundle", "support_bundle", "Write state, log and configuration into one archive."
    ),
    "passwd": Place("eyot_cli.passwd", "passwd", "Print a password's bcrypt hash, for the configuration."),
    "trust": Place("eyot_cli.trust.group", "trust", "Keep operators, accounts and users, in nsc's store."),
    "fleet": Place("eyot_cli.fleet.group", "fleet", "Enrol devices, ask them, revoke them."),
    "enrol": Place("eyot_cli.enrol.command", "enrol", "Enrol this device at a hub."),
    "configure": Place("eyot_cli.configure", "configure", "Apply what the hub desires of this device."),
    "upgrade": Place("eyot_cli.upgrade.commands", "upgrade", "Signed packages for devices, by rings."),
    "completion": Place("eyot_cli.terminal.completion", "completion", "Print the completion script for SHELL."),
}


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog="These options may also follow the command. Exit status: 0, 1 on failure, 2 for a mistake on the command line; doctor, sync wait, upgrade fetch and upgrade status also use 3 and 4.",
)
@click.option(
    "--control",
    default=DEFAULT_CONTROL,
    envvar="EYOT_CONTROL",
    show_envvar=True,
    metavar="SOCKET",
    help="control socket, or URL of the monitoring port",
)
@click.option(
    "--device",
    default="",
    show_default="the daemon of the control socket",
    metavar="NAME",
    help="status, sync, doctor, top, support-bundle: ask this device, over --server",
)
@click.option(
    "--group",
    default="",
    show_default="none",
    metavar="GROUP",
    help="the same but top: ask these enrolled devices; names (pump-*), tags (site:north)",
)
@click.option(
    "--at-once", type=click.IntRange(1, 1000), default=AT_ONCE, help="devices of the group asked at the same time"
)
@click.option(
    "--server",
    "-s",
    envvar="NATS_URL",
    show_default=DEFAULT_SERVER,
    show_envvar=True,
    metavar="URL",
    help="URL of the NATS listener, or several with commas",
)
@click.option(
    "--context",
    "context_name",
    envvar="NATS_CONTEXT",
    show_default="the selected one",
    show_envvar=True,
    metavar="NAME",
    help="context of the nats tool, for what options leave open",
)
@click.option(
    "--user", envvar="NATS_USER", show_envvar=True, metavar="NAME", help="user name (or token, without --password)"
)
@click.option(
    "--password",
    envvar="NATS_PASSWORD",
    show_envvar=True,
    metavar="TEXT",
    help="password; better in the environment than on a command line",
)
@click.option("--token", envvar="NATS_TOKEN", show_envvar=True, metavar="TEXT", help="token, in place of a user")
@click.option(
    "--creds",
    type=FILE,
    envvar="NATS_CREDS",
    show_envvar=True,
    metavar="FILE",
    help="credentials file",
)
@click.option(
    "--nkey",
    type=FILE,
    envvar="NATS_NKEY",
    show_envvar=True,
    metavar="FILE",
    help="file with an nkey's seed",
)
@click.option(
    "--tlsca",
    type=FILE,
    envvar="NATS_CA",
    show_envvar=True,
    metavar="FILE",
    help="authority of the server's certificate",
)
@click.option(
    "--tlscert",
    type=FILE,
    envvar="NATS_CERT",
    show_envvar=True,
    metavar="FILE",
    help="certificate to show to the server",
)
@click.option("--tlskey", type=FILE, envvar="NATS_KEY", show_envvar=True, metavar="FILE", help="its key")
@click.option("--tlsfirst", "--tls-first", is_flag=True, help="start TLS before INFO, for servers with handshake_first")
@click.option(
    "--domain",
    "--js-domain",
    envvar="NATS_DOMAIN",
    show_envvar=True,
    metavar="NAME",
    help="JetStream domain to ask instead of the server's own",
)
@click.option("--js-api-prefix", "given_api_prefix", metavar="PREFIX", help="subject prefix of that JetStream's API")
@click.option(
    "--js-event-prefix",
    "given_event_prefix",
    default="",
    show_default="$JS.EVENT",
    metavar="PREFIX",
    help="subject prefix of that JetStream's advisories and metrics",
)
@click.option("--inbox-prefix", default="", show_default="_INBOX", metavar="PREFIX", help="subject prefix of answers")
@click.option(
    "--socks-proxy",
    default="",
    envvar="NATS_SOCKS_PROXY",
    show_default="none",
    show_envvar=True,
    metavar="URL",
    help="SOCKS5 proxy in front of the server: socks5://USER:PASSWORD@HOST:PORT",
)
@click.option(
    "--timeout",
    "timeout_s",
    callback=seconds,
    default="5s",
    envvar="NATS_TIMEOUT",
    show_envvar=True,
    metavar="TIME",
    help="how long an answer may take",
)
@click.option(
    "--connection-name", default="eyot", metavar="NAME", help="name of the connection, which the server shows"
)
@click.option("--no-context", is_flag=True, help="ignore the selected context")
@click.option("--trace", is_flag=True, help="show requests and their answers on standard error")
@click.option("--json", "-j", "as_json", is_flag=True, help="print JSON instead of tables")
@click.version_option(package_name="eyot")
@click.pass_context
def cli(
    context: click.Context,
    control: str,
    device: str,
    group: str,
    at_once: int,
    server: str | None,
    context_name: str | None,
    user: str | None,
    password: str | None,
    token: str | None,
    creds: Path | None,
    nkey: Path | None,
    domain: str | None,
    tlsca: Path | None,
    tlscert: Path | None,
    tlskey: Path | None,
    tlsfirst: bool,
    given_api_prefix: str | None,
    given_event_prefix: str,
    inbox_prefix: str,
    socks_proxy: str,
    timeout_s: float,
    connection_name: str,
    no_context: bool,
    trace: bool,
    as_json: bool,
) -> None:
    """Operate an Eyot daemon."""
    if token is not None:
        user, password = token, None
    context.obj = Target(
        control,
        server,
        user,
        password,
        creds,
        nkey,
        domain,
        as_json,
        TlsFiles(tlsca, tlscert, tlskey, tlsfirst),
        "" if no_context else context_name,
        inbox_prefix=inbox_prefix,
        given_api_prefix=given_api_prefix,
        given_event_prefix=given_event_prefix,
        socks_proxy=socks_proxy,
        timeout_s=timeout_s,
        connection_name=connection_name,
        trace=trace,
        device=device,
        group=group,
        at_once=at_once,
    )


cli.take(COMMANDS, lambda command: take_anywhere(cli, command))


def main() -> int:
    """Run the command; return 0, or 1 with one line on stderr: what failed and the remedy."""
    return run_program("eyot", _main)


def _main() -> int:
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # asyncio warns of how nats-py closes TLS connections
    try:
        code = cli.main(prog_name="eyot", complete_var=ASKED_BY, standalone_mode=False)
    except Failure as failure:
        first, *more = failure.lines
        for text in (f"eyot: {first}", *more):
            print_line(text, error=True)
        return 1
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as wrong:
        wrong.show()
        return wrong.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    sys.exit(main())
