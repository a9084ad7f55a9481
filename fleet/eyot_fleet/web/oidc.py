"""Logins at an OpenID provider: authorization code with PKCE; the id_token is validated with PyJWT.

Nothing is asked of the provider before the first login. Its metadata and keys are kept for an hour; an unknown key is looked up
again at most every ten seconds.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import ssl
from base64 import urlsafe_b64encode
from collections import OrderedDict
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urlsplit

import httpx
import jwt
import msgspec
import trio
from msgspec import Struct

from eyot_fleet.web.identity import Identity, LoginRefused, LoginUnavailable
from eyot_fleet.web_options import OidcOptions, client_secret, role_of
from eyot_wire.quoting import printable
from eyot_wire.trust.tls import verifying_context
from eyot_wire.untrusted import decode_json

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("eyot.fleet")

#: Logins that have left for the provider and not come back. The oldest makes room.
PENDING_MAX: Final = 1024
#: Of one address.
ADDRESS_PENDING_MAX: Final = 16
#: How long a user may take at the provider.
PENDING_S: Final = 600.0
KEPT_S: Final = 3600.0
KEYS_AGAIN_S: Final = 10.0
ANSWER_S: Final = 10.0
ANSWER_BYTES_MAX: Final = 1 << 20
#: What the clocks of the provider and of this machine may differ by, seconds.
LEEWAY_S: Final = 60
NAME_CHARS_MAX: Final = 200
#: Signatures by a key that the provider publishes; `none` and shared secrets are not among them.
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_SECRET_BYTES: Final = 32
_AWAY: Final = "the login provider cannot be reached: try again later"


class _Metadata(Struct, frozen=True):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    authorization_response_iss_parameter_supported: bool = False


class _Pending(Struct):
    """A login that has left for the provider. `browser`: digest of the secret that its cookie holds."""

    nonce: str
    verifier: str
    browser: bytes
    address: str
    begun_at: float

    def __repr__(self) -> str:
        return "_Pending()"


class OidcLogin:
    """Sends browsers to the provider and takes them back. `now`: monotonic time, seconds; `transport`: for tests."""

    def __init__(
        self,
        options: OidcOptions,
        redirect_uri: str,
        now: Callable[[], float],
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._options = options
        self._redirect_uri = redirect_uri
        self._now = now
        self._transport = transport
        self._pending: OrderedDict[str, _Pending] = OrderedDict()
        self._metadata: tuple[float, _Metadata] | None = None
        self._keys: tuple[float, dict[str, jwt.PyJWK]] | None = None
        self._lock = trio.Lock()
        #: loaded once an hour: the provider's authorities may change, and loading takes long
        self._tls: tuple[float, ssl.SSLContext] | None = None

    # -- a login ---------------------------------------------------------------------------------------------------

    async def begin(self, address: str) -> tuple[str, str]:
        """Return the provider's page to send the browser at `address` to, and the secret for its cookie. Raises LoginUnavailable."""
        found = await self._known_metadata()
        state, browser, nonce, verifier = (secrets.token_urlsafe(_SECRET_BYTES) for _ in range(4))
        self._drop_old()
        own = [key for key, each in self._pending.items() if each.address == address]
        if len(own) >= ADDRESS_PENDING_MAX:
            del self._pending[own[0]]
        self._pending[state] = _Pending(nonce, verifier, _digest(browser), address, self._now())
        asked = {
            "response_type": "code",
            "client_id": self._options.client_id,
            "redirect_uri": self._redirect_uri,
            "scope": " ".join(self._options.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        page = found.authorization_endpoint
        return f"{page}{'&' if urlsplit(page).query else '?'}{urlencode(asked)}", browser

    async def finish(self, answer: dict[str, str], browser: str) -> Identity:
        """Return who comes back. `answer`: the parameters of the callback; `browser`: the cookie's secret.

        Raises LoginRefused and LoginUnavailable.
        """
        self._drop_old()
        pending = self._pending.pop(answer.get("state", ""), None)
        if pending is None or not hmac.compare_digest(pending.browser, _digest(browser)):
            raise LoginRefused("this login was not begun in this browser, or took too long: begin again", "stale")
        if "error" in answer:
            raise LoginRefused(f"the login provider refuses: {printable(answer['error'])[:NAME_CHARS_MAX]}")
        found = await self._known_metadata()
        if "iss" in answer or found.authorization_response_iss_parameter_supported:
            _check(answer.get("iss") == found.issuer, "the answer comes from another login provider")
        _check(bool(answer.get("code")), "the login provider sent no code")
        token = await self._id_token(found, answer["code"], pending.verifier)
        claims = await self._claims(found, token)
        _check(
            hmac.compare_digest(str(claims.get("nonce", "")).encode(), pending.nonce.encode()),
            "the login provider's token belongs to another login",
        )
        return self._identity(claims)

    def _drop_old(self) -> None:
        """Drop logins that took too long, and the oldest where there are too many."""
        now = self._now()
        while self._pending:
            state, oldest = next(iter(self._pending.items()))
            if len(self._pending) < PENDING_MAX and now - oldest.begun_at < PENDING_S:
                return
            del self._pending[state]

    # -- the token -------------------------------------------------------------------------------------------------

    async def _id_token(self, found: _Metadata, code: str, verifier: str) -> str:
        secret = client_secret(self._options)
        body = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri,
            "code_verifier": verifier,
        }
        auth = None
        if secret and "client_secret_basic" in found.token_endpoint_auth_methods_supported:
            auth = httpx.BasicAuth(self._options.client_id, secret)
        else:
            body["client_id"] = self._options.client_id
            if secret:
                body["client_secret"] = secret
        answer = await self._asked("POST", found.token_endpoint, data=body, auth=auth)
        token = answer.get("id_token")
        if not isinstance(token, str):
            log.warning(
                "OIDC: the provider gives no id_token: %s", printable(str(answer.get("error", "no reason")))[:200]
            )
            raise LoginRefused("the login provider does not accept this login: begin again")
        return token

    async def _claims(self, found: _Metadata, token: str) -> dict[str, Any]:
        try:
            head = jwt.get_unverified_header(token)
            _check(head.get("alg") in ALGORITHMS, "the token's signature is of a kind that is not accepted")
            key = await self._key(found, str(head.get("kid", "")))
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=[head["alg"]],
                audience=self._options.client_id,
                issuer=found.issuer,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iat", "aud", "iss", "sub"], "verify_signature": True},
            )
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            log.warning("OIDC: the id_token is not accepted: %s", printable(str(error))[:200])
            raise LoginRefused("the login provider's token is not valid") from None
        audience = claims["aud"]
        if "azp" in claims or (isinstance(audience, list) and len(audience) > 1):
            _check(claims.get("azp") == self._options.client_id, "the token was made for another client")
        return claims

    async def _key(self, found: _Metadata, kid: str) -> jwt.PyJWK:
        """Return the provider's key of this id. Raises LoginRefused and LoginUnavailable."""
        async with self._lock:
            now = self._now()
            if (
                self._keys is None
                or now - self._keys[0] >= KEPT_S
                or (_chosen(self._keys[1], kid) is None and now - self._keys[0] >= KEYS_AGAIN_S)
            ):
                self._keys = await self._fetched_keys(found)
            chosen = _chosen(self._keys[1], kid)
        if chosen is None:
            raise LoginRefused("the login provider's token is signed with a key that it does not publish")
        return chosen

    async def _fetched_keys(self, found: _Metadata) -> tuple[float, dict[str, jwt.PyJWK]]:
        listed = (await self._asked("GET", found.jwks_uri)).get("keys")
        keys: dict[str, jwt.PyJWK] = {}
        for number, each in enumerate(listed if isinstance(listed, list) else []):
            if not isinstance(each, dict) or each.get("use", "sig") != "sig" or each.get("kty") == "oct":
                continue
            try:
                keys[str(each.get("kid", f"#{number}"))] = jwt.PyJWK(each)
            except (jwt.PyJWTError, ValueError, TypeError):
                continue  # of a kind that is not known here
        return self._now(), keys

    def _identity(self, claims: dict[str, Any]) -> Identity:
        options = self._options
        found: Any = claims
        for part in options.role_claim.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        roles = (found,) if isinstance(found, str) else tuple(found) if isinstance(found, list) else ()
        role = role_of(tuple(str(each) for each in roles) or ("",), options.viewers, options.operators)
        subject = str(claims["sub"])
        shown = claims.get(options.name_claim)
        name = f"{shown} ({subject})" if isinstance(shown, str) and shown and shown != subject else subject
        name = printable(name)[:NAME_CHARS_MAX]
        if not role:
            log.info("OIDC: %s has no role here", name)
            raise LoginRefused(f"you are logged in at the provider as {name}, who has no role here", "role")
        return Identity(name=name, role=role, method="oidc")

    # -- the provider ----------------------------------------------------------------------------------------------

    async def _known_metadata(self) -> _Metadata:
        async with self._lock:
            if self._metadata is None or self._now() - self._metadata[0] >= KEPT_S:
                issuer = self._options.issuer.rstrip("/")
                answer = await self._asked("GET", f"{issuer}/.well-known/openid-configuration")
                try:
                    found = msgspec.convert(answer, _Metadata)
                except msgspec.ValidationError as error:
                    log.warning("OIDC: the provider's metadata cannot be used: %s", error)
                    raise LoginUnavailable(_AWAY) from None
                if found.issuer.rstrip("/") != issuer:
                    log.warning("OIDC: the provider calls itself %s", printable(found.issuer))
                    raise LoginUnavailable("the login provider calls itself by another name than web.oidc.issuer")
                self._metadata = (self._now(), found)
            return self._metadata[1]

    async def _asked(self, method: str, url: str, **arguments: Any) -> dict[str, Any]:
        """Return the provider's JSON. An error's body is returned, too. Raises LoginUnavailable."""
        if urlsplit(url).scheme != "https" and urlsplit(self._options.issuer).scheme == "https":
            log.warning("OIDC: the provider names %s, which is not https", printable(url))
            raise LoginUnavailable(_AWAY)
        try:
            async with (
                httpx.AsyncClient(
                    transport=self._transport, timeout=ANSWER_S, trust_env=False, verify=self._context()
                ) as client,
                client.stream(method, url, headers={"Accept": "application/json"}, **arguments) as answer,
            ):
                body = bytearray()
                async for part in answer.aiter_bytes():
                    body += part
                    if len(body) > ANSWER_BYTES_MAX:
                        raise ValueError("the answer is too large")
            if answer.status_code >= 500:
                raise ValueError(f"status {answer.status_code}")
            return decode_json(bytes(body), dict[str, Any])
        except (httpx.HTTPError, OSError, ValueError) as error:
            log.warning("OIDC: %s: %s", printable(url), printable(str(error))[:200])
            raise LoginUnavailable(_AWAY) from None

    def _context(self) -> ssl.SSLContext:
        if self._tls is None or self._now() - self._tls[0] >= KEPT_S:
            self._tls = (self._now(), verifying_context(self._options.ca or None))
        return self._tls[1]


def _chosen(keys: dict[str, jwt.PyJWK], kid: str) -> jwt.PyJWK | None:
    """Return the key of this id; a token without an id is of the only key."""
    return keys.get(kid) if kid else next(iter(keys.values())) if len(keys) == 1 else None


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise LoginRefused(otherwise)


def _digest(secret: str) -> bytes:
    return sha256(secret.encode("utf-8", "replace")).digest()
