"""One measurement in a process of its own: ``python -m bench.job '{"job": …}'`` prints its figures as JSON."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import uvloop

from bench.figures import Figures
from bench.process_cost import processor_time

_ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 180.0


class JobError(Exception):
    """Raised if a measurement fails; the message is the last line of its process."""


def run_job(name: str, packages: Path | None = None, servers: Iterable[int] = (), **arguments: object) -> Figures:
    """Runs one measurement in a new process.

    Arguments:
        packages: directory of the client's code; None for the installed one.
        servers: process ids of its servers, whose load is measured from the client's start.

    Raises:
        JobError: it failed.
    """
    job = json.dumps({"job": name, **arguments})
    environment = dict(os.environ) if packages is None else {**os.environ, "PYTHONPATH": str(packages)}
    pids = list(servers)
    program, kernel = processor_time(pids)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "bench.job", job],
            cwd=_ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise JobError(f"{name} did not end within {TIMEOUT_S:.0f} s") from None
    if ended.returncode != 0:
        said = ended.stderr.strip().splitlines() or ["nothing"]
        raise JobError(f"{name} failed: {said[-1]}")
    figures = Figures(**json.loads(ended.stdout.splitlines()[-1]))
    if not pids:
        return figures
    program_after, kernel_after = processor_time(pids)
    return dataclasses.replace(figures, program_s=program_after - program, kernel_s=kernel_after - kernel)


def _bare_produce(**arguments: Any) -> Figures:
    from bench import bare_client

    return uvloop.run(bare_client.produce(**arguments))


def _bare_read(**arguments: Any) -> Figures:
    from bench import bare_client

    return uvloop.run(bare_client.read(**arguments))


def _raw_produce(**arguments: Any) -> Figures:
    from bench import raw_client

    return uvloop.run(raw_client.produce(**arguments))


def _sdk(function: str) -> Callable[..., Figures]:
    def call(**arguments: Any) -> Figures:
        from bench import sdk_client

        figures: Figures = getattr(sdk_client, function)(**arguments)
        return figures

    return call


JOBS: dict[str, Callable[..., Figures]] = {
    "bare-produce": _bare_produce,
    "bare-read": _bare_read,
    "raw-produce": _raw_produce,
    "produce-records": _sdk("produce_records"),
    "produce-arrow": _sdk("produce_arrow"),
    "produce-singly": _sdk("produce_singly"),
    "consume": _sdk("consume"),
}


def main() -> None:
    """Runs the job given as JSON."""
    arguments = json.loads(sys.argv[1])
    try:
        figures = JOBS[arguments.pop("job")](**arguments)
    except Exception as problem:
        traceback.print_exc()
        print(f"{type(problem).__name__}: {' '.join(str(problem).split())}", file=sys.stderr)
        sys.exit(1)
    print(json.dumps(dataclasses.asdict(figures)))


if __name__ == "__main__":
    main()
