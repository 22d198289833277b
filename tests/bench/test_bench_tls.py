"""``python -m bench --tls``: what is held against its target, and how. Measuring takes minutes; no one waits for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.tls import TwoSides


def pair(first: list[float], second: list[float], target: float | None, *, lower: bool = False) -> TwoSides:
    made = TwoSides("what", "unit", ("without", "with"), target, lower_is_better=lower)
    made.figures[0].extend(first)
    made.figures[1].extend(second)
    return made


def test_the_second_side_is_held_against_the_first_pair_by_pair() -> None:
    measured = pair([100.0, 10.0, 50.0], [80.0, 9.0, 20.0], 0.75)
    assert measured.ratios == [0.8, 0.9, 0.4]
    assert measured.met is True
    assert pair([100.0], [74.0], 0.75).met is False
    assert pair([1.0], [1.2], 1.2, lower=True).met is True
    assert pair([1.0], [1.3], 1.2, lower=True).met is False
    assert pair([1.0], [1.0], None).met is None


def test_it_is_found_by_its_flag() -> None:
    root = Path(__file__).resolve().parents[2]
    reported = subprocess.run(
        [sys.executable, "-m", "bench", "--tls", "--help"], cwd=root, capture_output=True, text=True, check=False
    )
    assert reported.returncode == 0, reported.stderr
    assert "--kills" in reported.stdout
