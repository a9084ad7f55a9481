"""An auth callout service for tests: answers `$SYS.REQ.USER.AUTH` with a function's result."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable
from typing import Any

from eyot_wire.trust import nkey
from eyot_wire.trust.auth_callout import CurveKey
from support.clients.raw_client import RawClient

#: (the request's `nats` object) -> claims of the user's `nats` object with `aud`, or an error, or None for silence
Decide = Callable[[dict[str, Any]], dict[str, Any] | str | None]


def token(claims: dict[str, Any], signer: nkey.Signer) -> str:
    """A signed JWT of version 2."""

    def part(data: bytes) -> bytes:
        return base64.urlsafe_b64encode(data).rstrip(b"=")

    head = part(b'{"typ":"JWT","alg":"ed25519-nkey"}') + b"." + part(json.dumps(claims).encode())
    return (head + b"." + part(signer.sign(head))).decode()


class CalloutService(threading.Thread):
    """Runs until the connection ends. `issuer` signs; with `curve` requests are expected sealed and answers are."""

    def __init__(self, client: RawClient, issuer: nkey.Signer, decide: Decide, curve: CurveKey | None = None) -> None:
        super().__init__(daemon=True)
        self.requests: list[dict[str, Any]] = []
        self._client = client
        self._issuer = issuer
        self._decide = decide
        self._curve = curve
        client.ask(b"SUB $SYS.REQ.USER.AUTH 1\r\n")
        self.start()

    def run(self) -> None:
        try:
            while True:
                line = self._client.until(b"\r\n")
                if not line:
                    return
                words = line.split()
                if words[0] not in (b"MSG", b"HMSG"):
                    continue
                self._answer(words)
        except (OSError, ValueError):
            return

    def _answer(self, words: list[bytes]) -> None:
        total = int(words[-1])
        header_size = int(words[-2]) if words[0] == b"HMSG" else 0
        data = self._client.exactly(total + 2)[:-2]
        header, body = data[:header_size], data[header_size:]
        sender = ""
        if self._curve is not None:
            sender = header.split(b"Nats-Server-Xkey:")[1].split(b"\r\n")[0].strip().decode()
            body = self._curve.open(body, sender)
        middle = body.split(b".")[1]
        claims = json.loads(base64.urlsafe_b64decode(middle + b"=" * (-len(middle) % 4)))
        request = claims["nats"] | {"aud": claims["aud"], "iss": claims["iss"]}
        self.requests.append(request)
        decision = self._decide(request)
        if decision is None:
            return
        now = int(time.time())
        nats: dict[str, Any] = {"type": "authorization_response", "version": 2}
        if isinstance(decision, str):
            nats["error"] = decision
        else:
            user = {"iss": self._issuer.public_key, "sub": request["user_nkey"], "iat": now, "jti": "x"} | {
                key: value for key, value in decision.items() if key != "nats"
            }
            user["nats"] = {"type": "user", "version": 2} | decision.get("nats", {})
            nats["jwt"] = token(user, self._issuer)
        answer = token(
            {
                "iss": self._issuer.public_key,
                "sub": request["user_nkey"],
                "aud": request["server_id"]["id"],
                "iat": now,
                "jti": "y",
                "nats": nats,
            },
            self._issuer,
        ).encode()
        if self._curve is not None:
            answer = self._curve.seal(answer, sender)
        self._client.send(b"PUB %b %d\r\n%b\r\n" % (words[3], len(answer), answer))
