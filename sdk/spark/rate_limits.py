"""The size of a micro-batch: shares of an upper limit, and the minimum for starting one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from quorumlog.sdk.spark.options import StreamOptions
from quorumlog.sdk.spark.planning import Partition


def shares(limit: int, backlog: Mapping[Partition, int]) -> dict[Partition, int]:
    """Returns how many offsets of each partition's backlog to read, ``limit`` in total, in proportion to the backlogs.

    As in Spark's Kafka source a share below one counts as one, so that small partitions do not starve: then the total
    exceeds ``limit``, by at most one per partition.
    """
    waiting = sum(backlog.values())
    if waiting <= limit:
        return dict(backlog)
    taken = {}
    for partition, size in backlog.items():
        share = limit * size // waiting
        taken[partition] = min(size, max(share, 1))
    return taken


@dataclass(frozen=True, slots=True)
class RateLimits:
    """Limits of one call: the highest number of offsets, and the lowest."""

    most: int | None = None
    least: int | None = None


class TriggerDelay:
    """Decides how long a few records wait for more.

    Arguments:
        options: of the query; ``max_delay_ms`` limits the wait.
    """

    def __init__(self, options: StreamOptions) -> None:
        self._max_delay_s = options.max_delay_ms / 1000
        self._last_s = -math.inf

    def due_in_s(self, waiting: int, least: int | None, now_s: float) -> float:
        """Returns how many seconds ``waiting`` offsets may still wait for more; 0 if they must be read now.

        The first micro-batch of a run does not wait, as in Spark's Kafka source.
        """
        if least is None or waiting >= least:
            return 0.0
        return max(0.0, self._last_s + self._max_delay_s - now_s)

    def triggered(self, now_s: float) -> None:
        """Notes that a micro-batch starts."""
        self._last_s = now_s
