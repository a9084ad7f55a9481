"""`eyot server check connection|request|message|credential`."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import click
from nats.aio.client import Client
from nats.errors import NoRespondersError

from eyot_cli.connection.refusals import Refusal, no_responders
from eyot_cli.connection.target import Target
from eyot_cli.jetstream.stored import get_stored
from eyot_cli.messages.common import parse_headers
from eyot_cli.server.result import Result, form_options, run_check
from eyot_cli.terminal.failure import Failure
from eyot_cli.values.ages import age_ns
from eyot_cli.values.names import stream_name, subject_to_publish
from eyot_cli.values.paths import FilePath
from eyot_cli.values.seconds import seconds
from eyot_wire.jetstream import error_codes as codes
from eyot_wire.trust.creds import parse_creds
from eyot_wire.trust.jwt import decode
from eyot_wire.trust.nkey import NkeyError

F = TypeVar("F", bound=Callable[..., Any])


def _regex(_context: click.Context, _option: click.Parameter, text: str | None) -> re.Pattern[bytes] | None:
    try:
        return None if text is None else re.compile(text.encode())
    except re.error as error:
        raise click.BadParameter(f"{text!r}: {error}") from error


def _time_option(name: str, default: str, help: str) -> Callable[[F], F]:
    return click.option(name, callback=seconds, default=default, metavar="TIME", help=help)


@click.command("connection")
@_time_option("--connect-warn", "500ms", "warn when connecting takes so long")
@_time_option("--connect-critical", "1s", "critical when connecting takes so long")
@_time_option("--rtt-warn", "500ms", "warn when a PING takes so long")
@_time_option("--rtt-critical", "1s", "critical when a PING takes so long")
@_time_option("--req-warn", "500ms", "warn when a message to itself takes so long")
@_time_option("--req-critical", "1s", "critical when a message to itself takes so long")
@form_options
def connection(**given: Any) -> None:
    """Check that the server can be reached, and how fast."""

    def check(target: Target, result: Result) -> None:
        began = perf_counter()

        async def measure(client: Client) -> None:
            connected_s = perf_counter() - began
            _timed(
                result, "connect_time", "connect time", connected_s, given["connect_warn"], given["connect_critical"]
            )
            start = perf_counter()
            await client.flush()
            _timed(result, "rtt", "rtt time", perf_counter() - start, given["rtt_warn"], given["rtt_critical"])
            inbox = await client.subscribe(client.new_inbox(), max_msgs=1)
            payload, start = secrets.token_hex(50).encode(), perf_counter()
            await client.publish(inbox.subject, payload)
            received = await inbox.next_msg(timeout=target.timeout_s)
            elapsed_s = perf_counter() - start
            if received.data != payload:
                result.note("did not receive the expected message", crit=True)
            _timed(result, "request_time", "round trip", elapsed_s, given["req_warn"], given["req_critical"])

        target.with_client(measure)

    run_check("connections", "Connection", given, check)


def _timed(result: Result, name: str, what: str, elapsed_s: float, warn: float, crit: float) -> None:
    result.measure(name, elapsed_s, warn, crit, "s", f"Time of the {what}")
    is_crit, is_warn = bool(crit) and elapsed_s >= crit, bool(warn) and elapsed_s >= warn
    result.note(f"{what} {elapsed_s:.4f}s", crit=is_crit, warn=is_warn)


@click.command("request")
@click.option("--subject", required=True, callback=subject_to_publish, metavar="SUBJECT", help="where the request goes")
@click.option("--payload", default="", metavar="TEXT", help="what is sent")
@click.option("--headers", "-H", multiple=True, metavar="NAME:VALUE", help="headers that are sent")
@click.option("--match-payload", callback=_regex, metavar="REGEX", help="what the answer must match")
@click.option("--match-headers", multiple=True, metavar="NAME:VALUE", help="headers that the answer must have")
@_time_option("--response-warn", "0s", "warn when the answer takes so long")
@_time_option("--response-critical", "0s", "critical when the answer takes so long")
@form_options
def request(subject: str, **given: Any) -> None:
    """Check a service by a request."""
    sent, expected = parse_headers(given["headers"]), parse_headers(given["match_headers"]) or {}

    def check(target: Target, result: Result) -> None:
        warn, crit = given["response_warn"], given["response_critical"]

        async def ask(client: Client) -> None:
            start = perf_counter()
            try:
                answer = await client.request(
                    subject, given["payload"].encode(), timeout=target.timeout_s, headers=sent
                )
            except NoRespondersError:
                raise no_responders(subject) from None
            elapsed_s = perf_counter() - start
            result.measure("time", elapsed_s, warn, crit, "s", "How long the request took")
            if given["match_payload"] is not None and given["match_payload"].search(answer.data) is None:
                result.note("response does not match regexp", crit=True)
            for name, value in expected.items():
                if (found := (answer.headers or {}).get(name, "")) != value:
                    result.note(f"invalid header {name!r} = {found!r}", crit=True)
            if (crit and elapsed_s > crit) or (warn and elapsed_s > warn):
                result.note(f"response took {elapsed_s:.3f}s", crit=bool(crit) and elapsed_s > crit, warn=True)

        target.with_client(ask)
        result.ok_if_good("Valid response")

    run_check("request", subject, given, check)


@click.command("message")
@click.option("--stream", required=True, callback=stream_name, metavar="STREAM", help="the stream that holds it")
@click.option(
    "--subject", required=True, callback=subject_to_publish, metavar="SUBJECT", help="the last one of this subject"
)
@click.option("--age-warn", callback=age_ns, metavar="TIME", help="warn when it is older")
@click.option("--age-critical", callback=age_ns, metavar="TIME", help="critical when it is older")
@click.option("--content", callback=_regex, metavar="REGEX", help="what its payload must match")
@click.option("--body-timestamp", is_flag=True, help="its payload is its time, in seconds since 1970")
@form_options
def message(stream: str, subject: str, **given: Any) -> None:
    """Check the last message of a subject in a stream."""

    def check(target: Target, result: Result) -> None:
        try:
            found = target.with_client(lambda client: get_stored(target, client, stream, {"last_by_subj": subject}))
        except Refusal as error:
            if error.err_code != codes.JSNoMessageFoundErr:
                raise
            raise Failure("no message found") from None
        at = datetime.fromisoformat(found.time).timestamp()
        if given["body_timestamp"]:
            try:
                at = int(found.data.strip())
            except ValueError:
                raise Failure("invalid timestamp body") from None
        age_s = time.time() - at
        warn, crit = ((given[name] or 0) / 1e9 for name in ("age_warn", "age_critical"))
        result.measure("age", age_s, warn, crit, "s", "The age of the message")
        result.measure("size", len(found.data), unit="B", help="The size of the message")
        if (crit and age_s > crit) or (warn and age_s > warn):
            result.note(f"{age_s:.3f}s old", crit=bool(crit) and age_s > crit, warn=True)
        if given["content"] is not None and given["content"].search(found.data) is None:
            result.note(f"does not match regex: {given['content'].pattern.decode()}", crit=True)
        result.ok_if_good(f"Valid message on {stream} > {subject}")

    run_check("message", "Stream Message", given, check)


@click.command("credential")
@click.option("--credential", required=True, type=FilePath(), metavar="FILE", help="credentials file to check")
@click.option("--validity-warn", callback=age_ns, metavar="TIME", help="warn when it ends sooner")
@click.option("--validity-critical", callback=age_ns, metavar="TIME", help="critical when it ends sooner")
@click.option("--require-expiry/--no-require-expiry", default=True, help="it must end at some time")
@form_options
def credential(credential: Path, require_expiry: bool, **given: Any) -> None:
    """Check how long a credentials file is valid. No server is asked."""

    def check(_target: Target, result: Result) -> None:
        try:
            expires = decode(parse_creds(credential.read_text(errors="replace")).jwt).exp
        except OSError as error:
            raise Failure(f"credential not accessible: {error.strerror}") from error
        except (NkeyError, ValueError) as error:
            raise Failure(f"invalid credential: {error}") from error
        left_s = expires - time.time()
        warn, crit = ((given[name] or 0) / 1e9 for name in ("validity_warn", "validity_critical"))
        if not expires:
            result.note("never expires", crit=require_expiry)
            return
        result.measure("expiry", left_s, warn, crit, "s", "Expiry time in seconds")
        if left_s <= max(crit, 0):
            result.note(f"expires in {left_s:.0f}s", crit=True)
        else:
            when = datetime.fromtimestamp(expires, UTC)
            result.note(f"expires at {when:%Y-%m-%d %H:%M} UTC", warn=bool(warn) and left_s <= warn)

    run_check("credential", "Credential", given, check)
