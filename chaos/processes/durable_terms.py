"""The terms that a running node has on its disk: asked of the disk itself, for no link need lead to the node.

A voter that is cut off asks for pre-votes, gets none, and must leave its term as it is (thesis §9.6). If it campaigned
all the same, its term would grow with each election timeout, and depose every leader as soon as somebody heard of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import lmdb

from quorumlog.chaos.processes.nemesis import ChaosError
from quorumlog.storage import rows
from quorumlog.storage.environment import LMDB_ENGINE, MAX_DATABASES


def durable_terms(data_dir: Path) -> dict[int, int]:
    """Group -> term, as of the newest transaction of the node whose data these are. A node is not held up by that.

    Raises:
        RowError: a row is damaged.
    """
    found = {}
    with lmdb.open(str(data_dir), readonly=True, max_dbs=MAX_DATABASES, lib_version=LMDB_ENGINE) as engine:
        database = engine.open_db(rows.HARD_STATES, create=False)
        with engine.begin(db=database) as transaction, transaction.cursor() as states:
            for key, row in states:
                found[rows.group_of(key)] = rows.unpack_hard_state(rows.open_row(rows.HARD_STATES, key, row)).term
    return found


def require_no_campaign(node: int, before: Mapping[int, int], now: Mapping[int, int]) -> None:
    """Looks whether a node has kept its terms while it was cut off.

    Raises:
        ChaosError: it has raised one.
    """
    raised = [f"of group {group} from {term} to {now[group]}" for group, term in before.items() if now[group] > term]
    if raised:
        raise ChaosError(f"node {node}, cut off, raised its term without a majority's pre-votes: {', '.join(raised)}")
