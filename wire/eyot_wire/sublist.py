"""The interest of one account: the subscriptions that a subject reaches.

Three indexes, by the shape of a subscription's subject:

- literal subjects: a dict;
- `prefix.*` with a literal prefix, the shape of every client's reply inbox: a dict by prefix;
- every other wildcard: a trie of dicts keyed by token. The subscriptions that end with a token are in the dict where a
  longer pattern's next dict would be, under a space and the token (no token contains a space); `>` always ends a
  pattern and needs no space.

The list remembers a lookup's result per subject in two generations. A full young generation becomes the old one, and
the former old one is dropped. So any number of one-time subjects (reply inboxes) costs bounded memory, and busy
subjects move to the new generation by use. An insert or remove drops exactly the remembered subjects that it matches: a
literal its own, a `prefix.*` those remembered under that prefix, any other wildcard after a scan of all remembered
subjects. Once such scans have cost more than computing all matches again would, the whole memory is dropped: a million
wildcard inserts beside a busy memory stay fast.

A `Match` belongs to one subject. Callers may store what they derive from a match in `Match.memo`, which is valid as
long as the match is.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, Generic, Protocol, TypeVar

from eyot_wire.native import Match
from eyot_wire.subject import REST, STAR, is_literal, is_valid, literal_start, overlaps, token_match

# Subjects remembered per generation. With about 300 bytes a subject and two generations: at most 2.5 MB an account.
REMEMBERED_SUBJECTS_MAX: Final = 4096
# Longer subjects are not remembered, so that no client fills the memory with them.
REMEMBERED_LENGTH_MAX: Final = 1024
# Remembered subjects scanned, in multiples of the memory's size, before dropping all of it is cheaper: computing a
# match costs about 32 comparisons.
SCANS_BEFORE_DROP: Final = 32


class Subscribed(Protocol):
    """An entry of a SubList: anything with a subject and a queue group, hashed by identity."""

    @property
    def subject(self) -> bytes: ...

    @property
    def queue(self) -> bytes: ...


S = TypeVar("S", bound=Subscribed)


EMPTY: Final[Match[Any]] = Match(())


class _Entry(Generic[S]):
    """The subscriptions of one subject. Dicts keep the order and remove in constant time."""

    __slots__ = ("groups", "plain")

    def __init__(self) -> None:
        self.plain: dict[S, None] | None = None
        self.groups: dict[bytes, dict[S, None]] | None = None

    def add(self, sub: S) -> bool:
        if sub.queue:
            if self.groups is None:
                self.groups = {}
            members = self.groups.setdefault(sub.queue, {})
        else:
            if self.plain is None:
                self.plain = {}
            members = self.plain
        if sub in members:
            return False
        members[sub] = None
        return True

    def discard(self, sub: S) -> bool:
        queue = sub.queue
        members = (self.groups or {}).get(queue) if queue else self.plain
        if members is None or sub not in members:
            return False
        del members[sub]
        if queue and not members:
            assert self.groups is not None
            del self.groups[queue]
        return True

    def __iter__(self) -> Iterator[S]:
        yield from self.plain or ()
        for members in (self.groups or {}).values():
            yield from members

    def __bool__(self) -> bool:
        return bool(self.plain or self.groups)


class _Generation(Generic[S]):
    """Remembered matches, and the remembered subjects by their prefix (all but the last token)."""

    __slots__ = ("by_prefix", "filled", "matches")

    def __init__(self) -> None:
        self.matches: dict[bytes, Match[S]] = {}
        self.by_prefix: dict[bytes, list[bytes]] = {}
        self.filled = 0  # counts additions: by_prefix keeps subjects that were dropped


# A node of the trie: token -> node, space + token -> subscriptions, `>` -> subscriptions.
_Node = dict[bytes, Any]


class SubList(Generic[S]):
    """Subscriptions of one account, looked up by message subject. Not thread-safe."""

    def __init__(self, *, remembered_subjects_max: int = REMEMBERED_SUBJECTS_MAX) -> None:
        # A subject with one subscription holds the subscription itself, otherwise an _Entry. Most subjects of a large
        # interest have one subscriber; an _Entry costs ten times the reference, and the garbage collector traverses it.
        self._literal: dict[bytes, S | _Entry[S]] = {}
        self._prefixed: dict[bytes, S | _Entry[S]] = {}
        self._root: _Node = {}
        #: subscriptions to literal subjects, those to `prefix.*` by prefix, and the trie of all others: for callers
        #: that look up subjects that do not repeat
        self.parts = (self._literal, self._prefixed, self._root)
        self._count = 0
        self._young: _Generation[S] = _Generation()
        self._old: _Generation[S] = _Generation()
        #: matches of recent subjects, for callers that look up very many
        self.recent = self._young.matches
        self._generation_max = remembered_subjects_max
        self._looked_through = 0
        self.inserts = 0
        self.removes = 0
        self.misses = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[S]:
        for entry in self._entries():
            yield from entry

    @property
    def remembered(self) -> int:
        """Number of remembered subjects (nats-server's num_cache)."""
        return len(self._young.matches) + len(self._old.matches)

    @property
    def max_fanout(self) -> int:
        """The most subscriptions that a remembered subject reaches; scans the memory, for monitoring only."""
        generations = (self._young.matches, self._old.matches)
        counts = (len(match.plain) + len(match.groups) for matches in generations for match in matches.values())
        return max(counts, default=0)

    def match(self, subject: bytes) -> Match[S]:
        """Return the subscriptions that a message on `subject` reaches; EMPTY for an invalid subject."""
        found = self.recent.get(subject)
        return found if found is not None else self._look_up(subject)

    def has_interest(self, subject: bytes) -> bool:
        """Return whether a message published to `subject` reaches any subscription."""
        return self.match(subject) is not EMPTY

    def insert(self, sub: S) -> None:
        """Add a subscription; one that is already present stays. Raises ValueError for an invalid subject."""
        subject = sub.subject
        if not is_valid(subject):
            raise ValueError(f"invalid subject {subject!r}")
        if is_literal(subject):
            added = _put(self._literal, subject, sub)
            self._forget(subject)
        elif (prefix := _inbox_prefix(subject)) is not None:
            added = _put(self._prefixed, prefix, sub)
            self._forget_prefix(prefix)
        else:
            added = self._trie_insert(subject, sub)
            self._forget_matching(subject)
        if added:
            self._count += 1
            self.inserts += 1

    def remove(self, sub: S) -> bool:
        """Remove a subscription; return whether it was present."""
        subject = sub.subject
        if is_literal(subject):
            removed = _drop(self._literal, subject, sub)
            self._forget(subject)
        elif (prefix := _inbox_prefix(subject)) is not None:
            removed = _drop(self._prefixed, prefix, sub)
            self._forget_prefix(prefix)
        else:
            removed = self._trie_remove(subject, sub)
            self._forget_matching(subject)
        if removed:
            self._count -= 1
            self.removes += 1
        return removed

    def overlapping(self, pattern: bytes) -> list[S]:
        """Return every subscription that some subject matched by `pattern` reaches.

        Linear in the number of subjects when `pattern` contains a wildcard: for decisions about interest, not about
        messages.
        """
        if is_literal(pattern):
            return list(self._compute(pattern, pattern.rpartition(b".")[0]).all())
        found: list[S] = []
        start = literal_start(pattern)
        parts = pattern.split(b".")
        for subject, held in self._literal.items():
            if subject.startswith(start) and token_match(parts, subject.split(b".")):
                _extend(found, held)
        for prefix, held in self._prefixed.items():
            if overlaps(prefix + b".*", pattern):
                _extend(found, held)
        for subject, held in _walk_all(self._root):
            if overlaps(subject, pattern):
                _extend(found, held)
        return found

    # lookup

    def _look_up(self, subject: bytes) -> Match[S]:
        prefix = subject.rpartition(b".")[0]
        found = self._old.matches.get(subject)
        if found is None:
            self.misses += 1
            found = self._compute(subject, prefix)
            if len(subject) > REMEMBERED_LENGTH_MAX:
                return found
        young = self._young
        if young.filled >= self._generation_max:
            self._old = young
            self._young = young = _Generation()
            self.recent = young.matches
        young.filled += 1
        young.matches[subject] = found
        near = young.by_prefix.get(prefix)
        if near is None:
            young.by_prefix[prefix] = [subject]
        else:
            near.append(subject)
        return found

    def _compute(self, subject: bytes, prefix: bytes) -> Match[S]:
        parts = subject.split(b".")
        if b"" in parts:
            return EMPTY
        held: list[S | _Entry[S]] = []
        literal = self._literal.get(subject)
        if literal is not None:
            held.append(literal)
        prefixed = self._prefixed.get(prefix)
        if prefixed is not None:
            held.append(prefixed)
        root = self._root
        if root and (parts[0] in root or STAR in root or REST in root or len(parts) == 1):
            _walk(root, parts, held)
        if not held:
            return EMPTY
        if len(held) == 1:
            only = held[0]
            if not isinstance(only, _Entry):
                return Match((only,)) if not only.queue else Match((), ((only.queue, (only,)),))
        return _combine(held)

    # the trie

    def _trie_insert(self, subject: bytes, sub: S) -> bool:
        node = self._root
        *above, last = subject.split(b".")
        for token in above:
            below = node.get(token)
            if below is None:
                below = node[token] = {}
            node = below
        return _put(node, last if last == REST else b" " + last, sub)

    def _trie_remove(self, subject: bytes, sub: S) -> bool:
        node = self._root
        path: list[tuple[_Node, bytes]] = []
        *above, last = subject.split(b".")
        for token in above:
            below = node.get(token)
            if below is None:
                return False
            path.append((node, token))
            node = below
        if not _drop(node, last if last == REST else b" " + last, sub):
            return False
        for parent, token in reversed(path):
            if parent[token]:
                break
            del parent[token]
        return True

    def _entries(self) -> Iterator[Iterable[S]]:
        for index in (self._literal, self._prefixed):
            for held in index.values():
                yield held if isinstance(held, _Entry) else (held,)
        for _, held in _walk_all(self._root):
            yield held if isinstance(held, _Entry) else (held,)

    # forgetting

    def forget_all(self) -> None:
        """Drop all remembered matches, and with them what callers derived from them."""
        self._looked_through = 0
        self._old, self._young = _Generation(), _Generation()
        self.recent = self._young.matches

    def _forget(self, subject: bytes) -> None:
        self._young.matches.pop(subject, None)
        self._old.matches.pop(subject, None)

    def _forget_prefix(self, prefix: bytes) -> None:
        for generation in (self._young, self._old):
            for subject in generation.by_prefix.pop(prefix, ()):
                generation.matches.pop(subject, None)

    def _forget_matching(self, pattern: bytes) -> None:
        remembered = self.remembered
        if not remembered:
            return
        self._looked_through += 1
        if self._looked_through > SCANS_BEFORE_DROP:
            self.forget_all()
            return
        start = literal_start(pattern)
        parts = pattern.split(b".")
        for generation in (self._young, self._old):
            matches = generation.matches
            near = [subject for subject in matches if subject.startswith(start)]
            for subject in near:
                if token_match(parts, subject.split(b".")):
                    del matches[subject]


def _inbox_prefix(subject: bytes) -> bytes | None:
    """Return the prefix of a `prefix.*` pattern with a literal prefix, else None. `subject` contains a wildcard."""
    prefix = subject[:-2]
    return prefix if subject[-2:] == b".*" and is_literal(prefix) else None


def _put(index: dict[bytes, S | _Entry[S]], key: bytes, sub: S) -> bool:
    held = index.get(key)
    if held is None:
        index[key] = sub
        return True
    if isinstance(held, _Entry):
        return held.add(sub)
    if held is sub:
        return False
    entry: _Entry[S] = _Entry()
    if held is not None:
        entry.add(held)
    entry.add(sub)
    index[key] = entry
    return True


def _drop(index: dict[bytes, S | _Entry[S]], key: bytes, sub: S) -> bool:
    held = index.get(key)
    if held is sub:
        del index[key]
        return True
    if not isinstance(held, _Entry) or not held.discard(sub):
        return False
    if not held:
        del index[key]
    return True


def _extend(found: list[S], held: "S | _Entry[S]") -> None:
    if isinstance(held, _Entry):
        found.extend(held)
    else:
        found.append(held)


def _walk(root: _Node, parts: list[bytes], held: list[Any]) -> None:
    """Collect the trie's entries for the tokens of a subject."""
    if STAR in parts or REST in parts:
        # A message may be published to a subject that looks like a wildcard. Its `*` is then a plain token, which must
        # not find the trie's own `*`. No subscription has a token with a line feed.
        parts = [b"\n" if token in (STAR, REST) else token for token in parts]
    level = [root]
    for token in parts[:-1]:
        below: list[_Node] = []
        for node in level:
            rest = node.get(REST)
            if rest is not None:
                held.append(rest)
            child = node.get(token)
            if child is not None:
                below.append(child)
            child = node.get(STAR)
            if child is not None:
                below.append(child)
        if not below:
            return
        level = below
    last = b" " + parts[-1]
    for node in level:
        for key in (REST, last, b" *"):
            end = node.get(key)
            if end is not None:
                held.append(end)


def _walk_all(root: _Node) -> Iterator[tuple[bytes, Any]]:
    """Yield every pattern of the trie with its entry."""
    stack = [(root, b"")]
    while stack:
        node, path = stack.pop()
        for key, below in node.items():
            if key == REST:
                yield path + REST, below
            elif key.startswith(b" "):
                yield path + key[1:], below
            else:
                stack.append((below, path + key + b"."))


def _combine(held: "list[S | _Entry[S]]") -> Match[S]:
    plain: list[S] = []
    groups: dict[bytes, list[S]] = {}
    for one in held:
        if isinstance(one, _Entry):
            plain.extend(one.plain or ())
            for queue, members in (one.groups or {}).items():
                groups.setdefault(queue, []).extend(members)
        elif one.queue:
            groups.setdefault(one.queue, []).append(one)
        else:
            plain.append(one)
    return Match(tuple(plain), tuple([(queue, tuple(members)) for queue, members in groups.items()]))
