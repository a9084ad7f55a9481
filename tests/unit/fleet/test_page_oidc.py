"""Logins at an OpenID provider: what is sent there, and which of its answers are believed."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from eyot_fleet.web import oidc
from eyot_fleet.web.identity import Identity, LoginRefused, LoginUnavailable
from eyot_fleet.web.oidc import OidcLogin
from eyot_fleet.web_options import OidcOptions
from support.devices.fleet_browser import Browser
from support.devices.fleet_page import OPTIONS, replaced

ISSUER, REDIRECT = "https://login.example", "https://fleet.example/login/callback"
CHOSEN = OidcOptions(issuer=ISSUER, client_id="eyot", viewers=("watch",), operators=("run",))
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def jwk(key: rsa.RSAPrivateKey, kid: str) -> dict[str, Any]:
    return json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key())) | {"kid": kid, "use": "sig"}


class Provider(httpx.AsyncBaseTransport):
    """A provider: it checks the code's verifier, and signs what a test has put into the claims."""

    def __init__(self) -> None:
        self.claims: dict[str, Any] = {"groups": ["run"], "preferred_username": "ada"}
        self.metadata: dict[str, Any] = {
            "issuer": ISSUER, "authorization_endpoint": f"{ISSUER}/auth?realm=a", "token_endpoint": f"{ISSUER}/token",
            "jwks_uri": f"{ISSUER}/keys",
        }  # fmt: skip
        self.keys: list[dict[str, Any]] = [jwk(KEY, "one")]
        self.signs: dict[str, Any] = {"key": KEY, "algorithm": "RS256", "headers": {"kid": "one"}}
        self.challenge = self.nonce = ""
        self.asked: list[httpx.Request] = []
        self.away = False
        self.body: bytes | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        self.asked.append(request)
        if self.away:
            raise httpx.ConnectError("no route to host")
        path = request.url.path
        if path == "/.well-known/openid-configuration":
            return httpx.Response(200, json=self.metadata)
        if path == "/keys":
            return httpx.Response(200, json={"keys": self.keys})
        if self.body is not None:
            return httpx.Response(200, content=self.body)
        form = {name: values[0] for name, values in parse_qs(request.content.decode()).items()}
        if digest(form["code_verifier"]) != self.challenge or form["redirect_uri"] != REDIRECT:
            return httpx.Response(400, json={"error": "invalid_grant"})
        return httpx.Response(200, json={"id_token": self.token(), "access_token": "a", "token_type": "Bearer"})

    def token(self) -> str:
        now = int(time.time())
        claims = {"iss": ISSUER, "aud": "eyot", "sub": "17", "iat": now, "exp": now + 60, "nonce": self.nonce}
        found = {name: value for name, value in (claims | self.claims).items() if value is not None}
        return jwt.encode(found, **self.signs)


def digest(verifier: str) -> str:
    return urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()


class Sides:
    """The page's side and the provider's."""

    def __init__(self, options: OidcOptions = CHOSEN) -> None:
        self.provider = Provider()
        self.now_s = 1000.0
        self.login = OidcLogin(options, REDIRECT, lambda: self.now_s, self.provider)

    async def begin(self) -> tuple[dict[str, str], str]:
        """The parameters that the browser takes to the provider, and its cookie."""
        address, browser = await self.login.begin("192.0.2.1")
        asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        self.provider.challenge, self.provider.nonce = asked["code_challenge"], asked["nonce"]
        return asked, browser

    async def finish(self, **answer: str) -> Identity:
        asked, browser = await self.begin()
        return await self.login.finish({"state": asked["state"], "code": "c"} | answer, browser)


@pytest.fixture
def sides() -> Sides:
    return Sides()


async def test_a_login_with_code_and_pkce(sides: Sides) -> None:
    asked, browser = await sides.begin()
    assert {name: asked[name] for name in ("realm", "response_type", "client_id", "redirect_uri", "scope", "code_challenge_method")} == {
        "realm": "a", "response_type": "code", "client_id": "eyot", "redirect_uri": REDIRECT, "scope": "openid profile",
        "code_challenge_method": "S256",
    }  # fmt: skip
    assert browser not in json.dumps(asked)
    found = await sides.login.finish({"state": asked["state"], "code": "c"}, browser)
    assert found == Identity(name="ada (17)", role="operator", method="oidc")
    assert "client_secret" not in sides.provider.asked[1].content.decode()


@pytest.mark.parametrize(
    ("claims", "role"),
    [
        ({"groups": ["x", "watch"]}, "viewer"),
        ({"groups": "run"}, "operator"),
        ({"groups": ["watch", "run"]}, "operator"),
    ],
)
async def test_claims_give_the_role(sides: Sides, claims: dict[str, Any], role: str) -> None:
    sides.provider.claims |= claims
    assert (await sides.finish()).role == role


async def test_a_claim_may_lie_within_objects_and_everybody_may_be_a_viewer() -> None:
    options = replaced(CHOSEN, role_claim="realm_access.roles", viewers=("*",))
    sides = Sides(options)
    sides.provider.claims |= {"realm_access": {"roles": ["run"]}}
    assert (await sides.finish()).role == "operator"
    sides.provider.claims |= {"realm_access": "x", "preferred_username": "line\nend\x1b[31m"}
    found = await sides.finish()
    assert (found.role, found.name) == ("viewer", "line\\nend\\x1b[31m (17)")


@pytest.mark.parametrize("groups", [["other"], None, 7, {"run": 1}, ["RUN"], [["run"]], ""])
async def test_without_a_role_nobody_is_let_in(sides: Sides, groups: object) -> None:
    sides.provider.claims["groups"] = groups
    with pytest.raises(LoginRefused) as refused:
        await sides.finish()
    assert refused.value.code == "role"


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://evil.example"}, {"aud": "other"}, {"aud": ["eyot", "other"]}, {"azp": "other"}, {"nonce": "x"}, {"nonce": None},
        {"exp": int(time.time()) - 3600}, {"exp": None}, {"iat": int(time.time()) + 3600}, {"iat": None}, {"sub": None},
        {"nbf": int(time.time()) + 3600}, {"aud": None}, {"iss": None},
    ],
)  # fmt: skip
async def test_a_token_that_is_not_for_this_login_is_refused(sides: Sides, claims: dict[str, Any]) -> None:
    sides.provider.claims |= claims
    with pytest.raises(LoginRefused):
        await sides.finish()


@pytest.mark.parametrize(
    "signs",
    [
        {"key": OTHER, "algorithm": "RS256", "headers": {"kid": "one"}},
        {"key": OTHER, "algorithm": "RS256", "headers": {"kid": "two"}},
        {"key": "", "algorithm": "none"},
        {"key": "x" * 64, "algorithm": "HS256", "headers": {"kid": "one"}},
        {"key": ec.generate_private_key(ec.SECP256R1()), "algorithm": "ES256", "headers": {"kid": "one"}},
    ],
)
async def test_a_token_that_the_provider_did_not_sign_is_refused(sides: Sides, signs: dict[str, Any]) -> None:
    sides.provider.signs = signs
    with pytest.raises(LoginRefused):
        await sides.finish()


async def test_other_kinds_of_keys_are_accepted_and_shared_secrets_are_not(sides: Sides) -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    secret = {"kty": "oct", "k": urlsafe_b64encode(b"x" * 64).decode(), "kid": "one"}
    sides.provider.keys = [
        secret,
        {"kty": "new", "kid": "x"},
        json.loads(jwt.algorithms.OKPAlgorithm.to_jwk(key.public_key())) | {"kid": "e"},
    ]
    sides.provider.signs = {"key": key, "algorithm": "EdDSA", "headers": {"kid": "e"}}
    assert (await sides.finish()).role == "operator"
    sides.provider.signs = {"key": "x" * 64, "algorithm": "HS256", "headers": {"kid": "one"}}
    with pytest.raises(LoginRefused):
        await sides.finish()


async def test_keys_are_kept_and_a_new_one_is_looked_up_once_in_ten_seconds(sides: Sides) -> None:
    def lookups() -> int:
        return sum(1 for each in sides.provider.asked if each.url.path == "/keys")

    for _ in range(3):
        await sides.finish()
    assert lookups() == 1
    sides.provider.keys = [jwk(OTHER, "two")]
    sides.provider.signs = {"key": OTHER, "algorithm": "RS256", "headers": {"kid": "two"}}
    sides.now_s += oidc.KEYS_AGAIN_S
    assert (await sides.finish()).role == "operator"
    assert lookups() == 2
    sides.provider.signs["headers"] = {"kid": "three"}
    for _ in range(5):
        with pytest.raises(LoginRefused):
            await sides.finish()
    assert lookups() == 2
    sides.provider.signs["headers"] = {"kid": "two"}
    sides.now_s += oidc.KEPT_S
    await sides.finish()
    assert lookups() == 3


async def test_a_login_ends_once_in_its_own_browser_and_in_time(sides: Sides) -> None:
    asked, browser = await sides.begin()
    answer = {"state": asked["state"], "code": "c"}
    for state, secret in ((asked["state"], "other"), ("x", browser)):
        with pytest.raises(LoginRefused, match="not begun in this browser"):
            await sides.login.finish({"state": state, "code": "c"}, secret)
    with pytest.raises(LoginRefused, match="not begun in this browser"):  # the first wrong try has used it up
        await sides.login.finish(answer, browser)
    asked, browser = await sides.begin()
    sides.now_s += oidc.PENDING_S
    with pytest.raises(LoginRefused, match="took too long"):
        await sides.login.finish({"state": asked["state"], "code": "c"}, browser)


async def test_logins_that_never_end_are_bounded(sides: Sides) -> None:
    first, browser = await sides.begin()
    for _ in range(50):
        await sides.login.begin("192.0.2.66")
    assert len(sides.login._pending) == oidc.ADDRESS_PENDING_MAX + 1
    for number in range(oidc.PENDING_MAX):
        await sides.login.begin(f"198.51.100.{number}")
    assert len(sides.login._pending) == oidc.PENDING_MAX
    with pytest.raises(LoginRefused):
        await sides.login.finish({"state": first["state"], "code": "c"}, browser)


async def test_the_providers_refusal_and_another_providers_answer(sides: Sides) -> None:
    with pytest.raises(LoginRefused, match="access_denied"):
        await sides.finish(error="access_denied")
    with pytest.raises(LoginRefused, match="another login provider"):
        await sides.finish(iss="https://evil.example")
    assert (await sides.finish(iss=ISSUER)).role == "operator"
    with pytest.raises(LoginRefused, match="no code"):
        await sides.finish(code="")
    asked, browser = await sides.begin()
    sides.provider.challenge = "x"
    with pytest.raises(LoginRefused, match="does not accept"):
        await sides.login.finish({"state": asked["state"], "code": "c"}, browser)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b"\xff", b"[" * 5000, b'{"a":"' + b"x" * oidc.ANSWER_BYTES_MAX + b'"}']
)
async def test_an_answer_that_cannot_be_read_makes_the_provider_unavailable(sides: Sides, body: bytes) -> None:
    sides.provider.body = body
    with pytest.raises(LoginUnavailable):
        await sides.finish()


@pytest.mark.parametrize(
    "changed",
    [
        {"issuer": "https://evil.example"}, {"token_endpoint": "http://login.example/token"}, {"jwks_uri": None}, {"token_endpoint": 7},
    ],
)  # fmt: skip
async def test_metadata_that_leads_elsewhere_is_not_used(sides: Sides, changed: dict[str, Any]) -> None:
    sides.provider.metadata |= changed
    with pytest.raises(LoginUnavailable):
        await sides.finish()


async def test_the_clients_secret_is_sent_as_the_provider_wants_it(tmp_path: Any) -> None:
    file = tmp_path / "secret"
    file.write_text("s3cret\n")
    sides = Sides(replaced(CHOSEN, client_secret_file=str(file)))
    await sides.finish()
    assert sides.provider.asked[1].headers["authorization"].startswith("Basic ")
    sides = Sides(replaced(CHOSEN, client_secret_file=str(file)))
    sides.provider.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
    await sides.finish()
    assert "client_secret=s3cret" in sides.provider.asked[1].content.decode()
    assert "s3cret" not in repr(sides.login._options)


async def test_at_the_page_the_provider_sends_back_to_a_session() -> None:
    sides = Sides()
    browser = Browser(replaced(OPTIONS, url="https://fleet.example", oidc=CHOSEN), oidc=sides.login)
    assert (await browser.get("/login/oidc"))[0] == 303
    (location,), (cookie,) = browser.header("Location"), browser.header("Set-Cookie")
    assert location.startswith(f"{ISSUER}/auth?realm=a&response_type=code")
    assert "; HttpOnly; SameSite=Lax; Max-Age=600; Secure" in cookie
    asked = {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}
    sides.provider.challenge, sides.provider.nonce = asked["code_challenge"], asked["nonce"]
    path = f"/login/callback?state={asked['state']}&code=c"
    assert (await browser.get(path, sec_fetch_site="cross-site"))[0] == 303
    assert browser.header("Location") == ["/"]
    assert "SameSite=Strict" in browser.header("Set-Cookie")[1]
    _, told = await browser.get("/api/session")
    assert (told["user"], told["role"]) == ("ada (17)", "operator")
    assert (browser.backend.lines[-1].method, browser.backend.lines[-1].outcome) == ("oidc", "done")
    # The same answer once more does nothing.
    assert (await browser.get(path))[0] == 303
    assert browser.header("Location") == ["/#/login/stale"]


async def test_at_the_page_a_provider_that_is_away_is_told_and_refusals_are_limited() -> None:
    sides = Sides()
    browser = Browser(replaced(OPTIONS, url="https://fleet.example", oidc=CHOSEN), oidc=sides.login)
    sides.provider.away = True
    await browser.get("/login/oidc")
    assert browser.header("Location") == ["/#/login/unavailable"]
    for _ in range(5):
        await browser.get("/login/callback?state=forged&code=c")
        assert browser.header("Location") == ["/#/login/stale"]
    await browser.get("/login/callback?state=forged&code=c")
    assert browser.header("Location") == ["/#/login/limited"]
    assert {line.outcome for line in browser.backend.lines} == {"refused"}
