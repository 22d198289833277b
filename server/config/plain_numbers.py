"""Numbers in text: ASCII digits with at most a minus before them.

Python's ``int`` and ``float`` also read ``1_000``, ``+5000``, spaces and the digits of every script. Clients in other
languages read none of these, so a value that is stored as it was typed would be no number to them.
"""

from __future__ import annotations

import re

_INTEGER = re.compile(r"-?[0-9]{1,20}")
_DECIMAL = re.compile(r"-?(?:[0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})(?:[eE][-+]?[0-9]{1,3})?")


def parse_integer(text: str) -> int:
    """Returns the integer that ``text`` is, of at most 20 digits.

    Raises:
        ValueError: it is something else.
    """
    if _INTEGER.fullmatch(text) is None:
        raise ValueError("not an integer: write digits alone")
    return int(text)


def parse_decimal(text: str) -> float:
    """Returns the number that ``text`` is, such as ``0.5`` or ``1e-3``.

    Raises:
        ValueError: it is something else.
    """
    if _DECIMAL.fullmatch(text) is None:
        raise ValueError("not a number: write digits, and a point if need be")
    return float(text)
