"""What an operator can do about an error of a bridge's link; the texts of leaf links speak of hubs and leaf nodes."""

from __future__ import annotations

from typing import Final

_ACCESS: Final = "check credentials { user, password } of the bridge, its client_id, and who may connect at the broker"
_AUTHORITY: Final = (
    "nobody here knows the authority that signed the broker's certificate: name it in tls { ca_file } of the bridge"
)
_NAMES: Final = (
    "the broker's certificate is for other names: use one of them in the bridge's url, or issue one for this name"
)
_NO_BROKER: Final = "what answers there is no MQTT broker: check the port, and whether the url needs mqtts, ws or wss"
_LOOK_UP: Final = "the host name does not resolve: check the url, and that DNS works here (getent hosts NAME)"
_FILE: Final = (
    "the daemon's user (eyot) must be able to read the file, and others must not: see its path, owner and mode"
)

#: Part of the text, remedy. The first match decides.
_KNOWN: Final = (
    ("not authorized", _ACCESS),
    ("bad user name or password", _ACCESS),
    ("bad authentication method", _ACCESS),
    ("banned", "the broker has banned this client: lift that there"),
    ("client identifier not valid", "set client_id to one that the broker allows"),
    ("session taken over", "another client has this client_id: give each bridge its own"),
    ("use another server", "the broker has moved: change the url"),
    ("server moved", "the broker has moved: change the url"),
    ("does not keep to MQTT", _NO_BROKER),
    ("answers CONNECT with", _NO_BROKER),
    ("WebSocket", "check the path of the url, and that the broker serves WebSocket at this port"),
    ("TLS alert", "the broker refused this server's certificate: see tls { cert_file } of the bridge, and whether the broker knows its authority"),
    ("certificate has expired", "the broker's certificate has expired, or the clock here is ahead: look at the date here first"),
    ("certificate is not yet valid", "the broker's certificate is not valid yet, which mostly means that the clock here is behind: set it"),
    ("certificate verify failed: self", _AUTHORITY),
    ("certificate signature failure", _AUTHORITY),
    ("unable to get local issuer", _AUTHORITY),
    ("is not valid for", _NAMES),
    ("mismatch", _NAMES),
    ("WRONG_VERSION_NUMBER", "what answers there speaks no TLS: check the port, or use mqtt or ws in the url"),
    ("TLS", "check the port, the certificates, their names and authorities, and the clock of both sides"),
    ("Connection refused", "nothing listens at that address: check the url, and that the broker runs"),
    ("Network is unreachable", "this machine has no route to that address: check that its network or modem is up, and its default route"),
    ("No route to host", "nothing answers at that address: check the url, that the broker's machine is up, and firewalls"),
    ("no connection within", "the address does not answer: check the url, firewalls and that the broker's machine is up; on a slow link raise dial_timeout"),
    *((said, _LOOK_UP) for said in ("Name or service not known", "name resolution", "No address associated with hostname", "nodename nor servname", "to the look-up of", "not a host name")),
    ("password file", _FILE),
    ("key file", _FILE),
)  # fmt: skip


def remedy(text: str) -> str:
    """Return the operator's remedy for an error of a bridge; "" when only waiting helps."""
    return next((advice for fragment, advice in _KNOWN if fragment in text), "")
