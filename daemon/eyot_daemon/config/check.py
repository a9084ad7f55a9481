"""Checks that span several options: names that must exist, sums that must fit.

They run on the final options, after the command line's flags, and name the place in the file where there is one.
"""

from __future__ import annotations

from eyot_daemon.config.accounts import GLOBAL_ACCOUNT, SYSTEM_ACCOUNT_DEFAULT
from eyot_daemon.config.imports_check import check_imports
from eyot_daemon.config.options import Options
from eyot_daemon.config.reader import Reading
from eyot_wire.device_requests import is_token
from eyot_wire.go.duration import format_duration


def check_options(options: Options, reading: Reading) -> None:
    """Raise ConfError for the first inconsistency between options."""
    _check_sizes(options, reading)
    if options.operator is not None:
        _check_operator(options, reading)
        return
    _check_jwt_cookie(options, reading)
    _check_users(options, reading)
    _check_accounts(options, reading)
    _check_leafnodes(options, reading)
    _check_default_domains(options, reading)
    _check_sync(options, reading)
    _check_bridges(options, reading)
    _check_status(options, reading)
    _check_device(options, reading)
    check_imports(options, reading)


def account_names(options: Options) -> set[str]:
    """Return all accounts that will exist: the configured ones, the global and the system account."""
    names = {account.name for account in options.accounts} | {GLOBAL_ACCOUNT}
    if options.system_account:
        names.add(options.system_account)
    return names


def _check_sizes(options: Options, reading: Reading) -> None:
    if options.max_payload > options.max_pending:
        raise reading.error(
            "max_payload",
            f"max_payload ({options.max_payload}) cannot be higher than max_pending ({options.max_pending})",
            "max_pending",
        )
    grace_s, duration_s = options.lame_duck_grace_period_s, options.lame_duck_duration_s
    if grace_s >= duration_s:
        raise reading.error(
            "lame_duck_grace_period",
            f"lame duck grace period ({format_duration(int(grace_s * 1e9))}) should be strictly lower than "
            f"lame duck duration ({format_duration(int(duration_s * 1e9))})",
            "lame_duck_duration",
        )
    if options.https_port and options.tls is None:
        raise reading.error("https_port", "monitoring over HTTPS needs a certificate: tls { } at the top level")
    if options.http_port > 0 and options.http_port == options.port:
        raise reading.error("http_port", "clients and monitoring cannot share one port")


def _check_jwt_cookie(options: Options, reading: Reading) -> None:
    if options.websocket is not None and options.websocket.jwt_cookie:
        raise reading.error(
            "jwt_cookie",
            "trusted operators or trusted keys configuration is required for JWT authentication via cookie "
            f'"{options.websocket.jwt_cookie}"',
        )


def _check_operator(options: Options, reading: Reading) -> None:
    """Check operator mode, in which tokens define accounts and users: the configuration may not."""
    authorization = options.authorization
    if options.accounts:
        raise reading.error("accounts", "operators do not allow Accounts to be configured directly")
    if authorization.users or authorization.user or authorization.token or options.no_auth_user:
        raise reading.error("authorization", "operators do not allow users to be configured directly")
    if authorization.auth_callout is not None:
        raise reading.error("authorization", "operators do not allow authorization callouts to be configured directly")
    resolver = options.operator.resolver if options.operator is not None else None
    if resolver is not None and resolver.kind == "full" and options.system_account == SYSTEM_ACCOUNT_DEFAULT:
        message = "the system account needs to be specified in configuration or the operator jwt"
        raise reading.error("resolver", f"using nats based account resolver - {message}")


def _check_device(options: Options, reading: Reading) -> None:
    device = options.eyot.device
    if device is None:
        return
    if device.account not in account_names(options):
        raise reading.error("device_account", f"the device answers in account {device.account}, which does not exist")
    if not device.name and (not options.server_name or not is_token(options.server_name)):
        raise reading.error("device_name", "a device that answers needs a name, or a server_name that is one token")


def _check_status(options: Options, reading: Reading) -> None:
    status = options.eyot.status
    if status is not None and status.account not in account_names(options):
        raise reading.error("status_account", f"the status is for account {status.account}, which does not exist")


def _check_users(options: Options, reading: Reading) -> None:
    authorization = options.authorization
    account_users = [user for account in options.accounts for user in account.users]
    if authorization.token and account_users:
        raise reading.error("authorization", "Can not have a token and accounts")
    if (authorization.user or authorization.password) and account_users:
        raise reading.error("authorization", "Can not have a single user/pass and accounts")
    callout = authorization.auth_callout
    if callout is not None:
        if callout.account not in account_names(options):
            raise reading.error("authorization", f'auth_callout: account "{callout.account}" is not defined')
        known = {user.user or user.nkey for user in options.users}
        for name in callout.auth_users:
            if name not in known:
                raise reading.error("authorization", f'auth_callout user "{name}" not found in the configuration')
    if options.no_auth_user:
        if not options.users:
            message = f'no_auth_user: "{options.no_auth_user}" present, but users are not defined'
            raise reading.error("no_auth_user", message)
        if not any(options.no_auth_user in (user.user, user.nkey) for user in options.users):
            raise reading.error(
                "no_auth_user",
                f'no_auth_user: "{options.no_auth_user}" not present as user in authorization block or account configuration',
            )


def _check_accounts(options: Options, reading: Reading) -> None:
    names = {account.name for account in options.accounts}
    system = options.system_account
    if system not in ("", "$SYS") and system not in names:
        raise reading.error("system_account", "error resolving system account: account missing")
    for account in options.accounts:
        if account.name == system and account.jetstream is not None:
            raise reading.error(f"account:{system}", "Not allowed to enable JetStream on the system account")


def _check_leafnodes(options: Options, reading: Reading) -> None:
    names = account_names(options)
    for index, remote in enumerate(options.leafnodes.remotes):
        if remote.account not in names:
            raise reading.error(
                f"remote:{index}", f'cannot find local account "{remote.account}" specified in leafnode remote'
            )
    authorization = options.leafnodes.authorization
    if authorization is None:
        return
    for name in (authorization.account, *(user.account for user in authorization.users)):
        if name and name not in names:
            place = "leaf_authorization_account" if name == authorization.account else "leaf_authorization"
            raise reading.error(place, f'cannot find local account "{name}" specified in leafnode authorization')


def _check_default_domains(options: Options, reading: Reading) -> None:
    enabled = {account.name for account in options.accounts if account.jetstream is not None}
    for name, domain in options.default_js_domain:
        message = ""
        if name == options.system_account:
            message = f'system account "{name}" can not be in default_js_domain'
        elif name not in account_names(options):
            message = f'in non operator mode, `default_js_domain` references non existing account "{name}"'
        elif domain and options.jetstream is not None and name in enabled:
            message = f'default_js_domain contains account name "{name}" with enabled JetStream'
        if message:
            raise reading.error("default_js_domain", message)


def _check_sync(options: Options, reading: Reading) -> None:
    """Check that everything that `eyot { sync { } }` names exists."""
    policies = options.eyot.sync
    names = account_names(options)
    for rule in policies.streams:
        if rule.account and rule.account not in names:
            raise reading.error(f"sync:stream:{rule.name}", f'account "{rule.account}" is not defined')
    remotes = [*options.leafnodes.remotes, *(bridge.remote for bridge in options.eyot.bridges)]
    addresses = {(url.host, url.port, remote.account) for remote in remotes for url in remote.urls}
    for index, policy in enumerate(policies.remotes):
        place = f"sync:remote:{index}"
        if not any((host, port) == (policy.host, policy.port) for host, port, _ in addresses):
            raise reading.error(
                place, f"no remote of leafnodes has the address {policy.host}:{policy.port}, and no bridge"
            )
        if policy.account and (policy.host, policy.port, policy.account) not in addresses:
            raise reading.error(
                place, f'no remote of leafnodes to {policy.host}:{policy.port} has account "{policy.account}"'
            )
        if policy.metered is not None and options.jetstream is None:
            raise reading.error(
                f"sync:metered:{index}",
                "a metered link keeps its counter in JetStream's directory: jetstream { } is required",
            )


def _check_bridges(options: Options, reading: Reading) -> None:
    """Check what bridges need of the server: accounts, JetStream, and a client id that stays the same."""
    names = account_names(options)
    for bridge in options.eyot.bridges:
        place = f"bridge:{bridge.name}"
        if bridge.account not in names:
            raise reading.error(f"bridge:account:{bridge.name}", f'account "{bridge.account}" is not defined')
        if options.jetstream is None:
            raise reading.error(place, "a bridge keeps its position in JetStream's store: jetstream { } is required")
        if not bridge.client_id and not options.server_name:
            raise reading.error(place, "a bridge needs a client_id, or a server_name to make it of")
    seen: dict[tuple[str, int, str], str] = {}
    for bridge in options.eyot.bridges:
        for url in bridge.urls:
            key = url.host, url.port, bridge.client_id_at(options.server_name)
            if key in seen:
                raise reading.error(
                    f"bridge:client_id:{bridge.name}",
                    f"bridge {seen[key]} has the same client_id at {url.host}:{url.port}: the two would push each other off",
                )
        for url in bridge.urls:
            seen[url.host, url.port, bridge.client_id_at(options.server_name)] = bridge.name
