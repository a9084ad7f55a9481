"""Checks of mirrors and sources over links, in both directions, from the daemon's reports.

Three causes stop replication while every link is up: a link whose permissions deny a needed subject, a mirror or source
with an error, and a hub without any mirror or source. The report names the first two. The third is only visible at the
hub, and the check says so.
"""

from __future__ import annotations

from eyot_wire.doctor.check import Check, failure, ok, warning
from eyot_wire.quantities import counted
from eyot_wire.status import LinkStatus, SourcingStatus, StatusReport, SyncReport, SyncStatus

#: Streams named in one line.
_NAMED_MAX = 3


def replication(report: StatusReport, sync: SyncReport) -> list[Check]:
    """Return all checks of mirrors and sources that need no client connection."""
    links = [link for link in report.links if link.state == "up"]
    checks = [each for link in links for each in _denied(link, report, sync)]
    checks += [_of_downstream(each) for each in sync.out if each.error or each.uncertain]
    checks += [_of_sourcing(each, report) for each in report.copies if each.error]
    if not checks and sync.out:
        checks.append(
            ok(
                "replication",
                f"{counted(len(sync.out), 'downstream')}: mirrors, sources and bridges that replicate from this server",
            )
        )
    return checks + _unreplicated(links, report, sync)


def _denied(link: LinkStatus, report: StatusReport, sync: SyncReport) -> list[Check]:
    """Check for needed subjects that a link's permissions deny."""
    checks = []
    name = f"link {link.name}: permissions for"
    if link.denied_downstream:
        read = any(each.account == link.account and _is_behind(each, link) for each in sync.out)
        if read or (link.role == "spoke" and _own_streams(link.account, report)):
            text = f"this link does not carry {_list(link.denied_downstream)}: {_peer(link)} cannot copy streams of this server"
            found = failure if read else warning
            checks.append(found(f"{name} mirrors and sources elsewhere", text, _remedy(link, link.denied_downstream)))
    if link.denied_sourcing:
        prefix = f"$JS.{link.peer_domain}.API"
        if any(each.account == link.account and each.api_prefix == prefix for each in report.copies):
            text = f"this link does not carry {_list(link.denied_sourcing)}: mirrors and sources here cannot replicate from {_peer(link)}"
            checks.append(failure(f"{name} mirrors and sources here", text, _remedy(link, link.denied_sourcing)))
    return checks


def _remedy(link: LinkStatus, denied: list[str]) -> str:
    hub = f"at {_peer(link)}" if link.role == "spoke" else "here"
    return (
        f"allow {_list(denied)} to the leaf node's user {hub}, for publish and subscribe, and take it out of "
        "deny_imports and deny_exports of the remote"
    )


def _of_downstream(each: SyncStatus) -> Check:
    """Report a downstream with an error or an uncertain position."""
    bridge = each.kind == "bridge"
    name = f"{each.kind} {each.target or each.stream} at {each.peer} of {each.stream}"
    if bridge:
        name = f"bridge {each.peer}: stream {each.stream}"
    elsewhere = "see the broker's log" if bridge else f"see its state at {each.peer} (eyot doctor, nats stream info)"
    if not each.error:
        return warning(name, "its position is uncertain: nothing counts as confirmed until it resumes")
    # A link that is down has a check of its own.
    found = failure if each.linked else warning
    return found(name, each.error, each.remedy or elsewhere)


def _of_sourcing(each: SourcingStatus, report: StatusReport) -> Check:
    """Report a mirror or source here with an error."""
    name = f"{each.kind} {each.stream} of {each.origin} at {each.api_prefix or 'this server'}"
    domains = {
        f"$JS.{link.peer_domain}.API" for link in report.links if link.state == "up" and link.account == each.account
    }
    away = each.api_prefix.startswith("$JS.") and each.api_prefix != "$JS.API" and each.api_prefix not in domains
    remedy = each.remedy or ""
    if away:
        domain = each.api_prefix.split(".")[1]
        remedy = f"no server of domain {domain} is linked to account {each.account}: see its link there, and the account of its user here"
    return failure(name, str(each.error), remedy)


def _unreplicated(links: list[LinkStatus], report: StatusReport, sync: SyncReport) -> list[Check]:
    """Warn of accounts linked to a hub that have messages in streams of their own, but no downstream so far."""
    checks = []
    for account in sorted({link.account for link in links if link.role == "spoke"}):
        streams = _own_streams(account, report)
        if not streams or any(each.account == account for each in sync.out):
            continue
        link = next(link for link in links if link.role == "spoke" and link.account == account)
        if link.denied_downstream:
            continue  # has a check already
        theirs = f" of its account {link.remote_account}" if link.remote_account else ""
        checks.append(
            warning(
                f"replication of account {account}",
                f"no mirror or source is known to replicate {_list(streams)}; the link leads to {_peer(link)}{theirs}",
                f"if {_peer(link)} should replicate them: the cause is not visible from here. See there whether a mirror or source "
                f"with the API prefix $JS.{report.domain}.API exists in that account, and its state (eyot doctor, nats stream info)",
            )
        )
    return checks


def _own_streams(account: str, report: StatusReport) -> list[str]:
    """Return streams with messages that are not mirrors and have no sources."""
    copies = {each.stream for each in report.copies if each.account == account}
    return [
        each.name for each in report.streams if each.account == account and each.last_seq and each.name not in copies
    ]


def _is_behind(each: SyncStatus, link: LinkStatus) -> bool:
    """Return whether the downstream is at the other end of this link."""
    return each.linked and (each.peer in (link.peer_name, link.peer_domain) or each.peer_domain == link.peer_domain)


def _peer(link: LinkStatus) -> str:
    return link.peer_name or link.url or "the peer"


def _list(names: list[str]) -> str:
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 1 else f", {names[-1]}" if more == 1 else "")
