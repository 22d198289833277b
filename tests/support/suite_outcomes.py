"""Failures in a client's own test suite: those that are unexpected, and the reasons of those that are known."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

_EXPECTED = Path(__file__).resolve().parent.parent / "kafka_clients" / "expected_failures.toml"


def judge(suite: str, against: str, outcomes: Mapping[str, str]) -> None:
    """Fails if a test failed that is not expected to; prints how many did what.

    Arguments:
        suite: the client whose it is.
        against: ``quorumlog`` or ``apache``.
        outcomes: of each test: passed, failed or skipped.
    """
    expected: dict[str, str] = tomllib.loads(_EXPECTED.read_text())[against][suite]
    counts = Counter(outcomes.values())
    failed = {test for test, outcome in outcomes.items() if outcome == "failed"}
    # Of a test that never ends, another part is under way each time: a part fails for the reason of the whole.
    expected = {**{test: expected[_whole(test)] for test in failed if _whole(test) in expected}, **expected}
    print(f"{suite} against {against}: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
    for test in sorted(failed & expected.keys()):
        print(f"  failed as expected: {test}: {expected[test]}")
    for test in sorted(expected.keys() - failed):
        print(f"  did not fail, by luck or for good: {test}: {expected[test]}")
    unexpected = sorted(failed - expected.keys())
    assert not unexpected, f"these failed besides: {', '.join(unexpected)}"
    assert counts["passed"] > 0


def _whole(test: str) -> str:
    """The test of which this is a part, as Go names them."""
    return test.split("/", maxsplit=1)[0]
