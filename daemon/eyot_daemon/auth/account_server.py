"""An account server: the address of `resolver: URL(...)`, which answers `<url><account>` with the account's token."""

from __future__ import annotations

import urllib.error
import urllib.request

from eyot_daemon.auth.account_tokens import TokenStoreError
from eyot_daemon.config.operator import ResolverOptions
from eyot_daemon.net.tls_context import TlsError, client_context

#: Time limit of one request, seconds (nats-server's DEFAULT_ACCOUNT_FETCH_TIMEOUT).
TIMEOUT_S = 1.9
#: Bytes of a token (the JWT library's limit).
TOKEN_MAX = 1 << 20


def fetch_by_url(resolver: ResolverOptions, account: str) -> str:
    """Return the token that an account server has. Raises TokenStoreError without the address, which may hold a password."""
    try:
        tls = client_context(resolver.tls) if resolver.url.startswith("https:") else None
        with urllib.request.urlopen(f"{resolver.url}{account}", timeout=TIMEOUT_S, context=tls) as answer:
            return str(answer.read(TOKEN_MAX).decode("utf-8", "replace")).strip()
    except urllib.error.HTTPError as error:
        error.close()
        raise TokenStoreError(f"could not fetch {account}: {error.code} {error.reason}") from None
    except (OSError, ValueError, TlsError) as error:
        reason = getattr(error, "reason", error)
        raise TokenStoreError(f"could not fetch {account}: {reason}") from None
