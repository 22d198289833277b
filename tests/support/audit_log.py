"""The audit log of nodes that write it while it is read: each by a thread of its own, a moment after the answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def audit_lines(file: Path) -> list[dict[str, Any]]:
    """The lines that are whole by now: of the last one there may be a part."""
    return [json.loads(line) for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]
