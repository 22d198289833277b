"""The notebook in docs/use/spark-tutorial.md runs as it is, cell by cell, and prints the output that it shows."""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.support.stream_queries import MOST_STARTS, is_slow_start

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "use" / "spark-tutorial.md"
_CELL = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<printed>.*?)^```\n)?", re.M | re.S)


@dataclass(frozen=True)
class Cell:
    """A cell, the line of the page at which it starts, and what it prints; … stands for anything within a line."""

    code: str
    line: int
    printed: str

    def run(self, names: dict[str, Any]) -> str:
        """Returns what it prints, without spaces at the ends of lines."""
        # The lines before it, empty: a traceback then names the page's own line.
        code = compile("\n" * self.line + self.code, str(TUTORIAL), "exec")
        for attempt in itertools.count(1):
            try:
                with contextlib.redirect_stdout(io.StringIO()) as printed:
                    exec(code, names)
                return "".join(f"{line.rstrip()}\n" for line in printed.getvalue().rstrip().splitlines())
            except StreamingQueryException as error:
                # A cell with a query does nothing that may not be done again.
                if attempt == MOST_STARTS or not is_slow_start(error):
                    raise
        raise AssertionError

    def matches(self, printed: str) -> bool:
        """True if it has printed what the page says."""
        return re.fullmatch(re.escape(self.printed).replace("…", ".*"), printed) is not None


def cells() -> Iterator[Cell]:
    page = TUTORIAL.read_text()
    for found in _CELL.finditer(page):
        yield Cell(found["code"], page[: found.start()].count("\n") + 1, found["printed"] or "")


@pytest.mark.spark
@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_the_notebook_prints_what_it_says(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    assert spark.version, "the notebook gets the session of the tests, which has started already"
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    names: dict[str, Any] = {"__name__": "notebook"}
    try:
        for cell in cells():
            printed = cell.run(names)
            assert cell.matches(printed), f"{TUTORIAL.name}:{cell.line} prints\n{printed}"
    finally:
        if "cluster" in names:
            names["cluster"].shutdown()
