"""Mistakes in configurations: each names file, line, column and key, in nats-server's words where it has some."""

from __future__ import annotations

import pytest

from eyot_daemon.config.check import check_options
from eyot_daemon.config.read import read_options
from eyot_wire.conf import ConfError, parse_text

# (configuration, line:column, key, part of the message)
MISTAKES = [
    # unknown keys
    ("portt: 4222", "1:1", "portt", 'unknown field "portt", did you mean "port"?'),
    ("jetstrem {}", "1:1", "jetstrem", 'unknown field "jetstrem", did you mean "jetstream"?'),
    ("eyot { status { evry: 5s } }", "1:17", "evry", 'unknown field "evry", did you mean "every"?'),
    ("eyot { sync { remotes [{ url: 'h:1', metered { bugdet: 1M } }] } }", "1:48", "bugdet", 'did you mean "budget"?'),
    ("eyot { status { every: 5s } }", "1:15", "subject", "must be a subject"),
    ("bridges { a { url: x } }", "1:1", "bridges", 'unknown field "bridges", which belongs in eyot { }'),
    ("Max_Pending_Total: 1", "1:1", "Max_Pending_Total", "which belongs in eyot { }"),
    ("a: 1\nport: 1", "1:1", "a", "unknown field"),
    ("jetstream {\n store_dri: x\n}", "2:2", "store_dri", "unknown field"),
    ("leafnodes {\n remotes [{url: x, credz: y}]}", "2:20", "credz", "unknown field"),
    ("accounts { A {\n  usrs: [] } }", "2:3", "usrs", "unknown field"),
    ("authorization { users [{user: a, pasword: b}] }", "1:34", "pasword", "unknown field"),
    ("eyot { store { sze: 1 } }", "1:16", "sze", "unknown field"),
    ("tls { cert_file: a, key_file: b, cert: c }", "1:34", "cert", "unknown field"),
    ("/ x", "1:1", "/", "unknown field"),
    # wrong types
    ("port: abc", "1:7", "port", "expected an integer, but got a string"),
    ("port: 1.5", "1:7", "port", "expected an integer, but got a decimal number"),
    ('debug: "true"', "1:8", "debug", "expected a boolean, but got a string"),
    ("server_name: 12", "1:14", "server_name", "expected a string, but got an integer (quote it)"),
    ("server_name: [a]", "1:14", "server_name", "expected a string, but got an array"),
    ("server_name: 2006-01-02T15:04:05Z", "1:14", "server_name", "but got a time"),
    ('max_payload: "1MB"', "1:14", "max_payload", "expected an integer, but got a string"),
    ("jetstream: 3", "1:12", "jetstream", "expected a map, boolean or string"),
    ("jetstream: maybe", "1:12", "jetstream", "expected 'enabled' or 'disabled'"),
    ("accounts { A { users: 3 } }", "1:23", "users", "expected an array"),
    ("accounts { A { users: [3] } }", "1:24", "users", "expected a map"),
    ("accounts { A { jetstream: 3 } }", "1:27", "jetstream", "expected a map, boolean or string"),
    ("leafnodes { remotes: {} }", "1:22", "remotes", "expected an array"),
    ("lame_duck_duration: 2m", "1:21", "lame_duck_duration", "expected a string"),
    ("authorization { password: 1234, user: a }", "1:27", "password", "expected a string, but got an integer"),
    # bad values
    ("port: 70000", "1:7", "port", "must be at most 65535"),
    ("port: -2", "1:7", "port", "must be at least -1"),
    ('listen: "a:b"', "1:9", "listen", 'could not parse port "b"'),
    ('listen: "a:4_2"', "1:9", "listen", 'could not parse port "4_2"'),
    ("listen: 127.0.0.1", "1:9", "listen", 'could not parse address string "127.0.0.1"'),
    ('write_deadline: "5"', "1:17", "write_deadline", "error parsing write_deadline"),
    (
        'lame_duck_duration: "10s"',
        "1:21",
        "lame_duck_duration",
        "invalid lame_duck_duration of 10s, minimum is 30 seconds",
    ),
    ("jetstream { max_mem: foo }", "1:22", "max_mem", "expected a size"),
    ('jetstream { domain: "a b" }', "1:21", "domain", 'invalid domain name: derived "$JS.a b.API.>"'),
    ("jetstream { domain: a.b }", "1:21", "domain", "one subject token"),
    ('server_name: "a b"', "1:14", "server_name", "server name cannot contain spaces"),
    ("write_timeout: never", "1:16", "write_timeout", "expected one of default, close, retry"),
    ("store_dir: /a\njetstream { store_dir: /b }", "1:12", "store_dir", "Duplicate 'store_dir'"),
    ("leafnodes { min_version: 2.7.0 }", "1:26", "min_version", "at least 2.8.0"),
    ('leafnodes { remotes [{url: "nats://"}] }', "1:28", "url", "error parsing url"),
    ('leafnodes { remotes [{url: "nats://u:a/b@h:7422"}] }', "1:28", "url", "/ ? # in a password are written as %2F"),
    ('leafnodes { remotes [{urls: ["nats://a:1", "ws://b"]}] }', "1:29", "urls", "cannot have a mix of websocket"),
    ("leafnodes { remotes [{account: A}] }", "1:22", "", "a remote needs urls"),
    ("tls { cert_file: a }", "1:5", "", "missing 'key_file' in TLS configuration"),
    ("tls { }", "1:5", "", "missing 'cert_file'"),
    # users and permissions
    ("accounts { $G {} }", "1:15", "$G", '"$G" is a Reserved Account'),
    ("accounts { A { users: [{password: a}] } }", "1:24", "user", "User entry requires a user"),
    ("accounts { A { users: [{nkey: UABC}] } }", "1:31", "nkey", "Not a valid public nkey for a user"),
    ("accounts { A { users: [{user: a}\n {user: a}] } }", "2:9", "user", 'Duplicate user "a" detected'),
    ("accounts { A { users: [{user: a}] }, B { users: [{user: a}] } }", "1:57", "user", 'Duplicate user "a" detected'),
    (
        "authorization { user: a, password: b, users [{user: c}] }",
        "1:45",
        "users",
        "single user/pass and a users array",
    ),
    ("authorization { token: t, users [{user: c}] }", "1:33", "users", "Can not have a token and a users array"),
    ("authorization { user: a, token: t }", "1:33", "token", "Cannot have a user/pass and token"),
    ("authorization { password: b }", "1:27", "password", "a password needs a user"),
    (
        "authorization { users [{user: a, permissions: {publish: {allow: a, denie: b}}}] }",
        "1:68",
        "denie",
        "unknown field",
    ),
    (
        "authorization { users [{user: a, permissions: {subscribe: a..b}}] }",
        "1:59",
        "subscribe",
        'subject "a..b" is not a valid subject',
    ),
    (
        'authorization { users: [{user: u, password: p, permissions: {publish: "a q"}}] }',
        "1:71",
        "publish",
        'subject "a q" is not a valid subject',
    ),
    ('jetstream { max_file_store: "²K" }', "1:29", "max_file_store", "expected a size"),
    pytest.param(
        "jetstream { max_file_store: '" + "9" * 5000 + "' }", "1:29", "max_file_store", "out of range", id="digits"
    ),
    (
        "authorization { users [{user: a, permissions: {subscribe: 3}}] }",
        "1:59",
        "subscribe",
        "expected a subject or an array",
    ),
    (
        "authorization { users [{user: a, allowed_connection_types: [FOO]}] }",
        "1:60",
        "allowed_connection_types",
        "invalid connection types FOO",
    ),
    # across options
    ("system_account: X", "1:17", "system_account", "error resolving system account: account missing"),
    ("no_auth_user: X", "1:15", "no_auth_user", 'no_auth_user: "X" present, but users are not defined'),
    (
        "no_auth_user: X\nauthorization { users [{user: a}] }",
        "1:15",
        "no_auth_user",
        "not present as user in authorization block",
    ),
    (
        "authorization { token: t }\naccounts { A { users [{user: a}] } }",
        "1:15",
        "authorization",
        "Can not have a token and accounts",
    ),
    (
        "leafnodes {\n remotes [{url: a, account: Z}] }",
        "2:29",
        "account",
        'cannot find local account "Z" specified in leafnode remote',
    ),
    (
        "leafnodes { port: 1, authorization { user: a, account: Z } }",
        "1:56",
        "account",
        "specified in leafnode authorization",
    ),
    ("max_payload: 100000000", "1:14", "max_payload", "cannot be higher than max_pending"),
    ('lame_duck_grace_period: "40s"\nlame_duck_duration: "30s"', "1:25", "lame_duck_grace_period", "strictly lower"),
    ("accounts { S { jetstream: enabled } }\nsystem_account: S", "1:12", "S", "JetStream on the system account"),
    ("default_js_domain { A: hub }", "1:19", "default_js_domain", 'references non existing account "A"'),
    # exports and imports
    ("accounts { A { exports [{service: a, stream: b}] } }", "1:46", "stream", "already saw a service"),
    ("accounts { A { exports [{service: a, response: x}] } }", "1:48", "response", 'Unknown response type: "x"'),
    ("accounts { A { exports [{stream: a, response: single}] } }", "1:47", "response", "non-service"),
    (
        "accounts { A { exports [{service: a, accounts: [B]}] } }",
        "1:25",
        "accounts",
        '"B" account not defined for service export',
    ),
    (
        "accounts { A { imports [{service: {account: B, subject: x}}] } }",
        "1:45",
        "account",
        '"B" account not defined for service import',
    ),
    (
        "accounts { A { imports [{service: {account: B}}] }, B {} }",
        "1:35",
        "",
        "expect an account name and a subject",
    ),
    (
        "accounts { A { imports [{stream: {account: B, subject: x}}] }, B {} }",
        "1:44",
        "account",
        "stream import not authorized",
    ),
    (
        "accounts { A { imports [{stream: {account: B, subject: x}}] }, B { exports [{stream: x, accounts: [C]}] }, C {} }",
        "1:44",
        "account",
        "stream import not authorized",
    ),
    (
        "accounts { A { exports [{service: x}], imports [{service: {account: B, subject: x}}] }, B { exports [{service: x}], imports [{service: {account: A, subject: x}}] } }",
        "1:146",
        "account",
        "import forms a cycle",
    ),
    (
        "accounts { A { imports [{service: {account: B, subject: x}}, {service: {account: B, subject: y}, to: x}] }, B { exports [{service: x}, {service: y}] } }",
        "1:82",
        "account",
        'Duplicate service import subject "x"',
    ),
    (
        "accounts { A { imports [{service: {account: B, subject: x.*}, to: y}] }, B { exports [{service: x.*}] } }",
        "1:45",
        "account",
        "failed to create mapping transform",
    ),
    ("mappings { a: b.$1 }", "1:15", "a", "invalid mapping destination: wildcard index out of range"),
    ("mappings { a..b: c }", "1:12", "a..b", 'Subject "a..b" is not a valid subject'),
    ("mappings { a: [{dest: b, weight: 60}, {dest: c, weight: 60}] }", "1:15", "a", "total weight needs to be <= 100"),
    ("mappings { a: [{dest: b, weight: 101}] }", "1:34", "weight", "a weight from 0 to 100"),
    # what is left to others, or to a later version
    ("cluster { listen: 127.0.0.1:6222 }", "1:9", "cluster", "is the hub's job"),
    ("gateway { name: x }", "1:9", "gateway", "is the hub's job"),
    ("mqtt: 5", "1:7", "mqtt", "Expected mqtt to be a map, got int64"),
    ("mqtt: []", "1:7", "mqtt", "Expected mqtt to be a map, got []interface {}"),
    ("mqtt { prot: 1883 }", "1:8", "prot", 'unknown field "prot", did you mean "port"?'),
    ("mqtt { port: 1883, max_inflight: 65536 }", "1:34", "max_inflight", "invalid value 65536, should in [0..65535]"),
    ('mqtt { ack_wait: "x" }', "1:18", "ack_wait", 'error parsing ack_wait: time: invalid duration "x"'),
    ("eyot { mqtt { max_sesions: 5 } }", "1:15", "max_sesions", 'did you mean "max_sessions"?'),
    ("eyot { mqtt { max_keepalive: 65536 } }", "1:30", "max_keepalive", "must be at most 65535 seconds"),
    ('eyot { mqtt { max_keepalive: "1500ms" } }', "1:30", "max_keepalive", "MQTT counts whole seconds"),
    ("eyot { mqtt { session_expiry_max: 4294967295 } }", "1:35", "session_expiry_max", "must be at most 4294967294"),
    ("eyot { mqtt { session_queue_bytes: -1 } }", "1:36", "session_queue_bytes", "nothing is unlimited here"),
    ("eyot { mqtt { max_packet_size: 10 } }", "1:32", "max_packet_size", "between 1024 and 268435460 bytes"),
    ("eyot { mqtt { max_topic_alias: 65536 } }", "1:32", "max_topic_alias", "must be at most 65535"),
    ("eyot { mqtt { max_inflight: 0 } }", "1:29", "max_inflight", "must be at least 1"),
    (
        "authorization { users: [{user: a, password: b, proxy_required: true}] }",
        "1:64",
        "proxy_required",
        "trusted proxies are not offered by eyotd",
    ),
    ("websocket { port: 1 }", "1:11", "websocket", "websocket requires TLS configuration"),
    ("operator: /none", "1:11", "operator", "error parsing operator JWT"),
    ("trusted_keys: [x]", "1:15", "trusted_keys", "required to be a valid public operator nkey"),
    ("resolver: URL(x)", "1:11", "resolver", "error parsing account resolver"),
    ("default_sentinel: x", "1:19", "default_sentinel", "default sentinel JWT not valid"),
    ("https_port: 8443", "1:13", "https_port", "monitoring over HTTPS needs a certificate"),
    ("jetstream { prev_key: secret }", "1:23", "prev_key", "a previous key without a key"),
    ("jetstream { tpm { keys_file: x } }", "1:17", "tpm", "not offered"),
    ('eyot { store { prev_key_file: "x" } }', "1:31", "prev_key_file", "a previous key without a key"),
    (
        "authorization { auth_callout { issuer: A } }",
        "1:40",
        "issuer",
        "Expected callout user to be a valid public account nkey",
    ),
    ("eyot { sync { stream: {} } }", "1:15", "stream", 'unknown field "stream"'),
    ("eyot { sync { streams { A { priority: 10 } } } }", "1:39", "priority", "must be at most 9"),
    ("eyot { sync { streams { A { bandwidth: 3 } } } }", "1:40", "bandwidth", "at least 16 bytes per second"),
    ("eyot { sync { streams { A { windows: ['25:00-26:00'] } } } }", "1:39", "windows", "no time of day"),
    ("eyot { sync { streams { A { window: 5 } } } }", "1:37", "window", "expected an array"),
    ("eyot { sync { streams { A { windows: [] } } } }", "1:38", "windows", "at least one window"),
    ("eyot { sync { streams { A { account: X } } } }", "1:38", "account", 'account "X" is not defined'),
    ("eyot { sync { streams { 'A.B' { priority: 1 } } } }", "1:25", "A.B", "expected the name of a stream"),
    ("eyot { sync { remotes [{ url: 'h:1', pace: 1 }] } }", "1:38", "pace", "unknown field"),
    ("eyot { sync { remotes [{ account: A }] } }", "1:24", "url", "needs the url"),
    ("eyot { sync { remotes [{ url: 'u:p@h:1' }] } }", "1:31", "url", "without credentials"),
    ("eyot { sync { remotes [{ url: 'h:1' }] } }", "1:31", "url", "no remote of leafnodes has the address h:1"),
    ("eyot { sync { remotes [{ url: 'h', metered { budget: 1 } }] } }", "1:54", "budget", "at least 64K"),
    ("eyot { sync { remotes [{ url: 'h', metered { budget: 1M, reserve: 1M } }] } }", "1:67", "reserve", "less than"),
    (
        "eyot { sync { remotes [{ url: 'h', metered { budget: 1M, reset_day: 31 } }] } }",
        "1:69",
        "reset_day",
        "at most 28",
    ),
    (
        "leafnodes { remotes [{ url: 'h' }] }\neyot { sync { remotes [{ url: 'h', account: X }] } }",
        "2:31",
        "url",
        'to h:7422 has account "X"',
    ),
    (
        "leafnodes { remotes [{ url: 'h' }] }\neyot { sync { remotes [{ url: 'h', metered { budget: 1M } }] } }",
        "2:44",
        "metered",
        "jetstream { } is required",
    ),
    ("eyot { bridges { B { streams: S } } }", "1:20", "url", "a bridge needs a url"),
    ("eyot { bridges { B { url: 'h' } } }", "1:20", "streams", "streams to forward, or topics to take in"),
    ("eyot { bridges { B { url: 'x://u:p@h', streams: S } } }", "1:27", "url", "expected mqtt, mqtts, ws or wss"),
    ("eyot { bridges { 'a.b' { url: 'h', streams: S } } }", "1:18", "a.b", "expected a name"),
    ("eyot { bridges { B { url: 'h', streams: 'a.b' } } }", "1:41", "streams", "names of streams"),
    ("eyot { bridges { B { url: 'h', streams: [S, S] } } }", "1:41", "streams", "named twice"),
    ("eyot { bridges { B { url: 'h', streams: S, qos: 3 } } }", "1:49", "qos", "at most 2"),
    ("eyot { bridges { B { url: 'h', streams: S, pace: 3 } } }", "1:44", "pace", "unknown field"),
    ("eyot { bridges { B { url: 'h', topics { in: 'a/#/b' } } } }", "1:45", "in", "is no topic filter"),
    ("eyot { bridges { B { url: 'h', topics { out: 'a' } } } }", "1:20", "streams", "streams to forward"),
    (
        "eyot { bridges { B { url: 'h', streams: S, credentials { password: p, password_file: f } } } }",
        "1:56",
        "credentials",
        "not both",
    ),
    (
        "eyot { bridges { B { url: 'h', streams: S, topics { out: { filter: a, remote_prefix: 'x/#' } } } } }",
        "1:58",
        "out",
        "no wildcards",
    ),
    ("eyot { bridges { B { url: 'h', streams: S } } }", "1:27", "url", "jetstream { } is required"),
    ("jetstream: enabled\neyot { bridges { B { url: 'h', streams: S } } }", "2:27", "url", "needs a client_id"),
    (
        "jetstream: enabled\neyot { bridges { B { url: 'h', client_id: c, account: X, streams: S } } }",
        "2:55",
        "account",
        'account "X" is not defined',
    ),
]


def _load(text: str) -> None:
    loaded = read_options(parse_text(text, "t.conf", env={}))
    check_options(loaded.options, loaded.reading)


@pytest.mark.parametrize(("text", "place", "key", "words"), MISTAKES)
def test_mistakes(text: str, place: str, key: str, words: str) -> None:
    with pytest.raises(ConfError) as caught:
        _load(text)
    error = caught.value
    assert words in error.message
    assert (f"{error.line}:{error.column}", error.key) == (place, key)
    assert str(error).startswith(f"t.conf:{place}: ")


@pytest.mark.parametrize(
    "text",
    [
        "cluster { name: site }",
        "feature_flags { js_ack_fc_v2: false }",
        "ocsp: false",
        "proxies: []",
        "jetstream { max_outstanding_catchup: 1M, cipher: aes, limits { max_ack_pending: 5, batch { timeout: 1s } } }",
        "accounts { A { jetstream { cluster_traffic: owner } } }",
        "leafnodes { port: -1, compression: off, isolate_leafnode_interest: true, dial_timeout: 2s }",
        "leafnodes { remotes [{url: x, jetstream_cluster_migrate: true, disabled: true, first_info_timeout: 2s}] }",
        "max_closed_clients: 5, no_fast_producer_stall: true, disable_sublist_cache: false, reconnect_error_reports: 2",
        "accounts { A { msg_trace { dest: t, sampling: 10 } } }",
    ],
)
def test_known_keys_that_ask_for_nothing_here_are_accepted(text: str) -> None:
    _load(text)


def test_no_error_repeats_a_password() -> None:
    for text in (
        'leafnodes { remotes [{url: "nats://u:hunter2@:1"}] }',
        "authorization { users [{user: a, password: [hunter2]}] }",
        "authorization { users [{user: a, password: hunter2}, {user: a, password: hunter2}] }",
    ):
        with pytest.raises(ConfError) as caught:
            _load(text)
        assert "hunter2" not in str(caught.value)
