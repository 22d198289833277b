"""Numbers in text: ASCII digits, optionally preceded by a minus sign.

Python's ``int`` and ``float`` also accept ``1_000``, ``+5000``, spaces and the digits of every script. Clients in other
languages accept none of these, so a value stored as it was typed would not be a number to them.
"""

from __future__ import annotations

import re

_INTEGER = re.compile(r"-?[0-9]{1,20}")
_DECIMAL = re.compile(r"-?(?:[0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})(?:[eE][-+]?[0-9]{1,3})?")


def parse_integer(text: str) -> int:
    """Returns the integer in ``text``, which has at most 20 digits.

    Raises:
        ValueError: the text is not an integer.
    """
    if _INTEGER.fullmatch(text) is None:
        raise ValueError("not an integer: use digits only")
    return int(text)


def parse_decimal(text: str) -> float:
    """Returns the number in ``text``, such as ``0.5`` or ``1e-3``.

    Raises:
        ValueError: the text is not a number.
    """
    if _DECIMAL.fullmatch(text) is None:
        raise ValueError("not a number: use digits and an optional decimal point")
    return float(text)
