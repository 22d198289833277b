"""Resources of a node that exist from its first step, and are shared with its cluster member; the log of its steps."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from quorumlog.server.config.options import NodeOptions
from quorumlog.server.hosting.entry_repair import EntryRepair
from quorumlog.server.hosting.peer_queues import PeerQueues
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.hosting.replication_throttle import ReplicationThrottle
from quorumlog.server.hosting.snapshots import Snapshots
from quorumlog.server.node.scrub import Scrub
from quorumlog.server.node.space_watch import SpaceWatch
from quorumlog.server.observability.log_levels import LogLevels
from quorumlog.server.replicas.replica_tombstones import ReplicaTombstones
from quorumlog.server.replicas.retired_directories import RefusedDisks
from quorumlog.server.step.bearer_tokens import TokenKeys
from quorumlog.server.step.events import Job, LogLevel, LogLine
from quorumlog.server.step.replies import Replies
from quorumlog.storage.interface import StorageReader


class StepLog:
    """Adds lines to the effects of a step.

    Arguments:
        levels: the levels of all loggers; lines of a level that is not written may be added nevertheless.
        add: called with each line.
        logger: the package that writes, such as ``server.partition``.

    Attributes:
        levels: the same.
        debugs: True if lines of the level debug are written: their fields should not be computed otherwise.
    """

    @classmethod
    def of_node(cls, level: str, add: Callable[[LogLine], None]) -> StepLog:
        """Returns the log of a node with this level for all packages."""
        return cls(LogLevels(level), add, "server.node")

    def __init__(self, levels: LogLevels, add: Callable[[LogLine], None], logger: str) -> None:
        self.levels = levels
        self._add = add
        self._logger = logger
        self._levels_changed()
        levels.watch(self._levels_changed)

    def __call__(self, level: LogLevel, event: str, **fields: object) -> None:
        self._add(LogLine(level, event, fields, self._logger))

    def named(self, logger: str) -> StepLog:
        """Returns the log of another package."""
        return StepLog(self.levels, self._add, logger)

    def _levels_changed(self) -> None:
        # Read in every step, and changed by an operator.
        self.debugs = self.levels.writes(self._logger, "debug")


@dataclass(slots=True, frozen=True)
class NodeResources:
    """The resources that a cluster member shares with its node.

    Arguments:
        directory_id, boot_id: ids of the data directory and of this process.
        log: the log of the steps.
        start_job: runs a task beside the steps; JobDone reports its end.
        deliver_early: called when a Raft group is created: handles votes requested before.
        forget_group: called when a Raft group no longer has a replica here.
        former: tombstones of replicas that were moved away from here.
        pace: throttle for copies of replicas that are being added on other nodes.
        refused: data directories that were given up as lost.
        token_keys: verify clients' bearer tokens.
        mender, scrub: repair damaged entries, and search for them.
    """

    options: NodeOptions
    directory_id: str
    boot_id: int
    host: RaftHost
    links: PeerQueues
    space: SpaceWatch
    snapshots: Snapshots
    mender: EntryRepair
    scrub: Scrub
    storage: StorageReader
    rng: random.Random
    replies: Replies
    log: StepLog
    start_job: Callable[[Job], None]
    deliver_early: Callable[[int], None]
    forget_group: Callable[[int], None]
    former: ReplicaTombstones
    pace: ReplicationThrottle
    refused: RefusedDisks
    token_keys: TokenKeys
