"""A cluster as the console's clients report it, with answers that the test sets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field, replace

from quorumlog.sdk import (
    BrokerDescription,
    ClusterChange,
    ClusterDescription,
    GroupDescription,
    GroupListing,
    GroupState,
    MemberDescription,
    NodeDescription,
    OffsetAndMetadata,
    PartitionDescription,
    PartitionReassignment,
    QuorumDescription,
    QuorumlogError,
    QuorumReplicaDescription,
    ReplicaCopy,
    TopicDescription,
    TopicPartition,
    TransactionDescription,
    TransactionListing,
    TransactionPlace,
    TransactionState,
)
from quorumlog.sdk.errors import NetworkError, UnsupportedVersionError
from quorumlog.wire.topic_names import is_internal


def broker(node_id: int, *, fenced: bool = False, epoch: int = 1) -> BrokerDescription:
    """A node that listens at port 9000 and its id."""
    return BrokerDescription(node_id, "127.0.0.1", 9000 + node_id, None, fenced, epoch, "0.1.0")


def cluster(*brokers: BrokerDescription, age_ms: int | None = 0, cluster_id: str = "c") -> ClusterDescription:
    """Returns a node's description of all nodes."""
    return ClusterDescription(cluster_id, 1, brokers or tuple(broker(number) for number in (1, 2, 3)), age_ms)


def partition(number: int = 0, leader: int | None = 1, epoch: int = 1, changes: int = 1) -> PartitionDescription:
    """A partition on nodes 1, 2 and 3; ``changes`` is its partition epoch."""
    return PartitionDescription(number, leader, epoch, (1, 2, 3), (1, 2, 3), changes, 10 + number)


def topic(name: str, *partitions: PartitionDescription, topic_id: str = "") -> TopicDescription:
    """A topic; its id is its name unless given."""
    return TopicDescription(name, topic_id or f"id-of-{name}", partitions or (partition(),), {}, is_internal(name))


def group(group_id: str, assignment: Iterable[TopicPartition] = ()) -> GroupDescription:
    """A group of one member, which has all of the assignment."""
    member = MemberDescription(
        f"{group_id}-1", None, None, "reader", "here", 1, ("orders",), None, tuple(assignment), tuple(assignment), True
    )
    return GroupDescription(group_id, GroupState.STABLE, 1, 1, "uniform", (member,), 2)


def transaction(
    name: str,
    state: TransactionState = TransactionState.ONGOING,
    *partitions: TopicPartition,
    started_ms: int | None = 1_000,
    missing: bool = False,
) -> TransactionDescription:
    """A transactional id; one with an open transaction has a place."""
    is_open = state is TransactionState.ONGOING
    return TransactionDescription(
        transactional_id=name,
        state=state,
        producer_id=2**53 + 1,
        producer_epoch=3,
        transaction_timeout_ms=60_000,
        started_ms=started_ms if is_open else None,
        place=TransactionPlace(4, 2**53 + 1) if is_open else None,
        cause=None if is_open else "producer",
        writers=1,
        partitions=dict.fromkeys(partitions, missing),
        groups={},
        coordinator=2,
    )


@dataclass
class StableOffsets:
    """A consumer of committed records: the last stable offset of each partition, or an error."""

    stable: dict[TopicPartition, int | QuorumlogError] = field(default_factory=dict)
    asked: list[list[TopicPartition]] = field(default_factory=list)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        wanted = list(partitions)
        self.asked.append(wanted)
        found: dict[TopicPartition, int] = {}
        for tp in wanted:
            at = self.stable.get(tp, 0)
            if isinstance(at, QuorumlogError):
                raise at
            found[tp] = at
        return found


@dataclass
class ScriptedClients:
    """The admin client and the consumer of a console. What is an exception is raised.

    Attributes:
        asked: names of the calls, in their order; ``end_offsets`` with its partitions.
    """

    cluster: ClusterDescription = field(default_factory=cluster)
    topics: list[TopicDescription] = field(default_factory=lambda: [topic("orders")])
    #: What a linearizable request shows; None: the same, an exception: it fails.
    committed_topics: list[TopicDescription] | QuorumlogError | None = None
    silent: dict[int, QuorumlogError] = field(default_factory=dict)
    #: By node, how many of the next requests break off with their connection.
    breaks: dict[int, int] = field(default_factory=dict)
    groups: dict[str, GroupDescription] = field(default_factory=dict)
    committed: dict[str, dict[TopicPartition, OffsetAndMetadata]] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    moves: dict[TopicPartition, PartitionReassignment] = field(default_factory=dict)
    copies: list[ReplicaCopy] = field(default_factory=list)
    transactions: dict[str, TransactionDescription] = field(default_factory=dict)
    failure: QuorumlogError | None = None
    #: By address, a node's own report; it ends with an error if it contains one. A node without one is of an
    #: older version.
    told: dict[str, asyncio.Queue[ClusterChange | QuorumlogError]] = field(default_factory=dict)
    asked: list[tuple[str, object]] = field(default_factory=list)

    def _note(self, call: str, about: object = None) -> None:
        self.asked.append((call, about))
        if self.failure is not None:
            raise self.failure

    def calls(self, name: str) -> list[object]:
        """Returns the arguments of all calls of one kind."""
        return [about for call, about in self.asked if call == name]

    async def describe_cluster(self) -> ClusterDescription:
        self._note("describe_cluster")
        return self.cluster

    async def describe_topics(self, *, include_internal: bool, linearizable: bool = False) -> list[TopicDescription]:
        self._note("list_committed_topics" if linearizable else "describe_topics")
        if linearizable and self.committed_topics is not None:
            if isinstance(self.committed_topics, QuorumlogError):
                raise self.committed_topics
            return list(self.committed_topics)
        return list(self.topics)

    async def describe_node(self, address: str) -> NodeDescription:
        self._note("describe_node", address)
        node_id = int(address.rpartition(":")[2]) - 9000
        if self.breaks.get(node_id):
            self.breaks[node_id] -= 1
            raise NetworkError(f"no connection to {address}: Socket closed")
        if node_id in self.silent:
            raise self.silent[node_id]
        copies = tuple(self.copies) if node_id == 1 else ()
        return NodeDescription(node_id, "d", "c", "0.1.0", True, "", 10, 2**53 + 1, 4, 1, copies=copies)

    async def watch_cluster(self, address: str) -> AsyncIterator[ClusterChange]:
        self._note("watch_cluster", address)
        if address not in self.told:
            raise UnsupportedVersionError("it does not offer this call")
        while True:
            said = await self.told[address].get()
            if isinstance(said, QuorumlogError):
                raise said
            yield said

    async def describe_quorum(self) -> QuorumDescription:
        self._note("describe_quorum")
        return QuorumDescription(1, 3, 2**62, (QuorumReplicaDescription(1, "d", 2**62, 4),), ())

    async def list_partition_reassignments(self) -> dict[TopicPartition, PartitionReassignment]:
        self._note("list_partition_reassignments")
        return dict(self.moves)

    async def list_groups(self) -> list[GroupListing]:
        self._note("list_groups")
        return [GroupListing(name, its.state, len(its.members)) for name, its in self.groups.items()]

    async def describe_groups(self, group_ids: Iterable[str], *, include_offsets: bool) -> list[GroupDescription]:
        wanted = list(group_ids)
        self._note("describe_groups", wanted)
        assert include_offsets, "the page shows how far groups are"
        return [replace(self.groups[name], offsets=self.committed.get(name, {})) for name in wanted]

    async def list_transactions(self, states: Iterable[TransactionState] | None = None) -> list[TransactionListing]:
        wanted = None if states is None else set(states)
        self._note("list_transactions", wanted)
        return [
            TransactionListing(name, its.producer_id, its.producer_epoch, its.state, its.started_ms)
            for name, its in self.transactions.items()
            if wanted is None or its.state in wanted
        ]

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> list[TransactionDescription]:
        wanted = list(transactional_ids)
        self._note("describe_transactions", wanted)
        return [self.transactions[name] for name in wanted]

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        wanted = list(partitions)
        self._note("end_offsets", wanted)
        return {tp: self.ends.get(tp, 0) for tp in wanted}

    def fence(self, node_id: int) -> None:
        """The controller counts a node as gone."""
        brokers = (replace(each, fenced=each.node_id == node_id) for each in self.cluster.brokers)
        self.cluster = replace(self.cluster, brokers=tuple(brokers))
