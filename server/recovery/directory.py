"""Data directory of a stopped node, for surveys and for applying a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.server.recovery.application import application, is_applied
from quorumlog.server.recovery.plan import RecoveryPlan
from quorumlog.server.recovery.survey import RecoveryError, Survey, survey
from quorumlog.storage.crash_marker import check_all_pages, last_words
from quorumlog.storage.environment import DirectoryLock
from quorumlog.storage.interface import ScrubPosition
from quorumlog.storage.meta_pages import DATA_FILE
from quorumlog.storage.recheck_list import are_pages_suspect
from quorumlog.storage.storage import Storage

#: Bytes per read when a whole directory is scanned.
_SLICE_BYTES = 8 << 20


@contextmanager
def opened(data_dir: Path) -> Iterator[Storage]:
    """Opens a stopped node's storage, and holds its lock.

    Raises:
        RecoveryError: the directory has none.
        StorageEngineError: a node is running on it, or it cannot be used.
    """
    if not (data_dir / DATA_FILE).is_file():
        raise RecoveryError(f"{data_dir} has no {DATA_FILE}: specify the data directory of a node")
    if last_words(data_dir) or are_pages_suspect(data_dir):
        # As a node does before it opens storage in which its previous process found damage.
        lock = DirectoryLock(data_dir, create=True)
        try:
            check_all_pages(data_dir)
        finally:
            lock.close()
    with Storage(data_dir, reserve_bytes=0, may_set_aside=lambda group: group != METADATA_GROUP) as storage:
        yield storage


def survey_directory(data_dir: Path) -> Survey:
    """Surveys a directory. Reads all of it.

    Raises:
        RecoveryError: no cluster can continue with it.
        StorageEngineError: a node is running on it, or it cannot be used.
    """
    damaged = _read_all(data_dir)
    with opened(data_dir) as storage:
        try:
            return survey(storage, damaged)
        except RecoveryError as problem:
            raise RecoveryError(f"{data_dir}: {problem}") from None


def _read_all(data_dir: Path) -> Counter[int]:
    """Returns the number of unreadable entries of each Raft group.

    Other damage to a replica is recorded in the directory, and sets that replica aside at the next opening.

    Raises:
        DamageError: pages are damaged, and it is unknown what they held.
    """
    places: set[tuple[int, int]] = set()
    position: ScrubPosition | None = ScrubPosition()
    with opened(data_dir) as storage:
        while position is not None:
            position, _, found = storage.scrub(position, _SLICE_BYTES)
            for damage in found:
                if damage.group is None:
                    raise damage
                if damage.index is not None:
                    places.add((damage.group, damage.index))
    return Counter(group for group, _ in places)


def apply_plan(plan: RecoveryPlan, data_dir: Path) -> bool:
    """Makes a directory part of the recovered cluster. If interrupted, it has no effect and can be repeated.

    Returns:
        False if the plan was applied already.

    Raises:
        RecoveryError: the plan does not fit this directory in its current state.
        StorageEngineError: a node is running on it, or it cannot be used.
    """
    damaged = _read_all(data_dir)
    with opened(data_dir) as storage:
        try:
            found = survey(storage, damaged)
            if is_applied(plan, found):
                return False
            storage.commit(application(plan, found, storage))
        except RecoveryError as problem:
            raise RecoveryError(f"{data_dir}: {problem}") from None
    return True
