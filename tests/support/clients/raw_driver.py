"""A driver of the scenarios on raw sockets: the other clients' operations, byte by byte."""

from __future__ import annotations

import itertools
import re

from support.clients.raw_client import RawClient


class RawDriver:
    """Takes the commands of tests/support/clients/scenarios.py, one a call, and answers like the other drivers."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._clients: dict[str, RawClient] = {}
        self._subs: dict[str, tuple[str, bytes]] = {}  # name -> (connection, sid)
        self._got: dict[tuple[str, bytes], list[tuple[str, str, bytes, dict[str, str]]]] = {}
        self._last: dict[str, str] = {}
        self._serving: dict[tuple[str, bytes], str] = {}
        self._violations: dict[str, str] = {}
        self._sids = itertools.count(1)
        self._inboxes = itertools.count(1)

    def __call__(self, command: str) -> str:
        word, *rest = command.split()
        answer: str = getattr(self, f"_{word}")(*rest)
        return answer

    # -- commands ----------------------------------------------------------------------------------------------------

    def _connect(self, name: str, user: str, options: str) -> str:
        fields: dict[str, object] = {"headers": True, "no_responders": True, "protocol": 1, "lang": "raw"}
        fields |= {"verbose": "verbose" in options, "pedantic": "pedantic" in options, "echo": "no_echo" not in options}
        if user.startswith("token:"):
            fields["auth_token"] = user.removeprefix("token:")
        elif user != "-":
            fields["user"], _, fields["pass"] = user.partition(":")
        client = RawClient(self._port, **fields)
        client.send(b"PING\r\n")
        told = client.until(b"PONG\r\n")
        if b"Authorization Violation" in told:
            client.sock.close()
            return "authorization"
        self._clients[name] = client
        return "ok"

    def _sub(self, name: str, connection: str, subject: str, queue: str) -> str:
        sid = b"%d" % next(self._sids)
        self._subs[name] = (connection, sid)
        group = b"" if queue == "-" else queue.encode() + b" "
        self._clients[connection].send(b"SUB %b %b%b\r\n" % (subject.encode(), group, sid))
        return "ok"

    def _serve(self, name: str, connection: str, subject: str, queue: str, answer: str) -> str:
        self._sub(name, connection, subject, queue)
        self._serving[self._subs[name]] = answer
        return "ok"

    def _unsub(self, name: str, most: str) -> str:
        connection, sid = self._subs[name]
        self._clients[connection].send(b"UNSUB %b%b\r\n" % (sid, b"" if most == "0" else b" " + most.encode()))
        return "ok"

    def _pub(self, connection: str, subject: str, reply: str, data: str, headers: str) -> str:
        self._publish(connection, subject, reply, b"" if data == "-" else data.encode(), headers)
        return "ok"

    def _big(self, connection: str, subject: str, reply: str, size: str, headers: str) -> str:
        if int(size) > self._clients[connection].info["max_payload"]:
            return "max_payload"
        self._publish(connection, subject, reply, b"x" * int(size), headers)
        return "ok"

    def _flush(self, connection: str) -> str:
        self._exchange(connection)
        return "ok"

    def _next(self, name: str, timeout_ms: str) -> str:
        got = self._wait(name, int(timeout_ms))
        if got is None:
            return "none"
        subject, reply, data, headers = got
        self._last[name] = reply
        shown = ";".join(f"{key}={value}" for key, value in sorted(headers.items()))
        return f"{subject} {reply or '-'} {data.decode() or '-'} {shown or '-'}"

    def _size(self, name: str, timeout_ms: str) -> str:
        got = self._wait(name, int(timeout_ms))
        return "none" if got is None else str(len(got[2]))

    def _respond(self, name: str, data: str) -> str:
        self._publish(self._subs[name][0], self._last[name], "-", data.encode(), "-")
        return "ok"

    def _request(self, connection: str, subject: str, data: str, timeout_ms: str) -> str:
        inbox = f"_INBOX.raw{next(self._inboxes)}"
        self._sub(inbox, connection, inbox, "-")
        self._publish(connection, subject, inbox, data.encode(), "-")
        got = self._wait(inbox, int(timeout_ms))
        if got is None:
            return "timeout"
        return "no_responders" if "503" in got[3] else got[2].decode() or "-"

    def _violation(self, connection: str) -> str:
        self._exchange(connection)
        return self._violations.pop(connection, "none")

    def _max_payload(self, connection: str) -> str:
        return str(self._clients[connection].info["max_payload"])

    def _close(self, connection: str) -> str:
        self._clients.pop(connection).sock.close()
        self._serving = {place: answer for place, answer in self._serving.items() if place[0] != connection}
        # the server has noticed once a connection made afterwards is served
        with RawClient(self._port, user="app", **{"pass": "app"}) as other:
            other.ask()
        return "ok"

    def _reset(self) -> str:
        for client in self._clients.values():
            client.sock.close()
        for each in (self._clients, self._subs, self._got, self._last, self._serving, self._violations):
            each.clear()
        return "ok"

    # -- bytes -------------------------------------------------------------------------------------------------------

    def _publish(self, connection: str, subject: str, reply: str, data: bytes, headers: str) -> None:
        to = subject.encode() + (b"" if reply == "-" else b" " + reply.encode())
        if headers == "-":
            frame = b"PUB %b %d\r\n%b\r\n" % (to, len(data), data)
        else:
            fields = b"".join(b"%b: %b\r\n" % tuple(map(str.encode, pair.split("="))) for pair in headers.split(";"))
            block = b"NATS/1.0\r\n" + fields + b"\r\n"
            frame = b"HPUB %b %d %d\r\n%b%b\r\n" % (to, len(block), len(block) + len(data), block, data)
        self._clients[connection].send(frame)

    def _wait(self, name: str, timeout_ms: int) -> tuple[str, str, bytes, dict[str, str]] | None:
        """The next message of a subscription. Each round asks every connection, so that messages cross in between."""
        place = self._subs[name]
        for _ in range(max(3, min(timeout_ms, 300) // 20)):
            for connection in tuple(self._clients):
                self._exchange(connection)
            if self._got.get(place):
                return self._got[place].pop(0)
        return None

    def _exchange(self, connection: str) -> None:
        """PING, and take in everything up to the PONG; services answer."""
        client = self._clients[connection]
        client.send(b"PING\r\n")
        while True:
            line = client.until(b"\r\n")
            if line == b"PONG\r\n" or not line:
                return
            words = line.split()
            if words[0] in (b"MSG", b"HMSG"):
                self._take(connection, client, words)
            elif words[0] == b"-ERR":
                found = re.search(
                    r'permissions violation for (publish|subscription) to "([^"]+)"', line.decode().lower()
                )
                if found:
                    self._violations[connection] = " ".join(found.groups())

    def _take(self, connection: str, client: RawClient, words: list[bytes]) -> None:
        total, with_header = int(words[-1]), words[0] == b"HMSG"
        header_size = int(words[-2]) if with_header else 0
        reply = words[3].decode() if len(words) == (6 if with_header else 5) else ""
        data = client.exactly(total + 2)[:-2]
        block, data = data[:header_size].decode(), data[header_size:]
        first, *lines = block.strip().split("\r\n")
        headers = {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}
        if len(first.split()) > 1:
            headers[first.split()[1]] = ""
        place = (connection, words[2])
        if place in self._serving:
            self._publish(connection, reply, "-", data + self._serving[place].encode(), "-")
        else:
            self._got.setdefault(place, []).append((words[1].decode(), reply, data, headers))
