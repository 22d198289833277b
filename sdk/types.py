"""Values that the clients accept and return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

#: Record headers: pairs of name and value. A name may occur more than once.
Headers = Sequence[tuple[str, bytes | None]]
#: Headers as an argument: pairs, or a mapping if no name occurs twice. Text is sent as UTF-8.
GivenHeaders = Sequence[tuple[str, bytes | str | None]] | Mapping[str, bytes | str | None]


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int


class TransactionToken(NamedTuple):
    """A transaction that is open, for writers in other processes: ``Producer(joins=token)``. It can be pickled.

    Arguments:
        transactional_id: of the producer whose transaction it is.
        producer_id, producer_epoch: the identity of that producer.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int


class RecordMetadata(NamedTuple):
    """The position of a sent record.

    ``offset`` is -1 with ``acks=0``; ``timestamp`` is in milliseconds since the epoch.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int


class ConsumerRecord(NamedTuple):
    """One consumed record.

    ``timestamp`` is in milliseconds since the epoch. ``key`` and ``value`` are bytes or None, unless the consumer has
    deserializers.
    """

    # A NamedTuple, because creating a frozen dataclass would add a microsecond per record.
    topic: str
    partition: int
    offset: int
    timestamp: int | None
    key: Any
    value: Any
    headers: Headers


class OffsetAndTimestamp(NamedTuple):
    """The first offset at or after a timestamp, and that record's timestamp in milliseconds."""

    offset: int
    timestamp: int


class OffsetAndMetadata(NamedTuple):
    """A committed offset.

    Arguments:
        offset: the next offset to read.
        metadata: a text stored with the offset.
        leader_epoch: of the record before the offset; None if unknown.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


class ConsumerGroupMetadata(NamedTuple):
    """A consumer's membership in its group.

    Arguments:
        member_id: empty before the consumer first joins.
        generation_id: the member epoch; 0 while the consumer is not a member.
        group_instance_id: of a static member, otherwise None.
    """

    group_id: str
    member_id: str
    generation_id: int
    group_instance_id: str | None


@dataclass(slots=True, frozen=True)
class NewTopic:
    """A topic to create.

    Arguments:
        name: 1 to 249 characters of ``[a-zA-Z0-9._-]``.
        num_partitions: number of partitions; -1: as many as ``replica_assignments`` has, otherwise 1.
        replication_factor: replicas of each partition; -1: as many as ``replica_assignments`` has, otherwise 3, or 1 on
            a cluster with fewer than three nodes.
        topic_configs: settings such as ``{"retention.ms": "60000"}``; values are converted to strings.
        replica_assignments: the nodes of each partition, ``{0: [1, 2, 3], 1: [2, 3, 1]}``, the preferred leader first;
            empty: the controller places the replicas.
    """

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    topic_configs: Mapping[str, object] = field(default_factory=dict)
    replica_assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class NewPartitions:
    """Partitions to add to a topic.

    Arguments:
        total_count: the number of partitions afterwards; it can only increase.
        new_assignments: the nodes of each new partition, in partition order, the preferred leader first; None: the
            controller places the replicas.
    """

    total_count: int
    new_assignments: Sequence[Sequence[int]] | None = None


@dataclass(slots=True, frozen=True)
class ConfigEntry:
    """One key of a topic's configuration.

    Arguments:
        value: the effective value.
        default: the value if nothing is set.
        is_default: True if nothing is set.
        documentation: purpose, unit and range.
    """

    name: str
    value: str
    default: str
    is_default: bool
    documentation: str


@dataclass(slots=True, frozen=True)
class PartitionDescription:
    """One partition.

    Arguments:
        leader: node id; None without a leader.
        replicas, isr: node ids of the replicas and of those in sync.
        group_id: of the partition's Raft group.
        witness: node id of the witness, which votes in addition to an even number of replicas and stores no records;
            None without one.
    """

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int
    group_id: int
    witness: int | None = None


class ProducerListing(NamedTuple):
    """A producer name.

    Arguments:
        producer_epoch: the newest epoch with which the name was claimed.
        claimed_ms: time of that claim, in milliseconds since the epoch, on the controller's clock; 0 if it was claimed
            before this time was recorded.
    """

    name: str
    producer_id: int
    producer_epoch: int
    claimed_ms: int


class PartitionReassignment(NamedTuple):
    """A reassignment of a partition in progress.

    Arguments:
        replicas: nodes that have or receive a replica.
        adding_replicas: nodes that receive one.
        removing_replicas: nodes that lose theirs.
        throttle_bytes_per_second: limit for its copies; 0: no limit.
    """

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    throttle_bytes_per_second: int = 0


@dataclass(slots=True, frozen=True)
class TopicDescription:
    """One topic.

    Arguments:
        configs: settings of the topic, without defaults.
        internal: True for the cluster's own topics.
    """

    name: str
    topic_id: str
    partitions: tuple[PartitionDescription, ...]
    configs: Mapping[str, str]
    internal: bool = False


@dataclass(slots=True, frozen=True)
class BrokerDescription:
    """One registered broker.

    Arguments:
        fenced: the controller considers it failed.
        leaving: it is being drained.
        feature_level: the highest that it supports; 0: not reported.
        lost: its data directory was given up, and no other has replaced it yet.
        directory_id: of the data directory with which it registered last; empty: not reported.
        returning: number of replicas that it has yet to regain after losing its disk.
        witness_only: it hosts witnesses of partitions, but no replicas.
        machine: the machine that it shares with other nodes; None if none was given.
    """

    node_id: int
    host: str
    port: int
    rack: str | None
    fenced: bool
    broker_epoch: int
    version: str
    leaving: bool = False
    feature_level: int = 0
    lost: bool = False
    directory_id: str = ""
    returning: int = 0
    witness_only: bool = False
    machine: str | None = None


@dataclass(slots=True, frozen=True)
class ClusterDescription:
    """The cluster as one node sees it.

    Arguments:
        controller_id: None while there is no active controller.
        image_age_ms: upper bound for the age of this description (ms, by that node's clock); None while the node has no
            bound.
        feature_level: the cluster writes nothing that nodes of this level would misread; 0: not reported.
    """

    cluster_id: str
    controller_id: int | None
    brokers: tuple[BrokerDescription, ...]
    image_age_ms: int | None
    feature_level: int = 0


class PlannedMove(NamedTuple):
    """A planned move of a partition.

    Arguments:
        replicas: current nodes.
        wanted: nodes after the move, the preferred leader first.
        size_bytes: approximate size of the log; 0 if unknown.
    """

    topic: str
    partition: int
    replicas: tuple[int, ...]
    wanted: tuple[int, ...]
    size_bytes: int = 0


@dataclass(slots=True, frozen=True)
class NodePlan:
    """The plan for emptying a node or replacing its disk.

    Arguments:
        moves: as planned now, 1,000 at most; the destination of each is decided again when it starts.
        all_moves: number of moves, including those not listed.
        voters: node ids of the final voters of the metadata quorum; empty: the voters do not change.
        all_bytes: approximate bytes that all moves copy.
    """

    moves: tuple[PlannedMove, ...]
    all_moves: int
    voters: tuple[int, ...]
    all_bytes: int = 0


@dataclass(slots=True, frozen=True)
class NodeSetting:
    """A setting of a node.

    Arguments:
        values: with their sources, the effective one first: ``node`` and ``cluster`` are records that were set at run
            time, ``command line``, ``environment``, ``file`` and ``default`` are configured.
        is_dynamic: True if it can be changed at run time.
        documentation: the expected values.
    """

    name: str
    values: tuple[tuple[str, str], ...]
    is_dynamic: bool
    documentation: str

    @property
    def value(self) -> str:
        """The effective value; empty if the setting is not set."""
        return self.values[0][0]

    @property
    def source(self) -> str:
        """The source of the effective value."""
        return self.values[0][1]


@dataclass(slots=True, frozen=True)
class NodeSettings:
    """The settings of a node.

    Arguments:
        settings: by name.
        records: the settings that were changed at run time: by node id, by name; those of all nodes have the key None.
    """

    node_id: int
    settings: tuple[NodeSetting, ...]
    records: dict[int | None, dict[str, str]]


@dataclass(slots=True, frozen=True)
class NodeLoad:
    """The load of a node, now and after all moves of a plan.

    Arguments:
        replicas, leaders: number of replicas, and for how many of them the node is the preferred leader.
        size_bytes: approximate size of its replicas.
    """

    node_id: int
    replicas: int
    leaders: int
    size_bytes: int
    replicas_after: int
    leaders_after: int
    size_bytes_after: int


@dataclass(slots=True, frozen=True)
class RebalancePlan:
    """The plan for balancing replicas and leaderships.

    Arguments:
        moves: the most worthwhile first. Those that only change the preferred leader copy nothing.
        loads: of each node, before and after.
        all_bytes: approximate bytes that all moves copy.
    """

    moves: tuple[PlannedMove, ...]
    loads: tuple[NodeLoad, ...]
    all_bytes: int


class ReplicaCopy(NamedTuple):
    """A replica that is being copied to a node.

    Arguments:
        size_bytes: approximate size of its log.
        left_bytes: approximate number of bytes that remain to be copied.
    """

    topic: str
    partition: int
    node_id: int
    size_bytes: int
    left_bytes: int


@dataclass(slots=True, frozen=True)
class QuorumReplicaDescription:
    """One replica of the metadata log.

    Arguments:
        log_end_index: None without a leader, which alone can report it.
        last_contact_ms: milliseconds since the leader last received from it; None without contact.
    """

    node_id: int
    directory_id: str
    log_end_index: int | None
    last_contact_ms: int | None


@dataclass(slots=True, frozen=True)
class QuorumDescription:
    """The metadata quorum as its leader sees it.

    Arguments:
        leader_id: None without a leader; then another node supplies the description.
        wanted_voters: node ids of the target voters while a change of voters is in progress; otherwise empty.
        outgoing_voters: node ids of the previous voters while the voters are being replaced.
    """

    leader_id: int | None
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplicaDescription, ...]
    observers: tuple[QuorumReplicaDescription, ...]
    wanted_voters: tuple[int, ...] = ()
    outgoing_voters: tuple[int, ...] = ()


@dataclass(slots=True, frozen=True)
class NodeDescription:
    """A node's description of itself.

    Arguments:
        reason: why it is not ready, or that it refuses appends; empty if neither applies.
        last_scrubbed_ms: when all of its storage had last been read and checked, in milliseconds since the epoch; 0:
            never.
        damaged_entries: number of damaged log entries that are not repaired yet.
        copies: replicas that are being added to partitions which the node leads.
    """

    node_id: int
    directory_id: str
    cluster_id: str
    version: str
    ready: bool
    reason: str
    storage_used_bytes: int
    storage_free_bytes: int
    groups: int
    groups_led: int
    copies: tuple[ReplicaCopy, ...] = ()
    last_scrubbed_ms: int = 0
    damaged_entries: int = 0


class GroupState(Enum):
    """State of a group, named as in KIP-848."""

    #: It has no members; it may have committed offsets.
    EMPTY = "Empty"
    #: A new assignment must be computed.
    ASSIGNING = "Assigning"
    #: Members are moving to the newest assignment.
    RECONCILING = "Reconciling"
    #: Every member has its part of the newest assignment.
    STABLE = "Stable"
    #: It does not exist.
    DEAD = "Dead"
    #: Of a classic group: its members must rejoin.
    PREPARING_REBALANCE = "PreparingRebalance"
    #: Of a classic group: its leader must assign.
    COMPLETING_REBALANCE = "CompletingRebalance"


class GroupKind(Enum):
    """Protocol by which a group's members share their work, or last did if it has no members."""

    #: KIP-848: the coordinator assigns.
    CONSUMER = "Consumer"
    #: Kafka's JoinGroup: one of the members, the leader, assigns.
    CLASSIC = "Classic"


@dataclass(slots=True, frozen=True)
class GroupListing:
    """A group in a list, with its number of members."""

    group_id: str
    state: GroupState
    members: int
    kind: GroupKind = GroupKind.CONSUMER


@dataclass(slots=True, frozen=True)
class MemberDescription:
    """One member of a group.

    Arguments:
        member_epoch: in a classic group, the generation.
        topics, topic_pattern: its subscription.
        assignment: partitions that it has or is about to release.
        target: partitions that it is assigned.
        present: False for a static member that has left and is expected to return.
        classic_metadata, classic_assignment: in a classic group, the metadata of the member and the assignment from the
            leader.
    """

    member_id: str
    instance_id: str | None
    rack: str | None
    client_id: str
    host: str
    member_epoch: int
    topics: tuple[str, ...]
    topic_pattern: str | None
    assignment: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...]
    present: bool
    classic_metadata: bytes = b""
    classic_assignment: bytes = b""


@dataclass(slots=True, frozen=True)
class GroupDescription:
    """One group with its members.

    Arguments:
        group_epoch: increases with changes of members, subscriptions and topics.
        assignment_epoch: the group epoch for which the newest assignment was computed.
        assignor: None without members; of a classic group, the protocol that its members have chosen.
        coordinator: id of the node that answered.
        protocol_type, generation, leader: of a classic group only; ``generation`` counts its rebalances, ``leader`` is
            the member that assigns.
        offsets: committed offsets at the same moment; None if they were not requested.
    """

    group_id: str
    state: GroupState
    group_epoch: int
    assignment_epoch: int
    assignor: str | None
    members: tuple[MemberDescription, ...]
    coordinator: int
    kind: GroupKind = GroupKind.CONSUMER
    protocol_type: str | None = None
    generation: int = 0
    leader: str | None = None
    offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None
