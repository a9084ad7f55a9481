"""Raw conversations of the client protocol: what a client sends and what the server answers.

The unit tests play them against a broker in the test's own process, the interop tests against `eyotd` and against
Debian's `nats-server` as real processes.
"""

PLAIN = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'

#: What nats-server 2.9.10 answers where later versions, which Eyot follows, answer differently.
ANSWERS_OF_2_9 = {
    "nrg": b"",
    "no_responders": b"HMSG _I.a 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
}

# what is sent after CONNECT {} (verbose, pedantic) or the plain CONNECT, and what comes back before PONG
OPEN_CASES = [
    ("sub_pub", PLAIN, b"SUB foo 1\r\nPUB foo 2\r\nhi\r\n", b"MSG foo 1 2\r\nhi\r\n"),
    ("reply", PLAIN, b"SUB foo 1\r\nPUB foo r.1 2\r\nhi\r\n", b"MSG foo 1 r.1 2\r\nhi\r\n"),
    (
        "verbose",
        b"CONNECT {}\r\n",
        b"SUB foo 1\r\nPUB foo 2\r\nhi\r\nUNSUB 1\r\nUNSUB 44\r\nUNSUB 44 x\r\n",
        b"+OK\r\n+OK\r\n+OK\r\nMSG foo 1 2\r\nhi\r\n+OK\r\n+OK\r\n+OK\r\n",
    ),
    ("connect_in_any_case", b'CONNECT {"Verbose":false,"name":"\xff","LANG":null}\r\n', b"SUB foo 1\r\n", b""),
    ("connect_of_nothing", b"CONNECT null\r\n", b"SUB foo 1\r\n", b"+OK\r\n+OK\r\n"),
    ("no_connect", b"", b"SUB foo 1\r\nPUB foo 2\r\nhi\r\n", b"+OK\r\n+OK\r\nMSG foo 1 2\r\nhi\r\n"),
    ("invalid_subject", PLAIN, b"SUB foo.. 1\r\n", b"-ERR 'Invalid Subject'\r\n"),
    (
        "invalid_wildcards",
        PLAIN,
        b"SUB foo.>.bar 1\r\nSUB a*b 2\r\nSUB >. 3\r\n",
        b"-ERR 'Invalid Subject'\r\n-ERR 'Invalid Subject'\r\n",
    ),
    (
        "pedantic",
        b'CONNECT {"verbose":false}\r\n',
        b"SUB * 1\r\nPUB * 2\r\nhi\r\nPUB foo..x 1\r\na\r\n",
        b"-ERR 'Invalid Publish Subject'\r\nMSG * 1 2\r\nhi\r\n-ERR 'Invalid Publish Subject'\r\n",
    ),
    (
        "reserved_replies",
        PLAIN,
        b"PUB foo _R_.x.y 0\r\n\r\nPUB foo $JS.ACK.a 0\r\n\r\nPUB foo _GR_.a 0\r\n\r\n",
        b"-ERR 'Permissions Violation for Publish with Reply of \"_R_.x.y\"'\r\n"
        b"-ERR 'Permissions Violation for Publish with Reply of \"$JS.ACK.a\"'\r\n"
        b"-ERR 'Permissions Violation for Publish with Reply of \"_GR_.a\"'\r\n",
    ),
    ("nrg", PLAIN, b"PUB $NRG.a 0\r\n\r\n", b"-ERR 'Permissions Violation for Publish to \"$NRG.a\"'\r\n"),
    (
        "system_queue",
        PLAIN,
        b"SUB foo _sys_ 1\r\n",
        b'-ERR \'Permissions Violation for Subscription to "foo" using queue "_sys_"\'\r\n',
    ),
    (
        "same_sid_again",
        b"CONNECT {}\r\n",
        b"SUB a 1\r\nSUB b 1\r\nPUB a 0\r\n\r\nPUB b 0\r\n\r\n",
        b"+OK\r\n+OK\r\n+OK\r\n+OK\r\nMSG a 1 0\r\n\r\n+OK\r\n",
    ),
    (
        "unsub_max",
        PLAIN,
        b"SUB a 1\r\nUNSUB 1 2\r\n" + b"PUB a 0\r\n\r\n" * 4,
        b"MSG a 1 0\r\n\r\n" * 2,
    ),
    (
        "unsub_max_already_reached",
        PLAIN,
        b"SUB a 1\r\n" + b"PUB a 0\r\n\r\n" * 2 + b"UNSUB 1 2\r\nPUB a 0\r\n\r\n",
        b"MSG a 1 0\r\n\r\n" * 2,
    ),
    (
        "unsub_max_not_yet_reached",
        PLAIN,
        b"SUB a 1\r\nPUB a 0\r\n\r\nUNSUB 1 3\r\n" + b"PUB a 0\r\n\r\n" * 4,
        b"MSG a 1 0\r\n\r\n" * 3,
    ),
    (
        "no_responders",
        PLAIN,
        b"SUB _I.* 1\r\nPUB svc _I.a 0\r\n\r\nPUB svc _J.a 0\r\n\r\nPUB svc 0\r\n\r\n",
        b"HMSG _I.a 1 35 35\r\nNATS/1.0 503\r\nNats-Subject: svc\r\n\r\n\r\n",
    ),
    ("no_responders_in_a_group", PLAIN, b"SUB _I.* q 1\r\nPUB svc _I.a 0\r\n\r\n", b""),
    ("no_echo", b'CONNECT {"verbose":false,"echo":false}\r\n', b"SUB a 1\r\nPUB a 0\r\n\r\n", b""),
    (
        "case_and_white_space",
        b'connect {"verbose":false}\r\n',
        b"sub a  1\r\npub \t a\t r   2  \r\nhi\r\nsub b\t3\r\n",
        b"MSG a 1 r 2\r\nhi\r\n",
    ),
    ("line_feeds_only", PLAIN, b"SUB a 1\nPUB a 1\nx\r\n", b"MSG a 1 1\r\nx\r\n"),
    ("info_and_ok_are_ignored", PLAIN, b"INFO {}\r\n+OK\r\nPONG\r\n", b""),
    (
        "headers",
        PLAIN,
        b"SUB foo 1\r\nHPUB foo r 12 14\r\nNATS/1.0\r\n\r\nhi\r\nHPUB foo 4 6\r\nabcdhi\r\n",
        b"HMSG foo 1 r 12 14\r\nNATS/1.0\r\n\r\nhi\r\nHMSG foo 1 4 6\r\nabcdhi\r\n",
    ),
    ("connect_twice", PLAIN, b"SUB a 1\r\n" + PLAIN + b"PUB a 0\r\n\r\n", b"MSG a 1 0\r\n\r\n"),
    (
        "queue_and_plain",
        PLAIN,
        b"SUB a q 1\r\nSUB a 2\r\nPUB a 1\r\nx\r\n",
        b"MSG a 2 1\r\nx\r\nMSG a 1 1\r\nx\r\n",
    ),
]

# what is sent, and what comes back before the connection closes
CLOSING_CASES = [
    ("bad_json", b"CONNECT {bad\r\n", b""),
    ("empty_connect", b"CONNECT \r\n", b""),
    ("wrong_type", b'CONNECT {"verbose":"x"}\r\n', b""),
    ("client_protocol", b'CONNECT {"protocol":5}\r\n', b"-ERR 'invalid client protocol'\r\n"),
    (
        "no_responders_without_headers",
        b'CONNECT {"no_responders":true}\r\n',
        b"-ERR 'no responders requires headers support'\r\n",
    ),
    ("account", b'CONNECT {"account":"x"}\r\n', b"-ERR 'Authorization Violation'\r\n"),
    ("new_account", b'CONNECT {"new_account":true}\r\n', b"-ERR 'Authorization Violation'\r\n"),
    ("no_text", b'CONNECT {"name":\xff}\r\n', b""),
    ("wrong_type_in_any_case", b'CONNECT {"Protocol":"x"}\r\n', b""),
    ("unknown_operation", PLAIN + b"XYZ\r\n", b"-ERR 'Unknown Protocol Operation'\r\n"),
    ("server_operation", PLAIN + b"MSG a 1 0\r\n\r\n", b"-ERR 'Unknown Protocol Operation'\r\n"),
    ("empty_line", PLAIN + b"\r\n", b"-ERR 'Unknown Protocol Operation'\r\n"),
    ("sub_without_sid", PLAIN + b"SUB foo\r\n", b""),
    ("sub_with_too_many", PLAIN + b"SUB a b c d\r\n", b""),
    ("sub_bare", PLAIN + b"SUB\r\n", b"-ERR 'Unknown Protocol Operation'\r\n"),
    ("pub_negative_size", PLAIN + b"PUB foo -1\r\n", b""),
    ("pub_size_no_number", PLAIN + b"PUB foo xx\r\n", b""),
    ("pub_payload_too_long", PLAIN + b"PUB foo 2\r\nabcdef\r\n", b"-ERR 'Unknown Protocol Operation'\r\n"),
    ("pub_over_max_payload", PLAIN + b"PUB foo 1048577\r\n", b"-ERR 'Maximum Payload Violation'\r\n"),
    (
        "hpub_without_headers",
        b'CONNECT {"verbose":false,"headers":false}\r\nHPUB foo 12 14\r\nNATS/1.0\r\n\r\nhi\r\n',
        b"",
    ),
    ("hpub_header_over_total", PLAIN + b"HPUB foo 14 12\r\n", b""),
    (
        "control_line",
        PLAIN + b"SUB " + b"a" * 4100 + b" 1\r\n",
        b"-ERR 'maximum control line exceeded'\r\n",
    ),
    (
        "control_line_without_end",
        PLAIN + b"SUB " + b"a" * 5000,
        b"-ERR 'maximum control line exceeded'\r\n",
    ),
    ("error_from_client", PLAIN + b"-ERR 'x'\r\n", b""),
    ("what_came_before_counts", PLAIN + b"SUB a 1\r\nPUB a 1\r\nx\r\nBAD\r\n", b"MSG a 1 1\r\nx\r\n-ERR 'Unknown Protocol Operation'\r\n"),
]  # fmt: skip
