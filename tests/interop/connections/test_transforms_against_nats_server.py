"""Subject transforms against a real nats-server's mappings: the same subject must become the same subject."""

import socket
from pathlib import Path

from eyot_wire.transform import Transform
from support.servers.nats_server import NatsServer

# source, destination, published subject; every source of its own, since a server takes each only once
CASES = [
    ("a1.*.*", "o.$2.$1", "a1.x.y"),
    ("a2.*", "o.{{wildcard( 1 )}}", "a2.x"),
    ("a3.*.>", "o.$1.>", "a3.x.y.z"),
    ("a4.*", "o.x$1.$1x.$1", "a4.y"),
    ("a5.>", "o.>", "a5.x.y"),
    ("a6", "o.x", "a6"),
    ("b1.*", "o.{{split(1,-)}}", "b1.x--"),
    ("b2.*", "o.{{split(1,-)}}", "b2.a---b-c"),
    ("b3.*", "o.{{Split(1, ab)}}", "b3.xabyabab"),
    ("c1.*", "o.{{SliceFromLeft(1,3)}}", "c1.abcdefgh"),
    ("c2.*", "o.{{sliceFromRight(1,3)}}", "c2.abcdefgh"),
    ("c3.*", "o.{{SliceFromLeft(1,4)}}", "c3.abcdefgh"),
    ("c4.*", "o.{{SliceFromRight(1,4)}}", "c4.abcdefgh"),
    ("c5.*", "o.{{SliceFromLeft(1,9)}}", "c5.abcdefgh"),
    ("c6.*", "o.{{SliceFromRight(1,8)}}", "c6.abcdefgh"),
    ("c7.*", "o.{{SliceFromLeft(1,0)}}", "c7.abcdefgh"),
    ("d1.*", "o.{{SplitFromLeft(1,3)}}", "d1.abcdefgh"),
    ("d2.*", "o.{{splitFromRight(1,3)}}", "d2.abcdefgh"),
    ("d3.*", "o.{{SplitFromRight(1,8)}}", "d3.abcdefgh"),
    ("d4.*", "o.{{SplitFromLeft(1,9)}}", "d4.abcdefgh"),
    ("d5.*", "o.{{ SplitFromLeft ( 1 , 3 ) }}", "d5.abcdefgh"),
    ("d6.*", "o.{{SplitFromRight(1,0)}}", "d6.abcdefgh"),
    ("e1.*.*", "o.{{partition(7,2,1)}}.$1", "e1.foo.bar"),
    ("e2.*.*.*", "o.{{Partition(1000,1,2,3)}}.$1.$2.$3", "e2.a.bc.def"),
    ("e3.*", "o.{{partition(1000,1)}}.$1", "e3.\u00e4"),
]


def test_same_subjects(tmp_path: Path) -> None:
    lines = "".join(f'  "{src}": "{dest}"\n' for src, dest, _ in CASES)
    expected = [Transform(src.encode(), dest.encode()).apply(subject.encode()) for src, dest, subject in CASES]
    with (
        NatsServer(f"mappings {{\n{lines}}}\n", tmp_path) as server,
        socket.create_connection((server.host, server.client_port), timeout=10) as sock,
    ):
        received = sock.makefile("rb")
        received.readline()
        publishes = "".join(f"PUB {subject} 0\r\n\r\n" for _, _, subject in CASES)
        sock.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\nSUB > 1\r\n' + publishes.encode() + b"PING\r\n")
        found = []
        while (line := received.readline()).startswith(b"MSG "):
            found.append(line.split()[1])
            received.readline()
        assert line == b"PONG\r\n"
    assert found == expected
