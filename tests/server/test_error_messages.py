"""Errors that quote client input: one printable line of limited length."""

from __future__ import annotations

import pytest

from quorumlog.server.step.wire_errors import MAX_MESSAGE_LENGTH, error
from quorumlog.v1.errors_pb2 import ErrorCode


@pytest.mark.parametrize(
    ("quoted", "shown"),
    [
        ("orders", "orders"),
        ("größe 🦆", "größe 🦆"),
        ("a\nb\r", "a\\nb\\r"),
        ("\0\x1b[31m", "\\x00\\x1b[31m"),
        ("\u2028", "\\u2028"),
    ],
)
def test_a_message_is_one_printable_line_whatever_it_quotes(quoted: str, shown: str) -> None:
    made = error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {quoted} does not exist")
    assert made.message == f"topic {shown} does not exist"
    assert made.message.splitlines() == [made.message]


def test_a_message_is_cut_where_what_it_quotes_is_endless() -> None:
    assert len(error(ErrorCode.INVALID_REQUEST, "x" * 1_000_000).message) == MAX_MESSAGE_LENGTH
