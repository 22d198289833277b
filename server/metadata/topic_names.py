"""Which names a topic can have."""

from __future__ import annotations

import re

from quorumlog.server.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: As in Kafka: the name becomes a file name in many tools.
MAX_NAME_CHARACTERS = 249
_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z")


def refuse_spelling(name: str) -> errors_pb2.Error | None:
    """Why no topic can ever have this name; None where one can."""
    shown = ascii(name[:80])
    if not 1 <= len(name) <= MAX_NAME_CHARACTERS:
        problem = f"topic name {shown} has {len(name)} characters: 1 to {MAX_NAME_CHARACTERS} are allowed"
    elif name in (".", ".."):
        problem = f"topic name {shown} is not allowed: '.' and '..' are not names"
    elif not _NAME.match(name):
        problem = f"topic name {shown} is not allowed: use only letters a-z A-Z, digits, '.', '_' and '-'"
    else:
        return None
    return error(ErrorCode.INVALID_TOPIC, problem)
