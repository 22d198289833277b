"""What a node has from its first step on, and shares with its part in a cluster."""

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
from quorumlog.server.replicas.replica_tombstones import ReplicaTombstones
from quorumlog.server.replicas.retired_directories import RefusedDisks
from quorumlog.server.step.bearer_tokens import TokenKeys
from quorumlog.server.step.events import EventLog, Job
from quorumlog.server.step.replies import Replies
from quorumlog.storage.interface import StorageReader


@dataclass(slots=True, frozen=True)
class NodeResources:
    """What a cluster member shares with its node.

    Arguments:
        directory_id, boot_id: of this node and this process.
        start_job: has work done beside the steps; its end is told by JobDone.
        deliver_early: a Raft group exists now: votes that were asked of it before are to be answered.
        forget_group: a Raft group has no replica here any more.
        former: what is known of replicas that were moved away from here.
        pace: of replicas that are being added elsewhere.
        refused: data directories that were given up as lost.
        token_keys: by which clients' bearer tokens are verified.
        mender, scrub: mend damaged entries, and look for them.
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
    log: EventLog
    start_job: Callable[[Job], None]
    deliver_early: Callable[[int], None]
    forget_group: Callable[[int], None]
    former: ReplicaTombstones
    pace: ReplicationThrottle
    refused: RefusedDisks
    token_keys: TokenKeys
