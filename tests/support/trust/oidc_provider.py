"""An OpenID provider in a thread: a real one for tests (Authlib on Flask), with its own login page."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Self

import oidc_provider_mock


class OidcProvider:
    """The provider while the block runs. `users`: name to groups."""

    def __init__(self, users: dict[str, list[str]]) -> None:
        self._users = [
            oidc_provider_mock.User(sub=name, claims={"groups": groups, "preferred_username": name})
            for name, groups in users.items()
        ]
        self._stack = ExitStack()
        self.issuer = ""

    def __enter__(self) -> Self:
        server = self._stack.enter_context(
            oidc_provider_mock.run_server_in_thread(require_nonce=True, user_claims=self._users)
        )
        self.issuer = f"http://localhost:{server.server_port}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
