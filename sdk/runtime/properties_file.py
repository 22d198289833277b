"""Files of properties, as Kafka's tools take them: lines such as ``security.protocol=SSL``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def properties_of(file: Path) -> Iterator[tuple[int, str, str | None]]:
    """The lines of a file: number, key and value. Empty ones and comments are left out; the value is None where there
    is no ``=``.

    Raises:
        OSError, UnicodeDecodeError: it cannot be read.
    """
    for number, line in enumerate(file.read_text("utf-8").splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            key, separator, value = (part.strip() for part in line.partition("="))
            yield number, key, value if separator else None
