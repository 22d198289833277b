"""Primitive types of Kafka's messages: strings, arrays, tagged fields, and the two calls that others use.

A function ``unpack_...`` takes the bytes of a whole request and where in them to start, and returns what it found and
where that ends. A function ``pack_...`` returns bytes. "Compact" are the lengths of flexible versions (KIP-482): one
more than the length, as a varint; 0 is null.

Nothing here believes a length: it is compared with what is left before anything is made of it. Small elements in many
bytes would still become large objects, so the elements of all arrays and the tagged fields of one message are counted
down together (``left``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct, error, pack, unpack_from
from typing import ClassVar, Protocol, Self, TypeAlias, TypeVar

#: Bytes that may be a part of a larger buffer, which is not copied.
Buffer: TypeAlias = bytes | memoryview
#: An id that says nothing.
NO_UUID = bytes(16)
#: Elements of all arrays of one message together, and its tagged fields. A request that names every partition of a
#: large cluster has a fifth of that.
MOST_ELEMENTS = 50_000
#: Bytes of a string, also of one whose length could be larger on the wire.
MOST_STRING_BYTES = (1 << 15) - 1

_SHORT = Struct(">h")
_LONG = Struct(">i")
_MOST_VARINT_BYTES = 5
_NULL = -1


class MalformedKafkaMessageError(Exception):
    """Bytes that are not the message which they should be. The message says what is wrong."""


class UnencodableMessageError(ValueError):
    """A message has something that its version cannot carry. The message says what."""


class KafkaMessage(Protocol):
    """A request or a response. Fields that a version does not have keep their defaults; they are not written."""

    API_KEY: ClassVar[int]
    LOWEST: ClassVar[int]
    HIGHEST: ClassVar[int]
    #: The first version with compact lengths and tagged fields; above ``HIGHEST`` where none exists.
    FLEXIBLE_FROM: ClassVar[int]

    @classmethod
    def read(cls, data: bytes, at: int, version: int, left: int) -> tuple[Self, int, int]:
        """The message that starts at ``at``, where it ends, and how many elements may still follow; see ``decode``."""

    def write(self, parts: list[Buffer], version: int) -> None:
        """Adds the message's bytes to parts; see ``encode``."""


AnyMessage = TypeVar("AnyMessage", bound=KafkaMessage)
T = TypeVar("T")


class _New(Protocol):
    def __call__(self, kind: type[T], /) -> T: ...


#: An object without any of its fields. Code that reads sets all of them: a constructor would take longer than that.
new: _New = object.__new__


def decode(
    kind: type[AnyMessage],
    data: bytes,
    version: int,
    *,
    at: int = 0,
    most_elements: int = MOST_ELEMENTS,
    to_the_end: bool = True,
) -> AnyMessage:
    """Reads a message. Records in it are views of ``data``; the rest is copied.

    Arguments:
        at: where in ``data`` it starts.
        to_the_end: it must end where they end.
        version: one from ``kind.LOWEST`` to ``kind.HIGHEST``.

    Raises:
        MalformedKafkaMessageError: the bytes are not such a message, or it has more elements than may be.
        ValueError: there is no such version.
    """
    if not kind.LOWEST <= version <= kind.HIGHEST:
        raise ValueError(f"{kind.__name__} has no version {version}")
    try:
        message, end, _ = kind.read(data, at, version, most_elements)
    except (error, IndexError):
        raise MalformedKafkaMessageError(f"a {kind.__name__} of version {version} is cut off") from None
    except UnicodeDecodeError as problem:
        raise MalformedKafkaMessageError(f"a {kind.__name__} of version {version} has a string of {problem}") from None
    if to_the_end and end != len(data):
        raise MalformedKafkaMessageError(
            f"a {kind.__name__} of version {version} has {len(data) - end} bytes behind it"
        )
    return message


def encode(message: KafkaMessage, version: int) -> list[Buffer]:
    """The bytes of a message, in parts: to be joined, or written one after the other. Records are not copied.

    Arguments:
        version: one from ``LOWEST`` to ``HIGHEST`` of the message.

    Raises:
        UnencodableMessageError: a number or a string is too large, or null in a version where it may not be.
        ValueError: there is no such version.
    """
    if not message.LOWEST <= version <= message.HIGHEST:
        raise ValueError(f"{type(message).__name__} has no version {version}")
    parts: list[Buffer] = []
    try:
        message.write(parts, version)
    except error as problem:
        raise UnencodableMessageError(f"a {type(message).__name__} of version {version}: {problem}") from None
    return parts


# Lengths.


def unpack_uvarint(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned number of 32 bits, seven of them in a byte, the lowest first."""
    value = data[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    for place in range(1, _MOST_VARINT_BYTES):
        byte = data[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            if value >> 32:
                break
            return value, at + place + 1
    raise MalformedKafkaMessageError("a varint has more than 32 bits")


def pack_uvarint(value: int) -> bytes:
    """An unsigned number of 32 bits."""
    if value < 0x80:
        return bytes((value,))
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _bytes_left(data: bytes, at: int, size: int) -> int:
    """Returns the offset behind the next ``size`` bytes, after a check that the message has them."""
    end = at + size
    if size < 0:
        raise MalformedKafkaMessageError("something is null that may not be")
    if end > len(data):
        raise MalformedKafkaMessageError(f"{size} bytes are said where {len(data) - at} are left")
    return end


def not_null(value: T | None) -> T:
    """Returns the value of a field that is not nullable in this version.

    Raises:
        UnencodableMessageError: it is null.
    """
    if value is None:
        raise UnencodableMessageError("something is null in a version where it may not be")
    return value


def unpack_presence(data: bytes, at: int) -> tuple[bool, int]:
    """Returns True if a nullable structure is present, and the next offset. The byte before it is negative if not."""
    return data[at] < 0x80, at + 1


def pack_presence(is_there: bool) -> bytes:
    """The byte before a structure that may be null."""
    return b"\x01" if is_there else b"\xff"


# Strings.


def unpack_string(data: bytes, at: int) -> tuple[str, int]:
    """A string."""
    (size,) = _SHORT.unpack_from(data, at)
    at += 2
    end = _bytes_left(data, at, size)
    return data[at:end].decode(), end


def unpack_nullable_string(data: bytes, at: int) -> tuple[str | None, int]:
    """A string, or null."""
    (size,) = _SHORT.unpack_from(data, at)
    return (None, at + 2) if size == _NULL else unpack_string(data, at)


def unpack_compact_string(data: bytes, at: int) -> tuple[str, int]:
    """A string in flexible versions."""
    size, at = unpack_uvarint(data, at)
    if size > MOST_STRING_BYTES + 1:
        raise MalformedKafkaMessageError(f"a string of {size - 1} bytes")
    end = _bytes_left(data, at, size - 1)
    return data[at:end].decode(), end


def unpack_compact_nullable_string(data: bytes, at: int) -> tuple[str | None, int]:
    """A string in flexible versions, or null."""
    return unpack_compact_string(data, at) if data[at] else (None, at + 1)


def pack_string(value: str) -> bytes:
    """A string."""
    text = value.encode()
    return _SHORT.pack(len(text)) + text


def pack_nullable_string(value: str | None) -> bytes:
    """A string, or null."""
    return _SHORT.pack(_NULL) if value is None else pack_string(value)


def pack_compact_string(value: str) -> bytes:
    """A string in flexible versions."""
    text = value.encode()
    if len(text) > MOST_STRING_BYTES:
        raise UnencodableMessageError(f"a string of {len(text)} bytes is longer than {MOST_STRING_BYTES}")
    return pack_uvarint(len(text) + 1) + text


def pack_compact_nullable_string(value: str | None) -> bytes:
    """A string in flexible versions, or null."""
    return b"\0" if value is None else pack_compact_string(value)


# Bytes, and records.


def unpack_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    """Bytes."""
    (size,) = _LONG.unpack_from(data, at)
    end = _bytes_left(data, at + 4, size)
    return data[at + 4 : end], end


def unpack_compact_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    """Bytes in flexible versions."""
    size, at = unpack_uvarint(data, at)
    end = _bytes_left(data, at, size - 1)
    return data[at:end], end


def unpack_nullable_records(data: bytes, at: int) -> tuple[memoryview | None, int]:
    """Batches of records, or null."""
    (size,) = _LONG.unpack_from(data, at)
    at += 4
    if size == _NULL:
        return None, at
    end = _bytes_left(data, at, size)
    return memoryview(data)[at:end], end


def unpack_compact_nullable_records(data: bytes, at: int) -> tuple[memoryview | None, int]:
    """Batches of records in flexible versions, or null."""
    size, at = unpack_uvarint(data, at)
    if size == 0:
        return None, at
    end = _bytes_left(data, at, size - 1)
    return memoryview(data)[at:end], end


def pack_bytes(value: bytes) -> bytes:
    """Bytes."""
    return _LONG.pack(len(value)) + value


def pack_compact_bytes(value: bytes) -> bytes:
    """Bytes in flexible versions."""
    return pack_uvarint(len(value) + 1) + value


def pack_nullable_records(value: Buffer | None) -> tuple[Buffer, ...]:
    """Batches of records, or null, in parts."""
    return (_LONG.pack(_NULL),) if value is None else (_LONG.pack(len(value)), value)


def pack_compact_nullable_records(value: Buffer | None) -> tuple[Buffer, ...]:
    """Batches of records in flexible versions, or null, in parts."""
    return (b"\0",) if value is None else (pack_uvarint(len(value) + 1), value)


# Arrays.


def unpack_nullable_array(data: bytes, at: int, smallest: int, left: int) -> tuple[int, int, int]:
    """Returns the number of elements, -1 for null; their offset; and how many more the message may have.

    Arguments:
        smallest: fewest bytes of an element.
        left: how many elements the message may still have.
    """
    (count,) = _LONG.unpack_from(data, at)
    if count == _NULL:
        return count, at + 4, left
    return _checked(count, len(data) - at - 4, smallest, left), at + 4, left - count


def unpack_array(data: bytes, at: int, smallest: int, left: int) -> tuple[int, int, int]:
    """As ``unpack_nullable_array``, where null may not be."""
    (count,) = _LONG.unpack_from(data, at)
    return _checked(count, len(data) - at - 4, smallest, left), at + 4, left - count


def unpack_compact_nullable_array(data: bytes, at: int, smallest: int, left: int) -> tuple[int, int, int]:
    """As ``unpack_nullable_array``, in flexible versions."""
    return unpack_compact_array(data, at, smallest, left) if data[at] else (_NULL, at + 1, left)


def unpack_compact_array(data: bytes, at: int, smallest: int, left: int) -> tuple[int, int, int]:
    """As ``unpack_array``, in flexible versions."""
    count, at = unpack_uvarint(data, at)
    return _checked(count - 1, len(data) - at, smallest, left), at, left - count + 1


def _checked(count: int, bytes_left: int, smallest: int, left: int) -> int:
    if count < 0:
        raise MalformedKafkaMessageError("an array is null that may not be")
    if count * smallest > bytes_left:
        raise MalformedKafkaMessageError(f"{count} elements are said where {bytes_left} bytes are left")
    if count > left:
        raise MalformedKafkaMessageError("too many elements")
    return count


def pack_count(count: int) -> bytes:
    """Encodes the number of elements that follow, -1 for null."""
    return _LONG.pack(count)


def pack_compact_count(count: int) -> bytes:
    """Encodes the number of elements that follow in flexible versions, -1 for null."""
    return pack_uvarint(count + 1)


def unpack_string_array(data: bytes, at: int, left: int) -> tuple[list[str], int, int]:
    """Strings."""
    count, at, left = unpack_array(data, at, 2, left)
    return *_elements(data, at, count, unpack_string), left


def unpack_nullable_string_array(data: bytes, at: int, left: int) -> tuple[list[str] | None, int, int]:
    """Strings, or null."""
    count, at, left = unpack_nullable_array(data, at, 2, left)
    return (None, at, left) if count < 0 else (*_elements(data, at, count, unpack_string), left)


def unpack_compact_string_array(data: bytes, at: int, left: int) -> tuple[list[str], int, int]:
    """Strings in flexible versions."""
    count, at, left = unpack_compact_array(data, at, 1, left)
    return *_elements(data, at, count, unpack_compact_string), left


def unpack_compact_nullable_string_array(data: bytes, at: int, left: int) -> tuple[list[str] | None, int, int]:
    """Strings in flexible versions, or null."""
    count, at, left = unpack_compact_nullable_array(data, at, 1, left)
    return (None, at, left) if count < 0 else (*_elements(data, at, count, unpack_compact_string), left)


def _elements(data: bytes, at: int, count: int, one: Callable[[bytes, int], tuple[str, int]]) -> tuple[list[str], int]:
    found = []
    for _ in range(count):
        text, at = one(data, at)
        found.append(text)
    return found, at


def unpack_int32_array(data: bytes, at: int, left: int) -> tuple[Sequence[int], int, int]:
    """Numbers of 32 bits."""
    count, at, left = unpack_array(data, at, 4, left)
    return unpack_from(f">{count}i", data, at), at + 4 * count, left


def unpack_compact_int32_array(data: bytes, at: int, left: int) -> tuple[Sequence[int], int, int]:
    """Numbers of 32 bits in flexible versions."""
    count, at, left = unpack_compact_array(data, at, 4, left)
    return unpack_from(f">{count}i", data, at), at + 4 * count, left


def unpack_compact_int8_array(data: bytes, at: int, left: int) -> tuple[Sequence[int], int, int]:
    """Numbers of 8 bits in flexible versions."""
    count, at, left = unpack_compact_array(data, at, 1, left)
    return unpack_from(f">{count}b", data, at), at + count, left


def unpack_compact_int64_array(data: bytes, at: int, left: int) -> tuple[Sequence[int], int, int]:
    """Numbers of 64 bits in flexible versions."""
    count, at, left = unpack_compact_array(data, at, 8, left)
    return unpack_from(f">{count}q", data, at), at + 8 * count, left


def unpack_compact_nullable_int32_array(data: bytes, at: int, left: int) -> tuple[Sequence[int] | None, int, int]:
    """Numbers of 32 bits in flexible versions, or null."""
    count, at, left = unpack_compact_nullable_array(data, at, 4, left)
    return (None, at, left) if count < 0 else (unpack_from(f">{count}i", data, at), at + 4 * count, left)


def pack_string_array(values: Sequence[str]) -> bytes:
    """Strings."""
    return b"".join((pack_count(len(values)), *map(pack_string, values)))


def pack_nullable_string_array(values: Sequence[str] | None) -> bytes:
    """Strings, or null."""
    return pack_count(_NULL) if values is None else pack_string_array(values)


def pack_compact_string_array(values: Sequence[str]) -> bytes:
    """Strings in flexible versions."""
    return b"".join((pack_compact_count(len(values)), *map(pack_compact_string, values)))


def pack_compact_nullable_string_array(values: Sequence[str] | None) -> bytes:
    """Strings in flexible versions, or null."""
    return b"\0" if values is None else pack_compact_string_array(values)


def pack_int32_array(values: Sequence[int]) -> bytes:
    """Numbers of 32 bits."""
    return pack(f">i{len(values)}i", len(values), *values)


def pack_compact_int32_array(values: Sequence[int]) -> bytes:
    """Numbers of 32 bits in flexible versions."""
    return pack_compact_count(len(values)) + pack(f">{len(values)}i", *values)


def pack_compact_int8_array(values: Sequence[int]) -> bytes:
    """Numbers of 8 bits in flexible versions."""
    return pack_compact_count(len(values)) + pack(f">{len(values)}b", *values)


def pack_compact_int64_array(values: Sequence[int]) -> bytes:
    """Numbers of 64 bits in flexible versions."""
    return pack_compact_count(len(values)) + pack(f">{len(values)}q", *values)


def pack_compact_nullable_int32_array(values: Sequence[int] | None) -> bytes:
    """Numbers of 32 bits in flexible versions, or null."""
    return b"\0" if values is None else pack_compact_int32_array(values)


# Tagged fields.


def unpack_tags(data: bytes, at: int, left: int) -> tuple[dict[int, tuple[int, int]], int, int]:
    """Returns the start and end of each tagged field, by tag; the end of all; and how many elements may follow."""
    count, at = unpack_uvarint(data, at)
    if count > left:
        raise MalformedKafkaMessageError("too many tagged fields")
    found: dict[int, tuple[int, int]] = {}
    last = -1
    for _ in range(count):
        tag, at = unpack_uvarint(data, at)
        size, at = unpack_uvarint(data, at)
        if tag <= last:
            raise MalformedKafkaMessageError(f"tag {tag} follows tag {last}")
        last = tag
        end = _bytes_left(data, at, size)
        found[tag] = (at, end)
        at = end
    return found, at, left - count


def skip_tags(data: bytes, at: int, left: int) -> tuple[int, int]:
    """Returns the end of tagged fields that are all unknown, and how many elements may follow."""
    _, at, left = unpack_tags(data, at, left)
    return at, left


def check_end(at: int, end: int) -> None:
    """Checks that a tagged field took all its bytes, and no others."""
    if at != end:
        raise MalformedKafkaMessageError("a tagged field has another size than it says")


def pack_tags(tagged: list[tuple[int, list[Buffer]]]) -> bytes:
    """Tagged fields, given in the order of their tags."""
    parts = [pack_uvarint(len(tagged))]
    for tag, inner in tagged:
        value = b"".join(inner)
        parts += (pack_uvarint(tag), pack_uvarint(len(value)), value)
    return b"".join(parts)
