"""The doctor's checks of links, from the daemon's report: state, permissions, drops and budgets."""

from __future__ import annotations

from eyot_wire.doctor.check import Check, failure, ok, skipped, warning
from eyot_wire.quantities import counted, size, span
from eyot_wire.status import LinkStatus, StatusReport

_USED_SHARE_MAX = 0.9
#: A token that is renewed in time has more left than this, seconds.
_TOKEN_SOON_S = 7 * 86400
_TOKEN_REMEDY = "renew it: `eyot enrol --renew`, or a new credentials file; the daemon reads it at the next attempt"  # noqa: S105 - no password
TWIN_REMEDY = (
    "give each server its own jetstream { domain }; the hub may mirror or source the other server's streams under this domain, "
    "and this server's messages do not arrive"
)


def links(report: StatusReport) -> list[Check]:
    """Return the checks of every link, in the order of the report."""
    return [each for link in report.links for each in _link(link, report)]


def _link(link: LinkStatus, report: StatusReport) -> list[Check]:
    name = f"link {link.name}"
    if link.state == "up":
        rtt = "" if link.rtt_ms is None else f", round trip {link.rtt_ms:.1f} ms"
        # The link's name is its first configured address, which may not be the connected one.
        through = f" through {link.url}" if link.url else ""
        checks = [ok(name, f"up for {span(link.age_s)}{through}{rtt}")]
        if link.role == "bridge" and link.last_error and not link.last_error.startswith("no stream "):
            # A subscription that the broker refuses; streams that are missing have checks of their own.
            checks.append(failure(f"{name}: subscriptions", link.last_error, link.remedy or ""))
    elif link.waiting:
        checks = [warning(name, link.waiting, "a policy of eyot { sync { } } causes this")]
    elif link.state == "disabled":
        checks = [skipped(name, "disabled in the configuration")]
    else:
        error = link.last_error or "no answer yet"
        return [
            failure(
                name,
                f"{link.state} after {link.attempts} attempt{'s' * (link.attempts != 1)}: {error}",
                link.remedy or "",
            ),
            *_credentials(link),
        ]
    checks += _credentials(link)
    if link.twin:
        checks.append(failure(f"{name}: domain", link.twin, TWIN_REMEDY))
    if link.refused:
        remedy = "allow the subjects to the leaf node's user, or stop publishing them"
        checks.append(
            warning(f"{name}: permissions", f"refused of the peer: {counted(link.refused, 'message')}", remedy)
        )
    dropped = {reason: count for reason, count in link.dropped.items() if count}
    if dropped:
        text = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in dropped.items())
        checks.append(
            warning(f"{name}: dropped", f"messages that were not sent: {text}", "a faster link, or larger limits")
        )
    metered = link.metered
    if metered is not None:
        text = (
            f"{size(metered.spent_bytes)} of {size(metered.budget_bytes)} spent, the next month begins {metered.resets}"
        )
        used = metered.spent_bytes >= _USED_SHARE_MAX * metered.budget_bytes
        checks.append(warning(f"{name}: budget", text) if used else ok(f"{name}: budget", text))
    return checks


def _credentials(link: LinkStatus) -> list[Check]:
    """Return a check of the token that the link presents, if it expires soon or has expired."""
    left_s, name = link.credentials_left_s, f"link {link.name}: credentials"
    if left_s is None or left_s > _TOKEN_SOON_S:
        return []
    if left_s <= 0:
        return [warning(name, f"the token expired on {link.credentials_expire}, by the clock here", _TOKEN_REMEDY)]
    return [warning(name, f"the token expires in {span(left_s)}, on {link.credentials_expire}", _TOKEN_REMEDY)]
