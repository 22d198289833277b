"""``python -m quorumlog.simulator.mutate``: plants faults into copies of the packages, and lists the checks that detect
them.

Each mutant of ``mutants/`` is applied to a copy of its own; its checks run there, one after the other, in a child
process with a time limit, until one fails. Afterwards the failed checks run on an unchanged copy, where they must pass.
A mutant that survives is a missing check.

Examples:
    python -m quorumlog.simulator.mutate
    python -m quorumlog.simulator.mutate --only no_noop_at_election
    python -m quorumlog.simulator.mutate --compiled --only no_noop_at_election
    python -m quorumlog.simulator.mutate --list
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from quorumlog.simulator.mutation.checks import Verdict
from quorumlog.simulator.mutation.compiled_copy import NotCompiledError, add_compiled, compile_changed
from quorumlog.simulator.mutation.mutant import (
    CHECKOUT,
    Mutant,
    StalePatchError,
    copy_packages,
    copy_tree,
    load_mutants,
)

#: Time limit of a check; one that exceeds it does not count as a detection (s).
CHECK_TIMEOUT_S = 300.0
_LONGEST_FINDING = 120


class CheckError(Exception):
    """Raised if a check could not be run, so that neither its failure nor its success means anything."""


@dataclass(slots=True, frozen=True)
class MutantResult:
    """Result of one mutant. ``verdict`` is None for a survivor; ``silent``: checks that passed."""

    mutant: Mutant
    verdict: Verdict | None
    silent: tuple[str, ...]
    seconds: float

    def row(self) -> str:
        """Returns a row of the table."""
        verdict = self.verdict
        scenario = str(self.mutant.scenario or "")
        if verdict is None:
            silent = "; ".join(self.silent)
            return f"| {self.mutant.name} | {scenario} | **SURVIVED** {silent} | | | {self.seconds:.1f} |"
        # A test's name states its behaviour; for a seeded check the finding does.
        by = verdict.by.removeprefix("tests/")
        if verdict.seed is not None:
            by += f": {verdict.finding[:_LONGEST_FINDING].replace('|', ' ')}"
        seed = "" if verdict.seed is None else str(verdict.seed)
        taken = "" if verdict.steps is None else str(verdict.steps)
        if verdict.events is not None:
            taken += f" / {verdict.events}"
        return f"| {self.mutant.name} | {scenario} | {by} | {seed} | {taken} | {self.seconds:.1f} |"


#: Number of tests in one check of the unchanged packages.
MOST_TESTS = 100
HEAD = "| mutant | scenario | caught by | seed | steps / events | s |\n|---|---|---|---|---|---|"


class Workshop:
    """Copies of the packages, and checks that run on them.

    Arguments:
        folder: an empty folder for the copies.
        compiled: True to run the modules of ``make compile``, and to recompile the units that a mutant has changed.

    Raises:
        NotCompiledError: the compiled modules do not match the sources.
    """

    def __init__(
        self, folder: Path, checkout: Path = CHECKOUT, timeout_s: float = CHECK_TIMEOUT_S, *, compiled: bool = False
    ) -> None:
        self._folder = folder
        self._checkout = checkout
        self._timeout_s = timeout_s
        self._pristine = folder / "pristine"
        self._compiled = compiled
        copy_packages(self._pristine, checkout)
        if compiled:
            add_compiled(self._pristine, checkout)
        subprocess.run([sys.executable, "-m", "compileall", "-q", str(self._pristine)], check=True)

    def try_mutant(self, mutant: Mutant) -> MutantResult:
        """Plants one fault and runs its checks until one fails.

        Raises:
            StalePatchError: the patch does not fit the source.
            NotCompiledError: the compiler rejects it.
            CheckError: a check could not be run.
        """
        began = time.monotonic()
        tree = self._folder / mutant.name
        copy_tree(self._pristine, tree)
        mutant.apply(tree)
        if self._compiled:
            compile_changed(mutant, tree, self._checkout)
        silent: list[str] = []
        for check in mutant.checks:
            verdict = self.run(check, tree, mutant.modules)
            if verdict is not None and verdict.finding:
                return MutantResult(mutant, verdict, tuple(silent), time.monotonic() - began)
            silent.append(check if verdict is not None else f"{check} (no end in {self._timeout_s:.0f} s)")
        return MutantResult(mutant, None, tuple(silent), time.monotonic() - began)

    def check_pristine(self, verdicts: Iterable[Verdict]) -> list[str]:
        """Runs the failed checks on an unchanged copy; returns their failures there."""
        found = list(verdicts)
        checks = []
        for kind in ("simulation", "groups", "rights", "machines", "transactions", "clients", "storms"):
            seeds = sorted({verdict.seed for verdict in found if verdict.by == kind and verdict.seed is not None})
            if seeds:
                checks.append(f"{kind} {','.join(map(str, seeds))}")
        tests = sorted({verdict.by for verdict in found if verdict.seed is None})
        # The system limits the length of an argument, and a check has a time limit.
        checks += ["\n".join(tests[first : first + MOST_TESTS]) for first in range(0, len(tests), MOST_TESTS)]
        problems = []
        for check in checks:
            verdict = self.run(check, self._pristine, [])
            if verdict is None or verdict.finding:
                problems.append(f"{check}: {verdict.finding if verdict is not None else 'no end'}")
        return problems

    def run(self, check: str, tree: Path, modules: list[str]) -> Verdict | None:
        """Runs a check on a copy; returns None if it exceeds its time limit.

        Raises:
            CheckError: it could not be run.
        """
        command = [sys.executable, "-m", "quorumlog.simulator.mutation.checks", check, "--tree", str(tree)]
        command += ["--checkout", str(self._checkout), "--modules", *modules]
        # Before the installed distribution on the path, however that is installed; the child verifies it.
        environment = {**os.environ, "PYTHONPATH": str(tree), "HYPOTHESIS_STORAGE_DIRECTORY": str(tree / "hypothesis")}
        child = subprocess.Popen(
            command,
            cwd=self._checkout,
            env=environment,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            output, _ = child.communicate(timeout=self._timeout_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if child.returncode is None:
                # A test may have children of its own.
                os.killpg(child.pid, signal.SIGKILL)
                child.communicate()
        if child.returncode != 0:
            raise CheckError(f"{check} on {tree.name} failed: {output[-2_000:]}")
        return Verdict.last_in(output)


def try_all(mutants: list[Mutant], workshop: Workshop, jobs: int) -> Iterator[MutantResult]:
    """Yields results in the order of the mutants."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(workshop.try_mutant, mutants)


def main(arguments: list[str] | None = None) -> int:
    """Runs the requested mutants; returns 0 if none survived."""
    parser = argparse.ArgumentParser(prog="python -m quorumlog.simulator.mutate", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="mutants to try")
    parser.add_argument("--list", action="store_true", help="list the mutants, and run nothing")
    parser.add_argument("--jobs", type=int, default=1, help="number of parallel mutants (default 1)")
    parser.add_argument("--compiled", action="store_true", help="use the modules of make compile; requires --only")
    parser.add_argument("--json", type=Path, help="file to write the results to, too")
    chosen = parser.parse_args(arguments)
    if chosen.compiled and not chosen.only:
        parser.error("--compiled compiles each mutant, which takes long: select some with --only")
    mutants = load_mutants()
    if chosen.only:
        unknown = sorted(set(chosen.only) - {mutant.name for mutant in mutants})
        if unknown:
            parser.error(f"no such mutant: {', '.join(unknown)}; --list shows what there is")
        mutants = [mutant for mutant in mutants if mutant.name in chosen.only]
    if chosen.list:
        for mutant in mutants:
            print(f"{mutant.name} (scenario {mutant.scenario or '-'}): {mutant.story}\n    {'; '.join(mutant.checks)}")
        return 0
    if not (CHECKOUT / "tests").is_dir():
        parser.error(f"the mutants are tried with the tests of a source checkout; {CHECKOUT} is not one")
    try:
        return _try(mutants, chosen.jobs, chosen.json, compiled=chosen.compiled)
    except (StalePatchError, NotCompiledError, CheckError) as problem:
        print(problem, file=sys.stderr)
        return 2


def _try(mutants: list[Mutant], jobs: int, json_path: Path | None, *, compiled: bool) -> int:
    began = time.monotonic()
    outcomes: list[MutantResult] = []
    with tempfile.TemporaryDirectory(prefix="quorumlog-mutants-") as folder:
        workshop = Workshop(Path(folder), compiled=compiled)
        print(HEAD, flush=True)
        for outcome in try_all(mutants, workshop, jobs):
            outcomes.append(outcome)
            print(outcome.row(), flush=True)
        caught = [outcome.verdict for outcome in outcomes if outcome.verdict is not None]
        problems = workshop.check_pristine(caught)
    if json_path is not None:
        json_path.write_text(json.dumps([_as_json(outcome) for outcome in outcomes], indent=1) + "\n")
    print(f"\nmutation score {len(caught)}/{len(outcomes)} in {time.monotonic() - began:.0f} s")
    for problem in problems:
        print(f"the unchanged packages do not pass either: {problem}")
    if not problems:
        print("what caught them finds nothing in the unchanged packages")
    return 0 if len(caught) == len(outcomes) and not problems else 1


def _as_json(outcome: MutantResult) -> dict[str, object]:
    return {
        "mutant": outcome.mutant.name,
        "scenario": outcome.mutant.scenario,
        "caught": None if outcome.verdict is None else dataclasses.asdict(outcome.verdict),
        "silent": list(outcome.silent),
        "seconds": round(outcome.seconds, 2),
    }


if __name__ == "__main__":
    sys.exit(main())
