"""Kafka's messages with random content, written by kafka-python, and what was put into them.

kafka-python has the schemas too, and code of its own that follows them: what it writes, ours has to read, and to write
in the same bytes. Those that it lacks are read from ``proto/kafka``.
"""

from __future__ import annotations

import importlib
import uuid
from functools import cache
from random import Random
from typing import Any

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl
from kafka.protocol.api_message import ApiMessage

_MODULES = (
    kafka.protocol.admin,
    kafka.protocol.consumer,
    kafka.protocol.metadata,
    kafka.protocol.producer,
    kafka.protocol.sasl,
)
#: Fields that kafka-python calls by other names than Kafka's schemas.
THEIR_NAMES = {
    "cluster_authorized_operations": "authorized_operations",
    "topic_authorized_operations": "authorized_operations",
}
#: A package without ``__init__.py``: the folder ``proto/kafka``, in the form that kafka-python accepts.
_SCHEMAS = importlib.import_module("proto.kafka")
_WIDTHS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_MOST_ELEMENTS = 3
_TEXTS = ("", "orders", "größe", "x" * 127, "y" * 128, "z" * 300)


@cache
def their_class(name: str) -> Any:
    """Returns kafka-python's class for a message, by Kafka's name of it.

    Where kafka-python has none, the class is made from ``proto/kafka``.
    """
    for module in _MODULES:
        if hasattr(module, name):
            return getattr(module, name)
    return type(ApiMessage)(name, (ApiMessage,), {}, load_json=_SCHEMAS)


def their_message(name: str, version: int, content: dict[str, Any]) -> Any:
    """Returns a message with some of its fields; the others have Kafka's defaults."""
    kind = their_class(name)
    return kind[version](**_made(kind._struct, version, content))


def random_content(name: str, version: int, random: Random) -> dict[str, Any]:
    """A value for every field that a message has in a version; a tagged field is often left out."""
    return _structure(their_class(name)._json["fields"], version, random)


def their_bytes(name: str, version: int, content: dict[str, Any]) -> bytes:
    """The message as kafka-python writes it, without a header."""
    return bytes(their_message(name, version, content).encode(version=version))


def _made(structure: Any, version: int, content: dict[str, Any]) -> dict[str, Any]:
    """Content with objects of kafka-python's where there are dictionaries."""
    found = {}
    for name, value in content.items():
        field = structure.fields[name]
        if isinstance(value, dict):
            value = field.data_class(version=version, **_made(field, version, value))
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            value = [field.data_class(version=version, **_made(field, version, each)) for each in value]
        elif isinstance(value, bytes) and field.type_str == "uuid":
            value = uuid.UUID(bytes=value)
        elif field.type_str == "bitfield":
            value = {bit for bit in range(32) if value >> bit & 1}
        found[name] = value
    return found


def _structure(fields: list[dict[str, Any]], version: int, random: Random) -> dict[str, Any]:
    found = {}
    for field in fields:
        if not _has(field["versions"], version):
            continue
        if _has(field.get("taggedVersions", "none"), version) and random.random() < 0.5:
            continue
        nullable = _has(field.get("nullableVersions", "none"), version)
        name = kafka.protocol.schemas.BaseField.underscore_name(field["name"])
        found[name] = None if nullable and random.random() < 0.25 else _value(field, field["type"], version, random)
    return found


def _value(field: dict[str, Any], kind: str, version: int, random: Random) -> Any:
    if kind.startswith("[]"):
        count = random.randrange(_MOST_ELEMENTS + 1)
        return [_value(field, kind.removeprefix("[]"), version, random) for _ in range(count)]
    if kind in _WIDTHS:
        bits = random.randrange(_WIDTHS[kind])
        return random.choice((1, -1)) * random.getrandbits(bits)
    if kind == "uint16":
        return random.getrandbits(16)
    if kind == "float64":
        return random.choice((0.0, -1.5, 1e300, float("inf"), random.random()))
    if kind == "bitfield":
        return random.getrandbits(31)  # kafka-python's own, for numbers of 32 bits whose bits are choices
    if kind == "bool":
        return random.random() < 0.5
    if kind == "string":
        return random.choice(_TEXTS)
    if kind == "uuid":
        return random.randbytes(16)
    if kind in ("bytes", "records"):
        return random.randbytes(random.choice((0, 1, 127, 128, 1000)))
    return _structure(field["fields"], version, random)


def _has(versions: str, version: int) -> bool:
    if versions == "none":
        return False
    lowest, _, highest = versions.removesuffix("+").partition("-")
    if versions.endswith("+"):
        return version >= int(lowest)
    return int(lowest) <= version <= int(highest or lowest)
