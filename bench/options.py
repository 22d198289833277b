"""Options that several benchmarks have."""

from __future__ import annotations

import argparse
from pathlib import Path

#: Within the repository, and so on a real disk: where the system keeps what is temporary may be memory.
WORK_DIR = Path(__file__).resolve().parent.parent / "build" / "bench"


def add_json(parser: argparse.ArgumentParser) -> None:
    """Adds ``--json``, the file that takes every figure."""
    parser.add_argument("--json", type=Path, help="write every figure to this file")


def add_work_dir(parser: argparse.ArgumentParser) -> None:
    """Adds ``--work-dir``, under which the logs go while it is measured."""
    parser.add_argument(
        "--work-dir",
        type=Path,
        default=WORK_DIR,
        help="where the logs go; on a real disk, or fsync means nothing (default %(default)s)",
    )
