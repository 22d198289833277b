"""The data directory of a stopped node, for surveys and applications."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.server.recovery.application import application, is_applied
from quorumlog.server.recovery.plan import RecoveryPlan
from quorumlog.server.recovery.survey import RecoveryError, Survey, survey
from quorumlog.storage.meta_pages import DATA_FILE
from quorumlog.storage.storage import Storage


@contextmanager
def opened(data_dir: Path) -> Iterator[Storage]:
    """Opens a stopped node's storage, and holds its lock.

    Raises:
        RecoveryError: there is none.
        StorageEngineError: a node is running on it, or it cannot be used.
    """
    if not (data_dir / DATA_FILE).is_file():
        raise RecoveryError(f"there is no {DATA_FILE} in {data_dir}: give a node's data directory")
    with Storage(data_dir, reserve_bytes=0, may_set_aside=lambda group: group != METADATA_GROUP) as storage:
        yield storage


def survey_directory(data_dir: Path) -> Survey:
    """What a directory holds.

    Raises:
        RecoveryError: nobody can go on with it.
        StorageEngineError: a node is running on it, or it cannot be used.
    """
    with opened(data_dir) as storage:
        try:
            return survey(storage)
        except RecoveryError as problem:
            raise RecoveryError(f"{data_dir}: {problem}") from None


def apply_plan(plan: RecoveryPlan, data_dir: Path) -> bool:
    """Makes a directory part of the recovered cluster. Broken off, it has done nothing, and is repeated.

    Returns:
        False where that has been done before.

    Raises:
        RecoveryError: the plan is not for this directory as it is.
        StorageEngineError: a node is running on it, or it cannot be used.
    """
    with opened(data_dir) as storage:
        try:
            found = survey(storage)
            if is_applied(plan, found):
                return False
            storage.commit(application(plan, found, storage))
        except RecoveryError as problem:
            raise RecoveryError(f"{data_dir}: {problem}") from None
    return True
