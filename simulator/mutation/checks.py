"""``python -m quorumlog.simulator.mutation.checks``: runs one check on the packages that are first on the path.

A check is one of

- ``simulation 4..40``: seeds of the simulator; ``groups 4..40``: the same, all of them with consumer groups;
  ``rights 4..40``: with clients that need permission; ``machines 4..40``: with several nodes on each machine;
  ``transactions 4..40``: with transactions;
  ``clients 4..40``: with the SDK's own clients;
- ``storms 0..60``: seeds of the storms over the bare core (``tests/raft/test_raft_storms.py``);
- a test, or several, as pytest names them: ``tests/storage/test_model.py``.

Seeds may also be a list, ``4,16,20..30``. The first finding ends it. A line of the output is a ``Verdict``.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

_SEEDED = re.compile(r"(simulation|groups|rights|machines|transactions|clients|storms) ([\d.,]+)")
_LONGEST_FINDING = 300


@dataclass(slots=True, frozen=True)
class Verdict:
    """Result of a check. ``finding`` is empty if it passed.

    Arguments:
        by: the seeded check, or the test.
        steps: steps of nodes (or of the storm) until the finding.
        events: events of the simulation until then.
    """

    finding: str = ""
    by: str = ""
    seed: int | None = None
    steps: int | None = None
    events: int | None = None

    @classmethod
    def last_in(cls, output: str) -> Verdict:
        """Returns the last verdict in a check's output. After it the interpreter may print complaints about leftovers
        of a fault, such as tasks.

        Raises:
            ValueError: none exists.
        """
        lines = [line for line in output.splitlines() if line.startswith('{"finding": ')]
        if not lines:
            raise ValueError(f"the check printed no verdict: {output[-2_000:]}")
        return cls(**json.loads(lines[-1]))


class _Storm(Protocol):
    taken: int

    def run(self) -> None: ...


def seeds_of(text: str) -> Iterator[int]:
    """Yields the seeds in ``4,16,20..30``; ranges include both ends."""
    for part in text.split(","):
        first, _, last = part.partition("..")
        yield from range(int(first), int(last or first) + 1)


def seeded(check: str) -> tuple[str, str] | None:
    """Returns kind and seeds of a seeded check; None for tests."""
    match = _SEEDED.fullmatch(check)
    return (match[1], match[2]) if match is not None else None


def run_check(check: str, checkout: Path) -> Verdict:
    """Runs a check to its first finding, with the tests of ``checkout``."""
    parts = seeded(check)
    if parts is None:
        return _run_tests(check.split("\n"), checkout)
    kind, seeds = parts
    return _storm(seeds, checkout) if kind == "storms" else _simulate(kind, seeds)


def _simulate(kind: str, seeds: str) -> Verdict:
    from quorumlog.simulator.seeds.story import Story, run_story

    story = next((story for story in Story if kind == story.value.lstrip(" -")), Story.NODES)
    for seed in seeds_of(seeds):
        result = run_story(seed, story)
        if result.violation is not None:
            return Verdict(result.violation, kind, seed, result.steps, result.events)
    return Verdict()


def _storm(seeds: str, checkout: Path) -> Verdict:
    sys.path[:0] = [str(checkout / "tests" / folder) for folder in ("raft", "support")]
    storms = importlib.import_module("test_raft_storms")
    for seed in seeds_of(seeds):
        storm: _Storm | None = None
        try:
            storm = storms.Storm(seed)
            storm.run()
        except Exception as error:  # any exception of the core is a finding, with its seed
            taken = storm.taken if storm is not None else 0
            return Verdict(f"{type(error).__name__}: {error}", "storms", seed, taken)
    return Verdict()


class _FirstFailure:
    """A pytest plugin that keeps the first failure."""

    def __init__(self) -> None:
        self.verdict = Verdict()

    def pytest_runtest_logreport(self, report: object) -> None:
        import pytest

        if isinstance(report, pytest.TestReport) and report.failed and not self.verdict.finding:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.verdict = Verdict(str(crash.message if crash is not None else report.longrepr), report.nodeid)


def _run_tests(tests: list[str], checkout: Path) -> Verdict:
    import pytest

    plain = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=0", f"--rootdir={checkout}"]
    first = _FirstFailure()
    status = pytest.main([*plain, *tests], plugins=[first])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) or bool(status) != bool(first.verdict.finding):
        raise RuntimeError(f"pytest {' '.join(tests)} ended with {status!r}: name tests that exist")
    return first.verdict


def check_origin(tree: Path, modules: list[str]) -> None:
    """Verifies that the copy was checked: a mutant that was never loaded would survive every check.

    Raises:
        RuntimeError: one of ``modules`` was not loaded, or a module of ours came from elsewhere.
    """
    missing = [name for name in modules if name not in sys.modules]
    if missing:
        raise RuntimeError(f"the check does not load {', '.join(missing)}")
    for name, module in sorted(sys.modules.items()):
        place = getattr(module, "__file__", None)
        if name.startswith("quorumlog.") and place is not None and not Path(place).is_relative_to(tree):
            raise RuntimeError(f"{name} was loaded from {place} and not from the copy in {tree}")


def main() -> int:
    """Runs the check named by the command line; returns 0 if it was completed, whatever its result."""
    parser = argparse.ArgumentParser(prog="python -m quorumlog.simulator.mutation.checks")
    parser.add_argument("check")
    parser.add_argument("--tree", type=Path, required=True, help="directory from which all of quorumlog must be loaded")
    parser.add_argument("--checkout", type=Path, required=True, help="checkout with the tests to run")
    parser.add_argument("--modules", nargs="*", default=[], help="modules that must have been loaded")
    chosen = parser.parse_args()
    verdict = run_check(chosen.check, chosen.checkout)
    check_origin(chosen.tree, chosen.modules)
    finding = " ".join(verdict.finding.split())[:_LONGEST_FINDING]
    print("\n" + json.dumps(dataclasses.asdict(dataclasses.replace(verdict, finding=finding))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
