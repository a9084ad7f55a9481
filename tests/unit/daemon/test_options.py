"""Options from configurations: values and defaults, the seeds' files, and what is refused with which place and words."""

from __future__ import annotations

from pathlib import Path

import pytest

from eyot_daemon.config.accounts import (
    AccountJetStreamOptions,
    ExportOptions,
    ImportOptions,
    MappingDestination,
    UserOptions,
)
from eyot_daemon.config.check import check_options
from eyot_daemon.config.leaf import LeafUrl
from eyot_daemon.config.options import Options
from eyot_daemon.config.permissions import Permissions, ResponsePermission, SubjectPermission
from eyot_daemon.config.read import Loaded, load_options, read_options
from eyot_daemon.config.reader import Reading
from eyot_daemon.config.tls import CURVES
from eyot_daemon.config.tls_read import can_keep_to
from eyot_daemon.net.tls_context import server_context
from eyot_wire.conf import ConfError, parse_text
from support.trust.certificates import Authority

USER_KEY = "UCU6OB36HGCC53AMXUNSGKICBTX3QHTEJFTCFPAU67QCK7Z4MDEB2GIQ"

ACCOUNTS = """
accounts {
    SYS: {
        users: [{user: admin, password: admin}]
    },
    ACC: {
        users: [{user: acc, password: acc}],
        jetstream: enabled
    }
}
system_account: SYS
"""

HUB = """
port: 4222
server_name: hub-server
jetstream {
    store_dir="./store_server"
    domain=hub
}
leafnodes {
    port: 7422
}
include ./accounts.conf
"""

LEAF = """
port: 4111
server_name: leaf-server
jetstream {
    store_dir="./store_leaf"
    domain=leaf
}
leafnodes {
    remotes = [
        {
            urls: ["nats://admin:admin@0.0.0.0:7422"]
            account: "SYS"
        },
        {
            urls: ["nats://acc:acc@0.0.0.0:7422"]
            account: "ACC"
        }
    ]
}
include ./accounts.conf
"""

SHARED_ACCOUNTS = """
accounts {
    SYS: {
        users: [{user: admin, password: admin}]
    },
    ACC: {
        users: [{user: acc, password: acc}],
        jetstream: enabled
        exports: [
            # minimum export needed to allow source/mirror to create a consumer on the fly
            {service: "$JS.hub.API.CONSUMER.CREATE.*", response_type: "stream"}
            # minimum export needed for push consumer. This includes source and mirror!
            {stream: "deliver.acc.hub.>"}
            {service: "$JS.hub.API.CONSUMER.MSG.NEXT.aggregate-test-leaf.dur", response_type: "stream"}
            {service: "$JS.ACK.aggregate-test-leaf.dur.>"}
            {service: "$JS.FC.aggregate-test-leaf.dur.>"}
        ]
    }
    IMPORT_MIRROR: {
        users: [{user: import_mirror, password: import_mirror}],
        jetstream: enabled
        imports: [
            {service: {account: ACC, subject: "$JS.hub.API.CONSUMER.CREATE.*"}, to: "JS.acc@hub.API.CONSUMER.CREATE.*" }
            {service: {account: ACC, subject: "$JS.FC.aggregate-test-leaf.dur.>"}}
            {stream: {account: ACC, subject: deliver.acc.hub.import_mirror.>}}
        ]
    }
    # As of now, cross account, only pull consumer are supported.
    IMPORT_CLIENT: {
        users: [{user: import_client, password: import_client}],
        jetstream: enabled
        imports: [
            {service: {account: ACC, subject: "$JS.hub.API.CONSUMER.MSG.NEXT.aggregate-test-leaf.dur"}, to: "JS.acc@hub.API.CONSUMER.MSG.NEXT.aggregate-test-leaf.dur" }
            {service: {account: ACC, subject: "$JS.ACK.aggregate-test-leaf.dur.>"}}
        ]
    }
}
system_account: SYS
"""


def loaded(text: str, **env: str) -> Loaded:
    return read_options(parse_text(text, "t.conf", env))


def options(text: str, **env: str) -> Options:
    """Options of a text, checked as at start."""
    result = loaded(text, **env)
    check_options(result.options, result.reading)
    return result.options


@pytest.mark.parametrize("accounts", [ACCOUNTS, SHARED_ACCOUNTS], ids=["accounts", "shared"])
def test_the_configurations_of_the_leaf_node_guide(tmp_path: Path, accounts: str) -> None:
    for name, text in (("hub.conf", HUB), ("leaf.conf", LEAF), ("accounts.conf", accounts)):
        (tmp_path / name).write_text(text)
    hub, reading = load_options(tmp_path / "hub.conf")
    check_options(hub, reading)
    assert reading.warnings == []
    assert (hub.port, hub.server_name, hub.leafnodes.port, hub.system_account) == (4222, "hub-server", 7422, "SYS")
    assert hub.jetstream is not None
    assert (hub.jetstream.store_dir, hub.jetstream.domain) == ("./store_server", "hub")
    leaf, reading = load_options(tmp_path / "leaf.conf")
    check_options(leaf, reading)
    assert [remote.account for remote in leaf.leafnodes.remotes] == ["SYS", "ACC"]
    assert leaf.leafnodes.remotes[1].urls == (
        LeafUrl(scheme="nats", host="0.0.0.0", port=7422, user="acc", password="acc"),
    )
    assert leaf.leafnodes.port is None


def test_shared_accounts_in_detail() -> None:
    by_name = {account.name: account for account in options(SHARED_ACCOUNTS).accounts}
    assert by_name["ACC"].exports[0] == ExportOptions(
        kind="service", subject=b"$JS.hub.API.CONSUMER.CREATE.*", response_type="stream"
    )
    assert by_name["ACC"].exports[1] == ExportOptions(kind="stream", subject=b"deliver.acc.hub.>")
    assert by_name["IMPORT_MIRROR"].imports[0] == ImportOptions(
        kind="service",
        account="ACC",
        subject=b"$JS.hub.API.CONSUMER.CREATE.*",
        to=b"JS.acc@hub.API.CONSUMER.CREATE.*",
    )
    assert by_name["IMPORT_MIRROR"].jetstream == AccountJetStreamOptions()
    assert by_name["SYS"].jetstream is None


def test_defaults_are_nats_servers() -> None:
    defaults = options("")
    assert defaults == Options()
    assert (defaults.host, defaults.port, defaults.max_payload, defaults.max_control_line) == (
        "0.0.0.0",
        4222,
        1048576,
        4096,
    )
    assert (defaults.ping_interval_s, defaults.ping_max, defaults.max_pending) == (120.0, 2, 64 << 20)
    assert not defaults.auth_required


def test_top_level_values() -> None:
    read = options(
        """
        listen: "127.0.0.1:-1", server_name: n1; http: localhost:8222
        MAX_PAYLOAD = 2MB
        max_pending: 128mb
        ping_interval: "30s"
        write_deadline: 5s
        max_conn: 10
        max_subs: 20
        lame_duck_duration: "1m"
        debug: true, trace: yes, logtime: off
        logfile: "/tmp/x.log"
        pidfile: x.pid
        server_tags: [a:b, c]
        server_metadata { site: ridge }
        http_base_path: nats
        """
    )
    assert (read.host, read.port, read.http_host, read.http_port) == ("127.0.0.1", -1, "localhost", 8222)
    assert (read.max_payload, read.max_pending, read.max_connections, read.max_subscriptions) == (
        2 << 20,
        128 << 20,
        10,
        20,
    )
    assert (read.ping_interval_s, read.write_deadline_s, read.lame_duck_duration_s) == (30.0, 5.0, 60.0)
    assert (read.debug, read.trace, read.logtime, read.log_file, read.pid_file) == (
        True,
        True,
        False,
        "/tmp/x.log",
        "x.pid",
    )
    assert (read.server_tags, read.server_metadata, read.http_base_path) == (
        ("a:b", "c"),
        (("site", "ridge"),),
        "/nats",
    )


def test_host_and_port_beat_listen_and_ipv6_is_understood() -> None:
    assert (options("listen: 1.2.3.4:5\nport: 6").host, options("listen: 1.2.3.4:5\nport: 6").port) == ("1.2.3.4", 6)
    assert options('listen: "[::1]:4222"').host == "::1"
    assert options("listen: 4333").port == 4333
    assert options("net: 127.0.0.1").host == "127.0.0.1"


def test_jetstream_forms() -> None:
    assert options("jetstream: true").jetstream is not None
    assert options("jetstream: enabled").jetstream is not None
    assert options("jetstream: false").jetstream is None
    assert options("jetstream: disabled").jetstream is None
    assert options("jetstream { enabled: false }").jetstream is None
    js = options(
        "store_dir: /x\njetstream { max_mem: '1G', max_file: 2048, sync: always, domain: d, strict: false }"
    ).jetstream
    assert js is not None
    assert (js.store_dir, js.memory_max, js.file_max, js.sync_always, js.strict) == ("/x", 1 << 30, 2048, True, False)
    assert (js.buffered_msgs_max, js.buffered_bytes_max) == (0, 0)
    js = options("jetstream { max_buffered_msgs: 10, max_buffered_size: 64MB }").jetstream
    assert js is not None
    assert (js.buffered_msgs_max, js.buffered_bytes_max) == (10, 64 << 20)


def test_users_and_permissions() -> None:
    read = options(
        """
        authorization {
            default_permissions { publish: "d.>" }
            timeout: 1.5
            users [
                {user: a, password: $2a$11$hash, permissions: {publish: [x, "y.>"], subscribe: {allow: "q grp.*", deny: z}}}
                {username: b, pass: b, permissions: {allow_responses: true}, allowed_connection_types: [standard, LEAFNODE]}
                {nkey: $KEY, permissions: {pub: {deny: nope}, allow_responses: {max: 5, expires: "1m"}}}
            ]
        }
        no_auth_user: b
        """,
        KEY=USER_KEY,
    )
    a, b, c = read.authorization.users
    assert a.permissions == Permissions(
        publish=SubjectPermission(allow=(b"x", b"y.>")), subscribe=SubjectPermission(allow=(b"q grp.*",), deny=(b"z",))
    )
    assert a.password == "$2a$11$hash"
    assert b == UserOptions(
        account="$G",
        user="b",
        password="b",
        permissions=Permissions(publish=SubjectPermission(allow=()), allow_responses=ResponsePermission()),
        connection_types=frozenset({"STANDARD", "LEAFNODE"}),
    )
    assert c.permissions == Permissions(
        publish=SubjectPermission(allow=(), deny=(b"nope",)),
        allow_responses=ResponsePermission(max_messages=5, expires_s=60.0),
    )
    assert read.authorization.default_permissions == Permissions(publish=SubjectPermission(allow=(b"d.>",)))
    assert read.authorization.timeout_s == 1.5
    assert not read.auth_required  # no_auth_user takes everybody in


def test_account_options() -> None:
    read = options(
        """
        accounts {
            A {
                jetstream { max_mem: "1M", max_disk: 2mib, max_streams: 3, max_consumers: 4, max_bytes_required: true }
                limits { max_conn: 1, max_subs: 2, max_payload: 3, max_leafs: 4 }
                mappings { "a.*": "b.$1", c: [{dest: d, weight: "60%"}, {destination: e, weight: 40}] }
                default_permissions { sub: "only.>" }
                exports [{stream: "s.>", accounts: [B]}, {service: "r.*", account_token_position: 2,
                          latency: {subject: lat, sampling: 50}, threshold: "5s"}, {service: c, response: chunked}]
            },
            B { imports [{stream: {account: A, subject: "s.x"}, prefix: "p."}, {service: {account: A, subject: r.B}, to: local}] }
        }
        """
    )
    a, b = read.accounts
    assert a.jetstream == AccountJetStreamOptions(
        memory_max=1 << 20, file_max=2 << 20, streams_max=3, consumers_max=4, max_bytes_required=True
    )
    assert (a.limits.connections_max, a.limits.subscriptions_max, a.limits.payload_max, a.limits.leafnodes_max) == (
        1,
        2,
        3,
        4,
    )
    assert [mapping.source for mapping in a.mappings] == ["a.*", "c"]
    assert a.mappings[1].destinations == (
        MappingDestination(subject="d", weight=60),
        MappingDestination(subject="e", weight=40),
    )
    assert a.exports[0].accounts == ("B",)
    assert (a.exports[2].response_type, a.exports[1].response_threshold_s) == ("chunked", 5.0)
    assert b.imports[0] == ImportOptions(kind="stream", account="A", subject=b"s.x", prefix=b"p")
    assert [account.name for account in options("accounts [X, Y]").accounts] == ["X", "Y"]


def test_leafnodes() -> None:
    read = options(
        """
        leafnodes {
            listen: "127.0.0.1:-1"
            authorization { user: l, password: p, account: A, timeout: 3 }
            min_version: 2.9.0
            reconnect: "2s"
            remotes [
                {url: "tls://u%40x:p%3Aw@hub.example", account: A, deny_exports: "secret.>", deny_imports: [x, y], hub: true,
                 tls: {ca_file: ca.pem, insecure: true}}
                {urls: ["wss://hub.example/edge"], creds: "/etc/x.creds"}
            ]
        }
        accounts [A]
        """
    )
    leafnodes = read.leafnodes
    assert (leafnodes.host, leafnodes.port, leafnodes.min_version, leafnodes.reconnect_delay_s) == (
        "127.0.0.1",
        -1,
        "2.9.0",
        2.0,
    )
    assert leafnodes.authorization is not None
    assert (leafnodes.authorization.user, leafnodes.authorization.account) == ("l", "A")
    first, second = leafnodes.remotes
    assert first.urls == (LeafUrl(scheme="tls", host="hub.example", port=7422, user="u@x", password="p:w"),)
    assert (first.deny_exports, first.deny_imports, first.hub) == ((b"secret.>",), (b"x", b"y"), True)
    assert first.tls is not None
    assert first.tls.insecure
    assert second.urls == (LeafUrl(scheme="wss", host="hub.example", port=443, path="/edge"),)
    assert "p:w" not in repr(first)


@pytest.mark.parametrize("scheme", ["leaf", "nats-leaf", "http"])
def test_a_scheme_without_a_meaning_is_a_plain_link(scheme: str, tmp_path: Path) -> None:
    (tmp_path / "leaf.conf").write_text(f"leafnodes {{ remotes [{{ url: {scheme}://127.0.0.1:7422 }}] }}")
    (remote,) = load_options(tmp_path / "leaf.conf").options.leafnodes.remotes
    assert remote.urls == (LeafUrl(scheme="nats", host="127.0.0.1", port=7422),)


def test_eyots_own_block() -> None:
    eyot = options("eyot { control_socket: /run/eyot/control.sock, store { map_size: '8G' }, sync { } }").eyot
    assert (eyot.control_socket, eyot.store.map_size) == ("/run/eyot/control.sock", 8 << 30)
    assert (eyot.store.committer, eyot.store.journal_size) == ("", 0)
    store = options("eyot { store { committer: journal, journal_size: 64MB } }").eyot.store
    assert (store.committer, store.journal_size) == ("journal", 64 << 20)
    assert options("eyot { store { committer: lmdb } }").eyot.store.committer == "lmdb"
    assert options("eyot { }").eyot.status is None
    status = options(
        "accounts { A { } }\neyot { status { subject: fleet.edge.status, every: 30s, account: A } }"
    ).eyot.status
    assert status is not None
    assert (status.subject, status.every_s, status.account) == (b"fleet.edge.status", 30.0, "A")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("every: 1m", "must be a subject to publish to"),
        ("subject: 'fleet.*'", "must be a subject to publish to"),
        ("subject: s, every: 10ms", "every"),
        ("subject: s, account: NONE", "the status is for account NONE, which does not exist"),
        ("subject: s, to: x", "unknown field"),
    ],
)
def test_a_status_that_is_refused(text: str, words: str) -> None:
    def read() -> None:
        check_options(options(f"eyot {{ status {{ {text} }} }}"), Reading())

    with pytest.raises(ConfError, match=words):
        read()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("committer: wal", "committer"),
        ("journal_size: 4K", "must be at least 1M"),
        ("committer: lmdb, journal_size: 8M", "means nothing without a journal"),
    ],
)
def test_the_stores_options_that_are_refused(text: str, words: str) -> None:
    with pytest.raises(ConfError, match=words):
        options(f"eyot {{ store {{ {text} }} }}")


def test_policies_of_streams_and_remotes() -> None:
    text = """
        jetstream: true
        leafnodes { remotes [{ url: "nats-leaf://u:p@hub.example.com", account: A }] }
        accounts { A { jetstream: enabled } }
        eyot { sync {
            streams {
                ALARMS { priority: 9 }
                "CAM*" { account: A, priority: 1, bandwidth: 20K, windows: ["mon-fri 22:00-06:00", "sat,sun"] }
            }
            remotes [{
                url: "hub.example.com:7422", window: "1:00-2:00"
                metered { budget: 500M, reset_day: 15, reserve: 10M, used_up: hold, ping_interval: "10m" }
            }]
        } }
    """
    sync = options(text).eyot.sync
    assert sync.stream("A", "ALARMS").priority == 9
    camera = sync.stream("A", "CAM1")
    assert (camera.priority, camera.bandwidth) == (1, 20_000)
    assert [str(each) for each in camera.windows] == ["mon,tue,wed,thu,fri 22:00-06:00", "sat,sun 00:00-24:00"]
    assert sync.stream("B", "CAM1").priority == sync.stream("A", "OTHER").priority == 5
    remote = sync.remote((("hub.example.com", 7422),), "A")
    assert remote is not None
    metered = remote.metered
    assert metered is not None
    assert (metered.budget, metered.reserve, metered.reset_day) == (500_000_000, 10_000_000, 15)
    assert (metered.used_up, metered.ping_interval_s) == ("hold", 600.0)
    assert sync.remote((("hub.example.com", 7423),), "A") is None


def test_a_key_used_as_variable_is_not_unknown() -> None:
    assert options("PORT: 4333\nport: $PORT\njetstream { DIR: /x, store_dir: $DIR }").port == 4333
    assert options("port: $P", P="4334").port == 4334


def test_bare_numbers_for_durations_warn_as_the_traps_they_are() -> None:
    result = loaded("ping_interval: 2m")
    assert result.options.ping_interval_s == 2_000_000.0
    assert result.reading.warnings == [
        't.conf:1:16: key "ping_interval": ping_interval should be converted to a duration'
    ]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def test_what_is_taken_otherwise_than_nats_server_takes_it_is_told_but_no_mistake(authority: Authority) -> None:
    tls = authority.block("server", 'curve_preferences: ["X25519MLKEM768", "CurveP384", "X25519"]')
    result = loaded(f"leafnodes {{ port: -1 }}\nprof_port: 6060\n{tls}")
    assert result.reading.warnings == []
    assert [note.partition(": ")[2] for note in result.reading.notes] == [
        'key "prof_port": eyotd has no Go profiler, nothing listens there',
        'key "curve_preferences": eyotd keeps to one curve: CurveP384, the first of these that is to be had here',
    ]
    assert result.options.tls is not None
    assert result.options.tls.curve == "CurveP384"
    (note,) = loaded(authority.block("server", "curve_preferences: X25519MLKEM768")).reading.notes
    assert note.endswith("none of these is to be had here, OpenSSL chooses")


@pytest.mark.parametrize("first", ["X25519", "CurveP256", "CurveP384", "CurveP521"])
def test_a_curve_that_is_read_is_one_that_python_takes(authority: Authority, first: str) -> None:
    """Python 3.11.2, Debian 12's, takes no X25519: `-t` says which curve is kept to, and the start keeps to it."""
    result = loaded(authority.block("server", f"curve_preferences: [{first}, CurveP521]"))
    assert result.options.tls is not None
    assert result.options.tls.curve == (first if can_keep_to(CURVES[first.upper()]) else "CurveP521")
    server_context(result.options.tls)


def test_plaintext_passwords_are_noticed() -> None:
    assert loaded("authorization { user: a, password: b }").reading.plaintext_passwords
    hashed = "$2a$04$cMnMd4.CE8x0QrzzXfnBseSdKFRbTbuA.2WRsmqqvCbrXBcTw1Jga"
    assert not loaded(f"authorization {{ user: a, password: {hashed} }}").reading.plaintext_passwords


@pytest.mark.parametrize(
    ("text", "mode", "thresholds_s"),
    [
        ("on", "s2_auto", (0.01, 0.05, 0.1)),
        ("false", "off", (0.01, 0.05, 0.1)),
        ("Best", "s2_best", (0.01, 0.05, 0.1)),
        ("not_supported", "not supported", (0.01, 0.05, 0.1)),
        ('{ mode: s2_auto, rtt_thresholds: ["5ms", "0", "20ms", "0"] }', "s2_auto", (0.005, 0.0, 0.02)),
    ],
)
def test_compression_of_leaf_links(text: str, mode: str, thresholds_s: tuple[float, ...]) -> None:
    result = loaded(f'leafnodes {{ port: -1, remotes: [{{ url: "h", compression: {text} }}] }}')
    (remote,) = result.options.leafnodes.remotes
    assert (remote.compression.mode, remote.compression.thresholds_s) == (mode, thresholds_s)
    assert result.options.leafnodes.compression.mode == ""


@pytest.mark.parametrize("text", ["zstd", '{ rtts: ["20ms", "10ms"] }', '{ rtts: ["0"] }', '{ rtts: ["soon"] }'])
def test_compression_that_is_none(text: str) -> None:
    with pytest.raises(ConfError, match=r"compression|RTT|duration"):
        loaded(f"leafnodes {{ port: -1, compression: {text} }}")
