"""The `-ERR` texts of leaf links, their effect on the next attempt, and remedies for operators.

The texts are nats-server's own; peers match on them. A remedy appears once, beside the error, in the link's status.
"""

from __future__ import annotations

from eyot_wire.quoting import quoted

AUTHORIZATION_VIOLATION = "Authorization Violation"
USER_EXPIRED = "User Authentication Expired"
AUTHENTICATION_TIMEOUT = "Authentication Timeout"
WRONG_PORT_CLIENT = "attempted to connect to leaf node port"
WRONG_PORT_SERVER = "attempted to connect to wrong port"
SAME_CLUSTER = "remote leafnode has same cluster name"
CLUSTER_SPACES = "cluster name cannot contain spaces"
DUPLICATE = "Duplicate Remote LeafNode Connection"
STALE_CONNECTION = "Stale Connection"
STALE_HANDSHAKE = "Stale Leaf Node Connection - Closing"
MAX_PAYLOAD = "Maximum Payload Violation"
MAX_SUBSCRIPTIONS = "maximum subscriptions exceeded"
MAX_ACCOUNT_CONNECTIONS = "maximum account active connections exceeded"
INVALID_SUBSCRIPTION = "Invalid Subscription"

_DUPLICATE_DOMAIN = "Duplicate JetStream domain"

# These errors persist until a configuration is changed.
LOOP_DELAY_S = 30.0
PERMISSION_DELAY_S = 30.0
SAME_CLUSTER_DELAY_S = 30.0
MIN_VERSION_DELAY_S = 5.0
#: The other server may be this one before its restart, on a dead link that its hub has not detected yet.
DUPLICATE_DOMAIN_DELAY_S = 5.0


def is_loop(reason: str) -> bool:
    """Return whether an error reports that this link would close a loop."""
    return "Loop detected" in reason


def loop_detected(account: str) -> str:
    return f'Loop detected for leafnode account="{account}". Delaying attempt to reconnect for 30s'


def min_version_required(version: str) -> str:
    return f'connection rejected since minimum version required is "{version}"'


def duplicate_domain(domain: str, other: str) -> str:
    """Return the error for a leaf node with the JetStream domain of the server `other`."""
    return f'Duplicate JetStream domain "{domain}": server "{other}" has it too'


def is_duplicate_domain(text: str) -> bool:
    return _DUPLICATE_DOMAIN in text


def publish_violation(subject: bytes) -> str:
    return f"Permissions Violation for Publish to {quoted(subject)}"


def subscription_violation(subject: bytes) -> str:
    return f"Permissions Violation for Subscription to {quoted(subject)}"


def gateway_rejected(gateway: str) -> str:
    return f'Rejecting connection from gateway "{gateway}" on the leafnode port'


def retry_delay_s(text: str) -> float | None:
    """Return the seconds that a soliciting side must wait after this error; None: ordinary backoff."""
    for fragment, delay_s, _ in _KNOWN:
        if fragment in text:
            return delay_s
    return None


def remedy(text: str) -> str:
    """Return the operator's remedy for an error of a link; empty when only waiting helps."""
    for fragment, _, advice in _KNOWN:
        if fragment in text:
            return advice
    return ""


DUPLICATE_DOMAIN_REMEDY = "two servers with one domain (a cloned image?): give each its own jetstream { domain }; the hub copies from one of them only"

# Fragment of the text, delay before the next attempt, remedy. First match wins.
_KNOWN: tuple[tuple[str, float | None, str], ...] = (
    (
        "Loop detected",
        LOOP_DELAY_S,
        "two links join the same accounts in a circle: remove one of the remotes",
    ),
    (
        "Permissions Violation",
        PERMISSION_DELAY_S,
        "the hub's user for this link may not use that subject: widen its permissions or add deny_imports/deny_exports here",
    ),
    (
        SAME_CLUSTER,
        SAME_CLUSTER_DELAY_S,
        "this server and the hub carry the same cluster name: give this one another server_name",
    ),
    (
        "minimum version required",
        MIN_VERSION_DELAY_S,
        "the hub's leafnodes.min_version refuses this release: upgrade here or lower it there",
    ),
    (
        AUTHORIZATION_VIOLATION,
        None,
        "the hub refused the credentials: check user, password, token, nkey or credentials file of this remote",
    ),
    (
        AUTHENTICATION_TIMEOUT,
        None,
        "the hub heard no CONNECT in time: check the link's latency and the hub's leafnodes.authorization.timeout",
    ),
    (
        "Authentication Expired",
        None,
        "the credentials of this remote have expired: issue new ones",
    ),
    (
        DUPLICATE,
        None,
        "another server with the same server_name and account took this link's place: server names must be unique",
    ),
    (
        _DUPLICATE_DOMAIN,
        DUPLICATE_DOMAIN_DELAY_S,
        DUPLICATE_DOMAIN_REMEDY,
    ),
    (
        WRONG_PORT_SERVER,
        None,
        "the address is not a leaf node port (7422 by default): correct the remote's url",
    ),
    (
        MAX_PAYLOAD,
        None,
        "a message was larger than the peer's max_payload: raise it there or lower it here",
    ),
    (
        MAX_ACCOUNT_CONNECTIONS,
        None,
        "the hub's account allows no more leaf nodes: raise its limit",
    ),
    (
        "TLS alert of the hub",
        None,
        "the hub refused this server's certificate: see whether it has expired or is missing here (tls { cert_file } of this remote), "
        "whether the hub knows its authority, and the clock of both sides",
    ),
    (
        "certificate has expired",
        None,
        "the hub's certificate has expired, or the clock here is ahead: look at the date here, then renew the certificate there",
    ),
    (
        "certificate is not yet valid",
        None,
        "the hub's certificate is not valid yet, which mostly means that the clock here is behind: set it",
    ),
    (
        "certificate verify failed: self",
        None,
        "nobody here knows the authority that signed the hub's certificate: name it in tls { ca_file } of this remote",
    ),
    (
        "certificate signature failure",
        None,
        "another authority of the same name signed the hub's certificate: name the right one in tls { ca_file } of this remote",
    ),
    (
        "unable to get local issuer",
        None,
        "nobody here knows the authority that signed the hub's certificate: name it in tls { ca_file } of this remote",
    ),
    (
        "is not valid for",
        None,
        "the hub's certificate is for other names: use one of them in the remote's url, or issue one for this name",
    ),
    (
        "mismatch",
        None,
        "the hub's certificate is for other names: use one of them in the remote's url, or issue one for this name",
    ),
    (
        "WRONG_VERSION_NUMBER",
        None,
        "what answers there speaks no TLS: check the port, and that leafnodes has a tls block there, or dial without TLS",
    ),
    (
        "TLS",
        None,
        "check the certificates, their names and authorities, and the clock of both sides",
    ),
    (
        "Connection refused",
        None,
        "nothing listens at that address: check the url and that the hub runs with a leafnodes block",
    ),
    (
        "Network is unreachable",
        None,
        "this machine has no route to that address: check that its network or modem is up, and its default route",
    ),
    (
        "No route to host",
        None,
        "nothing answers at that address: check the url, that the hub's machine is up, and firewalls",
    ),
    (
        "no connection within",
        None,
        "the address does not answer: check the url, firewalls and that the hub's machine is up; on a slow link raise dial_timeout",
    ),
    (
        "no INFO from the peer in time",
        None,
        "what accepts there says nothing, as a port-forward or balancer without its hub does: see that the hub is behind it",
    ),
    *(
        (said, None, "the host name does not resolve: check the url, and that DNS works here (getent hosts NAME)")
        for said in (
            "Name or service not known",
            "name resolution",
            "No address associated with hostname",
            "nodename nor servname",
            "to the look-up of",
            "not a host name",
        )
    ),
    *(
        (said, None, "the daemon's user (eyot) must be able to read the file: see its path, owner and mode")
        for said in ("credentials file", "seed file", "nkey file")
    ),
)
