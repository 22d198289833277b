"""What every replicated state machine of a topic's partition has in common, whatever it makes of its log.

A partition of most topics is a log of records (`partition/partition.py`); one of the internal topic of consumer groups
is a coordinator (`coordinator/coordinator.py`). The cluster places, leads, reports, moves and removes both alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from quorumlog.raft.group import RaftGroup
from quorumlog.raft.types import Snapshot
from quorumlog.server.hosting.raft_host import StateMachine
from quorumlog.v1 import errors_pb2


class PartitionId(NamedTuple):
    """A partition, as clients name it."""

    topic_id: bytes
    topic: str
    number: int


class PartitionReplica(StateMachine, Protocol):
    """A replica of a partition on this node.

    Attributes:
        group: its Raft group.
        snapshot: the newest durable one, for followers that need what it replaces.
    """

    identity: PartitionId
    group: int
    raft: RaftGroup
    snapshot: Snapshot | None

    @property
    def leads(self) -> bool:
        """True while this replica leads and has what a leader needs."""

    @property
    def name(self) -> str:
        """topic-number."""

    def configure(self, configs: Mapping[str, str]) -> None:
        """The topic's configuration, only what was set on it, holds from now on."""

    def not_leader(self) -> errors_pb2.Error:
        """The error for a request that only the leader can serve."""
