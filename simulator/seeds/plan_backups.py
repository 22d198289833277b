"""The decisions of a seed with the shipped clients for backups: their number, and how they are taken and restored."""

from __future__ import annotations

import random
from typing import NamedTuple

from quorumlog.sdk.backup.sizes import BackupSizes
from quorumlog.simulator.clients.backup_load import BackupHabits

SECOND = 1_000_000


class BackupPlan(NamedTuple):
    """A seed's backups.

    Arguments:
        habits: workload of backups.
        restores: number of restorations of the last one into the fresh cluster.
        restore_us: time with faults there.
    """

    habits: BackupHabits
    restores: int
    restore_us: int


def draw_backups(rng: random.Random) -> BackupPlan | None:
    """Draws the backups of a seed; returns None for two of three seeds."""
    if rng.random() < 2 / 3:
        return None
    sizes = BackupSizes(
        segment_bytes=rng.choice((300, 3_000, 32 << 20)),
        fetch_bytes=rng.choice((500, 5_000, 8 << 20)),
        step_bytes=rng.choice((300, 3_000, 4 << 20)),
        step_producers=rng.choice((1, 1_000)),
    )
    habits = BackupHabits(
        wanted=rng.choice((1, 2, 2, 5)),
        limit_s=rng.choice((0.3, 1.0, 5.0)),
        interval_s=rng.choice(((0.01, 0.1), (0.1, 0.8))),
        failing=rng.choice((0.0, 0.0, 0.02, 0.1)),
        sizes=sizes,
    )
    return BackupPlan(habits, rng.choice((1, 1, 2)), rng.randint(SECOND // 5, 3 * SECOND))
