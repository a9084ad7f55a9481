"""The credentials of an MQTT CONNECT as those of a client of NATS, so that one set of rules judges both."""

from __future__ import annotations

from eyot_wire.info import ClientConnect


def connect_of(username: str, password: bytes | str, client_id: str) -> ClientConnect:
    """Return the credentials of a CONNECT; absent fields are empty.

    What the password means, the configuration says: a user's password, the token of `authorization { token }`, or in
    operator mode a user's JWT, which must be a bearer token because an MQTT client signs no nonce. Only what has the form
    of a JWT counts as one: services that authenticate (auth callout) see no other password in its place.
    Source: nats-server's `mqttParseConnect` and `processClientOrLeafAuthentication`.
    """
    text = password if isinstance(password, str) else password.decode("utf-8", "replace")
    connect = ClientConnect(verbose=False, pedantic=False, headers=True, user=username, password=text, auth_token=text)
    if _looks_like_jwt(text):
        connect.jwt = text
    return connect


def _looks_like_jwt(text: str) -> bool:
    """Return whether `text` is `header.claims.signature` with a JSON object as its header, in base64."""
    return text.startswith("eyJ") and text.count(".") == 2
