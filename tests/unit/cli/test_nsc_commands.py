"""nsc's whole tree of commands and flags: `eyot trust` has each of them, or docs/trust.md says what stands in its place."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from eyot_cli.trust.group import trust

PAGE = Path(__file__).parents[3] / "docs" / "trust.md"
#: nsc 2.12 (`nsc COMMAND --help`), without the flags of every command. A line that is indented goes on.
TREE = """
add account: allow-pub allow-pub-response allow-pubsub allow-sub deny-pub deny-pubsub deny-sub expiry name
    public-key response-ttl start
add export: account account-token-position allow-trace latency name private response-threshold response-type
    sampling service subject
add import: account allow-trace local-subject name remote-subject service share src-account token
add mapping: account cluster from to weight
add operator: expiry force generate-signing-key name start sys url
add user: account allow-pub allow-pub-response allow-pubsub allow-sub bearer deny-pub deny-pubsub deny-sub
    expiry name public-key response-ttl source-network start tag
delete account: force name revoke rm-creds rm-nkey
delete export: account subject
delete import: account src-account subject
delete mapping: account cluster from to
delete user: account name revoke rm-creds rm-nkey
describe account: name output-file
describe jwt: file output-file
describe operator: name output-file
describe user: account name output-file
edit account: allow-pub allow-pub-response allow-pubsub allow-sub conns data deny-pub deny-pubsub deny-sub
    description disallow-bearer expiry exports imports info-url js-consumer js-disable js-disk-storage
    js-enable js-max-ack-pending js-max-bytes-required js-max-disk-stream js-max-mem-stream js-mem-storage
    js-streams js-tier leaf-conns name payload response-ttl rm rm-js-tier rm-response-perms rm-sk rm-tag sk
    start subscriptions tag trace-context-sampling trace-context-subject wildcard-exports
edit authcallout: account allowed-account auth-user curve disable rm-allowed-account rm-auth-user rm-curve
edit export: account allow-trace description info-url latency name private response-threshold response-type
    rm-latency-sampling sampling service subject
edit operator: account-jwt-server-url expiry require-signing-keys rm-account-jwt-server-url rm-service-url
    rm-sk rm-tag service-url sk start system-account tag
edit signing-key: account allow-pub allow-pub-response allow-pubsub allow-sub bearer conn-type data deny-pub
    deny-pubsub deny-sub description locale payload response-ttl rm rm-conn-type rm-response-perms
    rm-source-network rm-time role sk source-network subs time
edit user: account allow-pub allow-pub-response allow-pubsub allow-sub bearer conn-type data deny-pub
    deny-pubsub deny-sub expiry locale name payload response-ttl rm rm-conn-type rm-response-perms
    rm-source-network rm-tag rm-time source-network start subs tag time
env: account operator store
expirations: json skip within
export keys: account accounts all curve curves dir filter force include-jwts not-referenced operator remove
    user users
fix: creds in out
generate activation: account expiry output-file push start subject target-account
generate config: config-file dir force mem-resolver nats-resolver nats-resolver-cache sys-account
generate context: account context user
generate creds: account name output-file
generate diagram component: detail output-file
generate diagram object: detail output-file show-keys users
generate nkey: account curve operator store user
generate profile: output-file
import account: file force overwrite skip
import keys: dir recurse
import user: file overwrite skip
init: dir name remote-operator url
keys migrate:
list accounts: operator
list keys: account accounts all curve filter json not-referenced operator show-seeds user users
list operators:
list users: account operator
load: profile seed url user
migrate: force operator-dir url
pull: account all ca-cert client-cert client-key overwrite-newer system-account system-user tls-curves
    tls-first
push: account account-jwt-server-url account-removal all ca-cert client-cert client-key diff force prune
    system-account system-user timeout tls-curves tls-first
reissue operator: convert-to-signing-key name
rename account:
revocations add-user: account at name user-public-key
revocations add_activation: account at service subject target-account
revocations delete-user: account name user-public-key
revocations delete_activation: account service subject target-account
revocations list-users: account
revocations list_activations: account service subject
select account:
select operator:
tool pub: account user
tool reply: account max-messages queue user
tool req: account user
tool rtt: account user
tool sub: account queue user
update:
upgrade-jwt:
validate: account all-accounts file
"""
COMMANDS = {
    path: flags.split()
    for path, _, flags in (line.partition(":") for line in TREE.replace("\n    ", " ").strip().splitlines())
}


def command(path: str) -> click.Command | None:
    found: click.Command | None = trust
    for word in path.split():
        found = found.commands.get(word) if isinstance(found, click.Group) else None
    return found


def documented() -> str:
    """The section of the page for those who know nsc; a command in its first columns stands for its whole line."""
    return PAGE.read_text().split("## From nsc")[1].split("\n## ")[0]


def in_place_of() -> set[str]:
    """What the section names in the first column of a table."""
    cells = [line.split("|")[1] for line in documented().splitlines() if line.startswith("| `")]
    return {each for cell in cells for each in re.findall(r"`([^`]+)`", cell)}


@pytest.mark.parametrize("path", COMMANDS)
def test_each_command_of_nsc_is_there_or_has_something_in_its_place(path: str) -> None:
    assert command(path) is not None or path in in_place_of()


@pytest.mark.parametrize("path", [path for path in COMMANDS if command(path) is not None])
def test_each_flag_of_nsc_is_there_or_has_something_in_its_place(path: str) -> None:
    found = command(path)
    assert found is not None
    # `--json` stands anywhere in `eyot`
    own = {name.lstrip("-") for each in found.params for name in (*each.opts, *each.secondary_opts)} | {"json"}
    named = in_place_of()
    for flag in COMMANDS[path]:
        elsewhere = {each for each in named if f"--{flag}" in each}
        assert flag in own or any(each.startswith((f"--{flag}", path)) for each in elsewhere), f"{path} --{flag}"


def test_nothing_is_said_of_commands_that_nsc_does_not_have() -> None:
    named = [each.partition(" --")[0] for each in in_place_of() if re.match(r"[a-z][a-z-]*( |$)", each)]
    unknown = [each for each in named if each not in COMMANDS and not any(path.startswith(each) for path in COMMANDS)]
    assert unknown == []
