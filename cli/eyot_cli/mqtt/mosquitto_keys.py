"""What to say of mosquitto's settings that Eyot does not have: why, or what takes their place."""

from __future__ import annotations

from typing import Final

UNKNOWN: Final = "no equivalent is known"

#: Settings of bridges whose values are not shown.
SECRETS: Final = frozenset(("bridge_psk", "local_password", "password", "remote_password"))

#: Settings that change nothing at this value.
DEFAULTS: Final = frozenset(
    {
        ("allow_duplicate_messages", "true"),
        ("allow_zero_length_clientid", "true"),
        ("check_retain_source", "true"),
        ("connection_messages", "true"),
        ("log_dest", "stderr"),
        ("log_dest", "stdout"),
        ("max_connections", "-1"),
        ("max_qos", "2"),
        ("memory_limit", "0"),
        ("per_listener_settings", "false"),
        ("persistence", "true"),
        ("queue_qos0_messages", "false"),
        ("require_certificate", "false"),
        ("retain_available", "true"),
        ("retain_expiry_interval", "0"),
        ("upgrade_outgoing_qos", "false"),
        ("use_identity_as_username", "false"),
        ("use_subject_as_username", "false"),
        ("use_username_as_clientid", "false"),
    }
)

#: Settings whose purpose is fulfilled in another way.
NOT_NEEDED: Final = {
    "autosave_interval": "all is on flash before it is acknowledged",
    "autosave_on_changes": "all is on flash before it is acknowledged",
    "connection_messages": "log lines have levels: debug and trace",
    "log_facility": "the system log's facility is daemon",
    "log_timestamp": "logtime: false leaves the time out",
    "log_timestamp_format": "the log has nats-server's form",
    "log_type": "log lines have levels: debug: true and trace: true",
    "persistence": "sessions, queues and retained messages are always on flash",
    "persistence_file": "the store is a directory: jetstream { store_dir }",
    "persistence_location": "the store is a directory of its own: jetstream { store_dir }",
    "pid_file": "systemd knows the process; pid_file names a file that eyotd may write",
    "set_tcp_nodelay": "always on",
    "user": "the systemd unit names the user",
    "allow_duplicate_messages": "overlapping filters: MQTT 5 has one copy, 3.1.1 one for each",
}

#: Settings of the whole server that are not offered.
NOT_OFFERED: Final = {
    "allow_zero_length_clientid": "clients of MQTT 5 and clean sessions may leave their client id out",
    "auth_plugin": "plugins are not offered: auth callout asks a service of yours",
    "auto_id_prefix": "the server makes ids without a prefix",
    "check_retain_source": "retained messages stay when a user's rights change",
    "clientid_prefixes": "a session belongs to its user; client ids are not restricted",
    "global_plugin": "plugins are not offered: auth callout asks a service of yours",
    "global_max_clients": "max_connections limits all clients, max_sessions the sessions of an account",
    "log_dest": "logs go to standard error, a file or the system log",
    "max_inflight_bytes": "the messages on their way are counted (max_ack_pending), not their bytes",
    "memory_limit": "the systemd unit limits memory (MemoryMax)",
    "per_listener_settings": "users and permissions are the same for all listeners",
    "plugin": "plugins are not offered: auth callout asks a service of yours",
    "psk_file": "pre-shared keys are not offered: use certificates, or user and password over TLS",
    "queue_qos0_messages": "messages of QoS 0 do not wait for clients that are away",
    "retain_available": "retained messages are always available",
    "retain_expiry_interval": "set retained_age in eyot { mqtt { } }, or have clients of MQTT 5 set a message expiry",
    "upgrade_outgoing_qos": "a message keeps the QoS of its publish",
}

#: Settings of a listener that are not offered.
LISTENER: Final = {
    "accept_protocol_versions": "3.1, 3.1.1 and 5.0 are always served",
    "bind_interface": "name an address of the interface instead: listen",
    "capath": "join the authorities in one file: tls { ca_file }",
    "ciphers": "tls { cipher_suites } takes Go's names of cipher suites",
    "ciphers_tls1.3": "the cipher suites of TLS 1.3 cannot be chosen",
    "crlfile": "revocation lists are not read: remove the user, or pin certificates (tls { pinned_certs })",
    "dhparamfile": "only ECDHE is offered",
    "enable_proxy_protocol": "the PROXY protocol is not offered",
    "http_dir": "no files are served over HTTP",
    "max_qos": "a maximum of QoS 0 is not offered",
    "mount_point": "use an account, or a subject mapping, for clients with topics of their own",
    "psk_hint": "pre-shared keys are not offered: use certificates, or user and password over TLS",
    "socket_domain": "the address decides between IPv4 and IPv6",
    "tls_engine": "hardware engines are not offered",
    "use_username_as_clientid": "a session belongs to its user; client ids stay as they are",
    "websockets_headers_size": "request heads have a fixed bound",
    "websockets_log_level": "log lines have levels: debug: true and trace: true",
}
