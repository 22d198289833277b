"""Files of properties in the format of Kafka's tools: lines such as ``security.protocol=SSL``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def properties_of(file: Path) -> Iterator[tuple[int, str, str | None]]:
    """Yields the lines of a file: number, key and value; the value is None if the line has no ``=``.

    Empty lines and comments are left out.

    Raises:
        OSError, UnicodeDecodeError: it cannot be read.
    """
    for number, line in enumerate(file.read_text("utf-8").splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            key, separator, value = (part.strip() for part in line.partition("="))
            yield number, key, value if separator else None
