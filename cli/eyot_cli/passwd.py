"""`eyot passwd`: the bcrypt hash of a password, for the configuration."""

from __future__ import annotations

import sys

import bcrypt
import click

from eyot_cli.terminal.failure import Failure
from eyot_cli.terminal.show import print_line

#: bcrypt ignores all further bytes.
BYTES_MAX = 72
#: nats-server's own tools use 11.
COST = 11


@click.command()
@click.option("--cost", type=click.IntRange(4, 31), default=COST, help="rounds, as a power of two")
def passwd(cost: int) -> None:
    """Print a password's bcrypt hash, for the configuration.

    The password is asked for, or read from standard input.
    """
    if sys.stdin.isatty():
        text = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        text = sys.stdin.readline().rstrip("\r\n")
    secret = str(text).encode()
    if not secret:
        raise Failure("there is no password on standard input")
    if len(secret) > BYTES_MAX:
        raise Failure(f"the password is longer than {BYTES_MAX} bytes, bcrypt's limit")
    # nats-server and its tools write $2a$; for these hashes $2a$ and $2b$ are equivalent.
    print_line(bcrypt.hashpw(secret, bcrypt.gensalt(cost, prefix=b"2a")).decode())
