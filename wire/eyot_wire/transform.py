"""Subject transforms: rewrite a subject by a source pattern and a destination template.

Destination tokens are literals, `$n` or `{{wildcard(n)}}` (the n-th `*` of the source), or one of

    {{partition(buckets[,n…])}}  FNV-1a 32 of the named wildcards' tokens (of the whole subject without n) % buckets
    {{split(n,delimiter)}}       the token's pieces as tokens, empty pieces dropped
    {{splitFromLeft(n,pos)}}     the token as two, cut `pos` bytes from the left; {{splitFromRight(n,pos)}} from the right
    {{sliceFromLeft(n,size)}}    the token in slices of `size` bytes, the rest last; {{sliceFromRight(n,size)}} the rest first
    {{left(n,size)}}             the first `size` bytes of the token, {{right(n,size)}} the last ones; where `republish` only
    {{random(n)}}                a number from 0 to n-1

and a last `>` when the source ends in `>`. A wildcard 0 is the subject's first token, wildcard or not; 0 buckets and 0
random numbers give "0"; sizes without meaning leave the token unchanged. Source: nats-server's subject transforms
(ADR-30).
"""

import random
import re
from collections.abc import Callable
from typing import Final

from eyot_wire.digits import parse_uint
from eyot_wire.subject import REST, STAR, is_subset, is_valid, token_match

# A compiled destination token: the tokens of the subject, and the subject itself, to the new text.
_Step = Callable[[list[bytes], bytes], bytes]

_SYSTEM_RANDOM: Final = random.SystemRandom()
_CALL: Final = re.compile(rb"\{\{\s*([A-Za-z]+)\s*\((.*)\)\s*\}\}", re.DOTALL)
_INT32_MAX: Final = 2**31 - 1


class TransformError(ValueError):
    """A transform that cannot work; the text is nats-server's."""


class Transform:
    """One compiled transform. An empty source means `>`, an empty destination leaves the subject unchanged.

    `strict` is for imports: only wildcard() is allowed, and every wildcard of the source must be used, so that the
    transform is reversible. `republish` allows left() and right(), which nats-server accepts nowhere else. `rng` serves
    `{{random(n)}}`. Raises TransformError when source and destination do not fit together.
    """

    __slots__ = ("_from_prefix", "_names", "_rest_at", "_src_tokens", "_steps", "_to_prefix", "constant", "dest", "src")

    def __init__(
        self,
        src: bytes,
        dest: bytes,
        *,
        strict: bool = False,
        republish: bool = False,
        rng: random.Random = _SYSTEM_RANDOM,
    ) -> None:
        self.src = src or REST
        self.dest = dest
        self._src_tokens = self.src.split(b".")
        self._names: list[tuple[str, list[int]]] = []
        self._steps: list[_Step] | None = None
        self._rest_at = len(self._src_tokens) - 1 if self._src_tokens[-1] == REST else -1
        self._from_prefix: bytes | None = None
        self._to_prefix = b""
        # Whether a subject always gives the same result, so that it may be remembered.
        self.constant = True
        if not is_valid(self.src):
            raise TransformError("invalid subject")
        if dest:
            self._compile(strict, republish, rng)

    def __repr__(self) -> str:
        return f"Transform({self.src!r}, {self.dest!r})"

    def apply(self, subject: bytes) -> bytes | None:
        """Return the new subject of a message on `subject`; None when the source does not match."""
        prefix = self._from_prefix
        if prefix is not None:
            if not subject.startswith(prefix) or len(subject) == len(prefix):
                return None
            return self._to_prefix + subject[len(prefix) :]
        tokens = subject.split(b".")
        if not token_match(self._src_tokens, tokens):
            return None
        return self._rewrite(tokens, subject)

    def apply_pattern(self, pattern: bytes) -> bytes | None:
        """Return the pattern that covers the transform's results for the subjects of `pattern`, wildcards included.

        None when the source does not cover `pattern`.
        """
        if not is_subset(pattern, self.src):
            return None
        return self._rewrite(pattern.split(b"."), pattern)

    def reversed(self) -> "Transform":
        """Return the inverse transform. Raises TransformError unless the transform is reversible (see `strict`)."""
        places: dict[int, int] = {}
        template: list[bytes] = []
        wildcards = [at for at, token in enumerate(self._src_tokens) if token == STAR]
        for (name, numbers), token in zip(self._names, self.dest.split(b"."), strict=True):
            if name == "wildcard":
                places[wildcards[numbers[0] - 1]] = len(places) + 1
                template.append(STAR)
            elif name:
                raise TransformError("the only mapping function allowed for import transforms is {{Wildcard()}}")
            else:
                template.append(token)
        if len(places) != len(wildcards):
            raise TransformError("not using all of the token wildcard(s)")
        back = [b"$%d" % places[at] if at in places else token for at, token in enumerate(self._src_tokens)]
        return Transform(b".".join(template), b".".join(back), strict=True)

    def _rewrite(self, tokens: list[bytes], subject: bytes) -> bytes:
        if self._steps is None:
            return subject if not self.dest else self.dest
        made = [step(tokens, subject) for step in self._steps]
        if self._rest_at >= 0:
            made += tokens[self._rest_at :]
        return b".".join(made)

    # compiling

    def _compile(self, strict: bool, republish: bool, rng: random.Random) -> None:
        dest_tokens = self.dest.split(b".")
        ends_in_rest = dest_tokens[-1] == REST
        if (
            b"" in dest_tokens
            or STAR in dest_tokens
            or REST in dest_tokens[:-1]
            or ends_in_rest != (self._rest_at >= 0)
        ):
            raise TransformError("invalid subject")
        self._names = [self._read_token(token, strict, republish) for token in dest_tokens]
        wildcards = [at for at, token in enumerate(self._src_tokens) if token == STAR]
        if strict and {numbers[0] for name, numbers in self._names if name} != set(range(1, len(wildcards) + 1)):
            raise TransformError("not using all of the token wildcard(s)")
        if not any(name for name, _ in self._names):
            if self._rest_at < 0:
                return  # a constant destination
            if not wildcards:
                self._from_prefix, self._to_prefix = self.src[:-1], self.dest[:-1]
        body = list(zip(self._names, dest_tokens, strict=True))
        if ends_in_rest:
            del body[-1]
        self._steps = [_step(name, numbers, token, wildcards, rng) for (name, numbers), token in body]

    def _read_token(self, token: bytes, strict: bool, republish: bool) -> tuple[str, list[int]]:
        """Return function name and numeric arguments of a destination token; "" for a literal."""
        name, numbers = _read_call(token)
        if name in ("left", "right") and not republish:
            raise _bad("unknown function", token)
        if not name:
            if any(space in token for space in b" \t\r\n\f"):
                raise TransformError("invalid subject")
            return name, numbers
        if strict and name != "wildcard":
            raise TransformError(
                f"the only mapping function allowed for import transforms is {{{{Wildcard()}}}} in {_text(token)}"
            )
        if name == "random":
            self.constant = False
            return name, numbers
        available = self._src_tokens.count(STAR)
        for number in numbers[1:] if name == "partition" else numbers[:1]:
            if number > available or (number < 1 and (strict or not (available or self._rest_at >= 0))):
                which = b": [%d]" % number if available or self._rest_at >= 0 else b""
                raise _bad("wildcard index out of range", token + which)
        return name, numbers


def domain_mapping(domain: str) -> list[tuple[bytes, bytes]]:
    """Return the account mappings of a server with JetStream domain `domain`: (source, destination) pairs.

    They map `$JS.<domain>.API.…` to the local API, key-value and object store subjects.
    """
    api = b"$JS.%b.API." % domain.encode()
    same_tail = (b"STREAM", b"CONSUMER", b"DIRECT", b"META", b"SERVER", b"ACCOUNT")
    return [
        (api + b"INFO", b"$JS.API.INFO"),
        *[(api + part + b".>", b"$JS.API." + part + b".>") for part in same_tail],
        *[(api + part + b".>", part + b".>") for part in (b"$KV", b"$OBJ")],
    ]


def fnv1a_32(data: bytes) -> int:
    """Return the FNV-1a hash of `data`, 32 bits."""
    value = 0x811C9DC5
    for byte in data:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def _text(token: bytes) -> str:
    return token.decode("utf-8", "replace")


def _bad(what: str, token: bytes) -> TransformError:
    return TransformError(f"invalid mapping destination: {what} in {_text(token)}")


# name -> (fewest, most) arguments, 0: unlimited; all are numbers except split's delimiter
_ARGUMENTS: Final[dict[str, tuple[int, int]]] = {
    "wildcard": (1, 1),
    "partition": (1, 0),
    "split": (2, 2),
    "splitfromleft": (2, 2),
    "splitfromright": (2, 2),
    "slicefromleft": (2, 2),
    "slicefromright": (2, 2),
    "left": (2, 2),
    "right": (2, 2),
    "random": (1, 1),
}
# The letters of free case: the first of each word.
_SPELLING: Final = re.compile(
    rb"[wW]ildcard|[pP]artition|[rR]andom|[sS]plit(?:[fF]rom(?:[lL]eft|[rR]ight))?|[sS]lice[fF]rom(?:[lL]eft|[rR]ight)|[lL]eft|[rR]ight"
)
_NUMBER: Final = re.compile(rb"[+-]?[0-9]{1,20}")


def _read_call(token: bytes) -> tuple[str, list[int]]:
    if token.startswith(b"$") and (number := parse_uint(token[1:])) is not None:
        return "wildcard", [number]
    if not (token.startswith(b"{{") and token.endswith(b"}}") and len(token) >= 4):
        return "", []
    call = _CALL.fullmatch(token)
    if call is None or _SPELLING.fullmatch(call[1]) is None:
        raise _bad("unknown function", token)
    name = call[1].decode().lower()
    arguments = _split_arguments(call[2])
    fewest, most = _ARGUMENTS[name]
    if len(arguments) < fewest:
        raise _bad("not enough arguments passed to the function", token)
    if most and len(arguments) > most:
        raise _bad("too many arguments passed to the function", token)
    if name == "split":
        delimiter = arguments.pop()
        if not delimiter or b" " in delimiter or b"." in delimiter:
            raise _bad("function argument is invalid or in the wrong format", token)
    numbers: list[int] = []
    for argument in arguments:
        digits = argument.strip()
        if _NUMBER.fullmatch(digits) is None or int(digits) > _INT32_MAX:
            raise _bad("function argument is invalid or in the wrong format", token)
        numbers.append(int(digits))
    return name, numbers


def _split_arguments(text: bytes) -> list[bytes]:
    """Split arguments at a comma and any white space after it."""
    return [] if not text.strip() else re.split(rb",\s*", text)


def _step(name: str, numbers: list[int], token: bytes, wildcards: list[int], rng: random.Random) -> _Step:
    if not name:
        return lambda tokens, subject: token
    if name == "random":
        most = abs(numbers[0])
        return lambda tokens, subject: b"%d" % (rng.randrange(most) if most else 0)
    if name == "partition":
        return _partition(numbers[0], [_place(wildcards, number) for number in numbers[1:]])
    at = _place(wildcards, numbers[0])
    if name == "wildcard":
        return lambda tokens, subject: tokens[at]
    if name == "split":
        call = _CALL.fullmatch(token)
        assert call is not None
        delimiter = _split_arguments(call[2])[1]
        return lambda tokens, subject: b".".join([piece for piece in tokens[at].split(delimiter) if piece])
    size = numbers[1]
    cut = {
        "splitfromleft": _split_from_left,
        "splitfromright": _split_from_right,
        "slicefromleft": _slice_from_left,
        "slicefromright": _slice_from_right,
        "left": _left,
        "right": _right,
    }[name]
    return lambda tokens, subject: cut(tokens[at], size)


def _place(wildcards: list[int], number: int) -> int:
    """Return which token of the subject the `number`-th wildcard is."""
    return wildcards[number - 1] if number > 0 else 0


def _partition(buckets: int, places: list[int]) -> _Step:
    buckets &= 0xFFFFFFFF
    if not buckets:
        return lambda tokens, subject: b"0"
    if not places:
        return lambda tokens, subject: b"%d" % (fnv1a_32(subject) % buckets)
    return lambda tokens, subject: b"%d" % (fnv1a_32(b"".join([tokens[at] for at in places])) % buckets)


def _split_from_left(token: bytes, position: int) -> bytes:
    return token[:position] + b"." + token[position:] if 0 < position < len(token) else token


def _split_from_right(token: bytes, position: int) -> bytes:
    return _split_from_left(token, len(token) - position) if position > 0 else token


def _slice_from_left(token: bytes, size: int) -> bytes:
    return b".".join([token[at : at + size] for at in range(0, len(token), size)]) if size > 0 else token


def _slice_from_right(token: bytes, size: int) -> bytes:
    rest = len(token) % size if size > 0 else 0
    if not rest or rest == len(token):
        return _slice_from_left(token, size)
    return token[:rest] + b"." + _slice_from_left(token[rest:], size)


def _left(token: bytes, size: int) -> bytes:
    return token[:size] if size > 0 else token


def _right(token: bytes, size: int) -> bytes:
    return token[-size:] if size > 0 else token
