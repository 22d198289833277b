"""Requests of Kafka's protocol: of every API and version, valid except for a field or two, from the codec's own
types.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType
from typing import Any, get_args, get_type_hints

from quorumlog.chaos.hostile.boundaries import TEXTS, integers, length
from quorumlog.chaos.hostile.kafka_batches import KafkaBatchMaker
from quorumlog.chaos.hostile.known_ids import GROUPS, NEW_TOPICS, STAGE
from quorumlog.server.kafka.codec.apis import APIS
from quorumlog.server.kafka.codec.headers import RequestHead, pack_request_header
from quorumlog.server.kafka.codec.primitives import KafkaMessage, UnencodableMessageError, encode

_BOUNDARIES = {bits: integers(bits, True) for bits in (8, 16, 32, 64)}
_TIMES_MS = (0, 1, 10, 100, 500, -1)
_RATES = (0.0, 1.0, 1_024.5, -1.0, 1e300, float("inf"), float("nan"))
_BYTES = (b"", b"\0", b"\0" * 16, b"\xff" * 17, b"x" * 1_025, b"\0\0\0\0\0\1\0\x05group\xff\xff\xff\xff")
#: Names that make requests nearly valid, by a part of the field's name.
_CONFIGS = ("cleanup.policy", "retention.ms", "compression.type", "min.insync.replicas", "nothing.such", "")
_PATTERNS = ("", "hostile.*", "[a-z]+", "(", "(a*)*" * 40, "a{1000}" * 3, "\\pL" * 300, "x" * 1_001, "^$")
_VALUES = ("compact", "delete", "1000", "-1", "producer", "", "9" * 40)
#: Principals of ACLs and quotas. No quota key is valid: otherwise all further requests would be throttled.
_ABOUT_RIGHTS = {
    "principal": ("User:alice", "User:*", "alice", ""),
    "host": ("*", "*", "10.0.0.1"),
    "entity_type": ("user", "user", "client-id", "ip", ""),
}
#: Share of wrong fields.
_WRONG = 0.06
_TRIES = 4
#: Deeper lists are short.
_MOST_DEPTH = 5


class KafkaRequestMaker:
    """Creates messages and their frames.

    Arguments:
        chance: source of all random decisions.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.batches = KafkaBatchMaker(chance)
        #: Values learned from answers.
        self.members: list[str] = [""]
        self.topic_ids: list[bytes] = [bytes(16), b"\xff" * 16]
        self.producers: list[tuple[int, int]] = [(-1, -1)]
        self.generations: list[int] = [-1, 0, 1]
        #: State of fetches on the connection: its session, and the epoch of the next request.
        self.fetch_session = (0, 0)

    def request(self, api_key: int | None = None) -> tuple[int, int, KafkaMessage]:
        """Returns the key and version of an API, and a request of it."""
        chance = self._chance
        key = chance.choice(tuple(APIS)) if api_key is None else api_key
        kind = APIS[key].request
        message: KafkaMessage = self._filled(kind, 0, 0.0 if chance.random() < 0.3 else _WRONG)
        return key, chance.randint(kind.LOWEST, kind.HIGHEST), message

    def frame(self, key: int, version: int, message: KafkaMessage, number: int) -> bytes | None:
        """Returns a request with its header, without its size; None if the version cannot encode it."""
        kind = APIS[key].request
        try:
            parts = encode(message, version)
        except (UnencodableMessageError, TypeError, UnicodeEncodeError):
            return None
        client = self._chance.choice((None, "", "hostile", "x" * 300, "a\nb=c \x1b[2J"))
        header = pack_request_header(RequestHead(key, version, number), client, flexible=version >= kind.FLEXIBLE_FROM)
        return b"".join((header, *parts))

    def framed(self, number: int, api_key: int | None = None) -> tuple[int, int, bytes, KafkaMessage]:
        """Returns key, version, frame and message of a request that can be encoded."""
        while True:
            key, version, message = self.request(api_key)
            for _ in range(_TRIES):
                frame = self.frame(key, version, message, number)
                if frame is not None:
                    return key, version, frame, message
                version = self._chance.randint(type(message).LOWEST, type(message).HIGHEST)

    def altered(self, frame: bytes) -> bytes:
        """Returns a frame that is truncated, or has other bytes in it."""
        chance = self._chance
        draw = chance.random()
        if draw < 0.25:
            return frame[: chance.randrange(len(frame) + 1)]
        if draw < 0.35:
            return frame + chance.randbytes(chance.choice((1, 3, 100)))
        altered = bytearray(frame)
        for _ in range(chance.choice((1, 1, 2, 8))):
            at = chance.randrange(len(altered))
            altered[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            if draw > 0.8:
                altered[at : at + 4] = chance.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0"))
        return bytes(altered)

    def _filled(self, kind: Any, depth: int, wrong: float) -> Any:
        made = kind()
        for name, hint, bits in _fields_of(kind):
            setattr(made, name, self._value(kind, name, hint, bits, depth, wrong))
        return made

    def _value(self, kind: type[Any], name: str, hint: Any, bits: int, depth: int, wrong: float) -> Any:
        chance = self._chance
        is_wrong = chance.random() < wrong
        options = [each for each in get_args(hint) if each is not NoneType]
        if NoneType in get_args(hint):
            if chance.random() < 0.15:
                return None
            hint = options[0]
        if name == "records":
            return self.batches.batch(*chance.choice(self.producers), chance.choice((-1, 0, 1, 3, (1 << 31) - 1)))[1]
        if hint is bool:
            return chance.random() < 0.3
        if hint is int:
            return chance.choice(_BOUNDARIES[bits]) if is_wrong else self._number(name)
        if hint is float:
            return chance.choice(_RATES)
        if hint is str:
            return chance.choice(TEXTS) if is_wrong else self._text(kind, name)
        if hint is bytes:
            if name == "topic_id":
                return chance.choice(self.topic_ids)
            return chance.choice(_BYTES)
        if is_dataclass(hint):
            return self._filled(hint, depth + 1, wrong)
        inner = _inner(hint)
        if inner is None:
            return chance.choice(_BYTES)
        count = length(chance) if is_wrong and depth < 2 else chance.choice((0, 1, 1, 1, 2))
        if depth > _MOST_DEPTH:
            count = 0
        if inner is int:
            return [self._number(name) for _ in range(count)]
        if inner is str:
            return [self._text(kind, name) for _ in range(count)]
        if count > 100:
            return [self._filled(inner, _MOST_DEPTH, wrong)] * count
        return [self._filled(inner, depth + 1, wrong) for _ in range(count)]

    def _number(self, name: str) -> int:
        chance = self._chance
        if "timeout" in name:
            return chance.choice((*_TIMES_MS, 6_000, 10_000, 300_000) if "session" in name else _TIMES_MS)
        if "wait_ms" in name:
            return chance.choice(_TIMES_MS)
        if "bytes" in name:
            return chance.choice((0, 1, 1 << 20, 50 << 20))
        if name == "acks":
            return chance.choice((-1, -1, 1, 0))
        if "replica_id" in name:
            return -1
        if "session" in name:
            own = self.fetch_session["epoch" in name]
            return chance.choice((0, 0, -1, 1, own, own, own))
        if "generation" in name:
            return chance.choice(self.generations)
        if "epoch" in name:
            return chance.choice((-2, -1, -1, 0, 1, 2, 5))
        if "timestamp" in name:
            return chance.choice((-1, -2, -3, -4, -5, 0, 1 << 40, (1 << 63) - 1))
        if "offset" in name:
            return chance.choice((-1, 0, 0, 1, 10, 1_000))
        return chance.choice((-1, 0, 0, 1, 1, 2, 3))

    def _text(self, kind: type[Any], name: str) -> str:
        chance = self._chance
        inside = kind.__name__.lower()
        if "regex" in name:
            return chance.choice(_PATTERNS)
        if name == "subscribed_topic_names":
            return chance.choice((*STAGE, *STAGE, *NEW_TOPICS, "nowhere", "__groups"))
        if "assignor" in name:
            return chance.choice(("uniform", "range", "range", "sticky", ""))
        if "group" in name or ("group" in inside and "name" in name) or name in ("key", "coordinator_keys"):
            return chance.choice(GROUPS) if "instance" not in name else chance.choice(("", "i-1", "i-2"))
        if name in _ABOUT_RIGHTS:
            return chance.choice(_ABOUT_RIGHTS[name])
        if "member" in name:
            return chance.choice(self.members)
        if "instance" in name:
            return chance.choice(("", "i-1", "i-2"))
        if "protocol" in name or "protocol" in inside:
            return chance.choice(("consumer", "range", "roundrobin"))
        if "config" in inside or "config" in name or name == "value":
            return chance.choice(_VALUES if name == "value" else (*_CONFIGS, *STAGE))
        if "topic" in name or "name" in name:
            return chance.choice(NEW_TOPICS if "creatable" in inside else (*STAGE, *STAGE, *NEW_TOPICS, "nowhere"))
        return chance.choice(("", "x", "consumer"))


@cache
def _fields_of(kind: Any) -> tuple[tuple[str, Any, int], ...]:
    """Returns name, type and bits of each field."""
    hints = get_type_hints(kind, vars(sys.modules[kind.__module__]))
    return tuple(
        (each.name, hints[each.name], _bits(kind, each.name) if hints[each.name] is int else 0) for each in fields(kind)
    )


@cache
def _inner(hint: Any) -> Any:
    """Returns the type of a list's items; None if it is not a list."""
    found = get_args(hint)
    return found[0] if len(found) == 1 and (is_dataclass(found[0]) or found[0] in (int, str)) else None


@cache
def _bits(kind: type[Any], name: str) -> int:
    """Returns the bits of a number, as the codec can write it. For nested fields usually 32."""
    if not hasattr(kind, "API_KEY"):
        wide = ("offset", "timestamp", "producer_id")
        return 64 if any(each in name for each in wide) and "epoch" not in name and "delta" not in name else 32
    for bits in (64, 32, 16):
        made = kind()
        setattr(made, name, (1 << (bits - 1)) - 1)
        if _fits_everywhere(made):
            return bits
    return 8


def _fits_everywhere(made: Any) -> bool:
    def fits(version: int) -> bool:
        try:
            encode(made, version)
        except UnencodableMessageError as problem:
            return "null" in str(problem)  # Another field is the cause.
        return True

    return all(map(fits, range(made.LOWEST, made.HIGHEST + 1)))


def error_codes_of(message: Any) -> Iterator[int]:
    """Yields all error codes of an answer."""
    for name, _, _ in _fields_of(message.__class__):
        value = getattr(message, name)
        if "error_code" in name:
            yield value
        elif isinstance(value, (list, tuple)):
            for each in value:
                if is_dataclass(each):
                    yield from error_codes_of(each)
