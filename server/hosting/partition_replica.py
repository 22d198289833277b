"""Interface of all replicated state machines of partitions.

A partition of most topics is a log of records (`partition/partition.py`); a partition of the internal topic of consumer
groups is a coordinator (`groups/group_shard.py`). The cluster places, leads, reports, moves and removes both in the
same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from quorumlog.raft.group import RaftGroup
from quorumlog.raft.types import Snapshot
from quorumlog.server.hosting.raft_host import StateMachine
from quorumlog.v1 import errors_pb2


class PartitionId(NamedTuple):
    """The identity of a partition, as clients name it."""

    topic_id: bytes
    topic: str
    number: int


class PartitionReplica(StateMachine, Protocol):
    """A replica of a partition on this node.

    Attributes:
        group: the partition's Raft group.
        snapshot: the newest durable snapshot, for followers that need entries that it replaces.
    """

    identity: PartitionId
    group: int
    raft: RaftGroup
    snapshot: Snapshot | None

    @property
    def leads(self) -> bool:
        """True while this replica leads and has the state that a leader needs."""

    @property
    def name(self) -> str:
        """The partition's name, topic-number."""

    def configure(self, configs: Mapping[str, str]) -> None:
        """Applies the topic's configuration, which contains only the keys set on the topic, from now on."""

    def not_leader(self) -> errors_pb2.Error:
        """Returns the error for a request that only the leader can serve."""
