"""Records as lines: templates for people, JSON lines for programs. Bytes are written unchanged."""

from __future__ import annotations

import base64
import json
import string
from collections.abc import Callable
from typing import TYPE_CHECKING

from quorumlog.cli.boundary import WRONG_USAGE, CommandError

if TYPE_CHECKING:
    from quorumlog.sdk import ConsumerRecord

    LineFormat = Callable[[ConsumerRecord], bytes]

#: Text of a missing key or value, as in Kafka's console consumer.
NULL = b"null"


def json_line(record: ConsumerRecord) -> bytes:
    """Formats a record as one line of JSON. Keys and values that are not UTF-8 appear as ``{"base64": "…"}``."""
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _json_bytes(record.key),
        "value": _json_bytes(record.value),
        "headers": [[name, _json_bytes(value)] for name, value in record.headers or ()],
    }
    return json.dumps(fields, ensure_ascii=False).encode()


def value_line(record: ConsumerRecord) -> bytes:
    """Formats the value alone."""
    return _text_bytes(record.value)


def keyed_line(separator: str) -> LineFormat:
    """Returns a format of key, separator and value."""
    between = separator.encode()
    return lambda record: _text_bytes(record.key) + between + _text_bytes(record.value)


def template_line(template: str) -> LineFormat:
    """Returns a format from a template such as ``{partition}:{offset} {key} {value}``.

    Raises:
        CommandError: it names a field that records do not have, or is malformed.
    """
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise CommandError(f"--format '{template}' is malformed: {error}", WRONG_USAGE) from None
    pieces: list[LineFormat] = []
    for literal, field, specification, conversion in parts:
        if literal:
            pieces.append(_literal(literal.encode()))
        if field is None:
            continue
        if field not in _FIELDS or specification or conversion:
            known = " ".join(f"{{{name}}}" for name in _FIELDS)
            raise CommandError(f"--format has no field '{{{field}}}'; choose from {known}", WRONG_USAGE)
        pieces.append(_FIELDS[field])
    return lambda record: b"".join(piece(record) for piece in pieces)


def _literal(text: bytes) -> LineFormat:
    return lambda _record: text


def _text_bytes(value: bytes | None) -> bytes:
    return NULL if value is None else value


def _json_bytes(value: bytes | None) -> object:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode("ascii")}


def _headers(record: ConsumerRecord) -> bytes:
    return b",".join(name.encode() + b"=" + _text_bytes(value) for name, value in record.headers or ())


_FIELDS: dict[str, LineFormat] = {
    "topic": lambda record: record.topic.encode(),
    "partition": lambda record: b"%d" % record.partition,
    "offset": lambda record: b"%d" % record.offset,
    "timestamp": lambda record: NULL if record.timestamp is None else b"%d" % record.timestamp,
    "key": lambda record: _text_bytes(record.key),
    "value": lambda record: _text_bytes(record.value),
    "headers": _headers,
}
