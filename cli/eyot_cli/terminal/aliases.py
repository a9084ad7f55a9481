"""Other names of commands, as in the `nats` tool; no list and no completion offers them."""

from __future__ import annotations

from typing import Final

#: By the path of the group; `cli` is `eyot` itself.
GROUPS: Final = {
    "cli": {
        "a": "account",
        "c": "consumer",
        "con": "consumer",
        "ctx": "context",
        "e": "events",
        "event": "events",
        "obj": "object",
        "publish": "pub",
        "req": "request",
        "s": "stream",
        "srv": "server",
        "st": "stream",
        "str": "stream",
        "subscribe": "sub",
    },
    "stream": {
        "create": "add",
        "new": "add",
        "update": "edit",
        "delete": "rm",
        "del": "rm",
        "list": "ls",
        "l": "ls",
        "nfo": "info",
        "i": "info",
        "subj": "subjects",
        "cp": "copy",
        "query": "find",
    },
    "account": {"nfo": "info", "i": "info", "rep": "report"},
    "account report": {
        "conn": "connections",
        "conns": "connections",
        "connz": "connections",
        "stats": "statistics",
        "statsz": "statistics",
    },
    "consumer": {
        "create": "add",
        "new": "add",
        "update": "edit",
        "cp": "copy",
        "delete": "rm",
        "del": "rm",
        "list": "ls",
        "nfo": "info",
        "query": "find",
    },
    "server": {"list": "ls", "req": "request", "rep": "report"},
    "server report": {
        "acct": "accounts",
        "conn": "connections",
        "conns": "connections",
        "connz": "connections",
        "js": "jetstream",
        "jsz": "jetstream",
        "leaf": "leafnodes",
        "leafz": "leafnodes",
    },
    "kv": {"new": "add", "list": "ls", "rm": "del", "status": "info", "view": "info"},
    "object": {"rm": "del", "show": "info", "i": "info"},
    "context": {
        "create": "add",
        "save": "add",
        "list": "ls",
        "l": "ls",
        "remove": "rm",
        "switch": "select",
        "set": "select",
        "info": "show",
        "view": "show",
        "v": "show",
        "cp": "copy",
        "vi": "edit",
        "-": "previous",
    },
}
#: Commands of `eyot` itself that the `nats` tool has within a group.
OUTER: Final = {"stream": ("backup", "restore")}
