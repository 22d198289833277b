"""The log of a worker that makes transfers: one JSON object per line, written before the worker continues.

Any client can be a worker. It gets a `WorkerPlan` as its one argument, as JSON, and writes these lines:

- ``{"event": "started"}``: it has initialized its producer.
- ``{"event": "begun", "attempt": A, "ns": T, "transfers": [N, ...]}``: before the first record of a transaction.
- ``{"event": "committed", "attempt": A, "ns": T}``, ``"aborted"`` or ``"unknown"``: the outcome that it received.
- ``{"event": "note", "message": TEXT}``: an error after which it continues.

It exits with 0 after SIGTERM, and with `FENCED_STATUS` if another worker has taken over its transactional id. ``ns``
is the machine's monotonic clock, which all processes share. ``attempt`` is unique in a run.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from quorumlog.chaos.checkers.transfer_checkers import Attempt, TransactionOutcome

#: Exit status of a worker after another one has taken over its transactional id.
FENCED_STATUS = 3


@dataclass(slots=True, frozen=True)
class WorkerPlan:
    """Configuration of a worker.

    Arguments:
        name: of the process; attempts start with it.
        transactional_id: of its producer. A worker that replaces another one has the same.
        options: connection settings of the client.
        requests, accounts: topics. Account ``n`` is in partition ``n % partitions``.
        group: consumer group of all workers.
        log: its file.
        batch: maximum number of transfers in one transaction.
        abort_share: share of the transactions that it aborts on purpose.
    """

    name: str
    transactional_id: str
    options: dict[str, Any]
    requests: str
    accounts: str
    partitions: int
    group: str
    log: str
    batch: int
    abort_share: float
    session_timeout_ms: int
    transaction_timeout_ms: int

    def as_argument(self) -> str:
        """Returns the plan as an argument of the process."""
        return json.dumps(asdict(self))


@dataclass(slots=True)
class WorkerLife:
    """Transactions of one worker, as far as it could log them."""

    has_started: bool = False
    attempts: list[Attempt] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class WorkerLog:
    """The log, as a worker writes it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)

    def started(self) -> None:
        """Logs that the producer is initialized."""
        self._write({"event": "started"})

    def begun(self, attempt: str, transfers: Sequence[int]) -> None:
        """Logs a transaction before its first record."""
        self._write({"event": "begun", "attempt": attempt, "ns": time.monotonic_ns(), "transfers": list(transfers)})

    def ended(self, attempt: str, outcome: TransactionOutcome) -> None:
        """Logs the outcome of a transaction."""
        self._write({"event": outcome.value, "attempt": attempt, "ns": time.monotonic_ns()})

    def note(self, message: str) -> None:
        """Logs an error after which the worker continues."""
        self._write({"event": "note", "message": message})

    def _write(self, line: dict[str, Any]) -> None:
        # One call: a worker that is killed leaves whole lines, except perhaps for the last one.
        os.write(self._file, json.dumps(line).encode() + b"\n")


def read_log(path: Path) -> WorkerLife:
    """Returns what a worker has logged so far."""
    life = WorkerLife()
    by_name: dict[str, Attempt] = {}
    for line in _whole_lines(path):
        match line["event"]:
            case "started":
                life.has_started = True
            case "begun":
                attempt = Attempt(line["attempt"], path.stem, line["ns"], line["transfers"])
                by_name[attempt.name] = attempt
                life.attempts.append(attempt)
            case "note":
                life.notes.append(line["message"])
            case outcome:
                by_name[line["attempt"]].outcome = TransactionOutcome(outcome)
                by_name[line["attempt"]].ended_ns = line["ns"]
    return life


def _whole_lines(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    *lines, _torn = path.read_bytes().split(b"\n")
    for line in lines:
        yield json.loads(line)
