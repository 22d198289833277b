"""Values that the clients take and return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

#: Record headers: pairs of name and value. A name may occur more than once.
Headers = Sequence[tuple[str, bytes | None]]
#: Headers as users write them: a mapping where no name occurs twice; text is sent as UTF-8.
GivenHeaders = Sequence[tuple[str, bytes | str | None]] | Mapping[str, bytes | str | None]


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int


class RecordMetadata(NamedTuple):
    """Where a sent record went. ``offset`` is -1 for ``acks=0``; ``timestamp`` is in milliseconds."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class ConsumerRecord(NamedTuple):
    """One record as consumed. ``timestamp`` is in milliseconds since the epoch.

    ``key`` and ``value`` are bytes or None, unless the consumer has deserializers.
    """

    # A NamedTuple: a frozen dataclass would cost a microsecond per record by itself.
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
    """An offset as committed: the next one to read, a text kept beside it, and the leader epoch of the record before it
    (None when unknown)."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


class ConsumerGroupMetadata(NamedTuple):
    """A consumer in its group. ``member_id`` is empty before it first joins; ``generation_id`` is the epoch of its
    membership, 0 while it is no member."""

    group_id: str
    member_id: str
    generation_id: int
    group_instance_id: str | None


@dataclass(slots=True, frozen=True)
class NewTopic:
    """A topic to create.

    Arguments:
        name: 1 to 249 characters of ``[a-zA-Z0-9._-]``.
        num_partitions: how many partitions; -1: as many as are assigned, else 1.
        replication_factor: how many replicas of each partition, an odd number; -1: as many as are assigned,
            else 3, or 1 on a cluster of fewer than three nodes.
        topic_configs: settings such as ``{"retention.ms": "60000"}``; values are turned into strings.
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
    """More partitions for a topic.

    Arguments:
        total_count: how many it is to have in all; it can only gain some.
        new_assignments: the nodes of each new partition, in their order, the preferred leader first; None: the
            controller places the replicas.
    """

    total_count: int
    new_assignments: Sequence[Sequence[int]] | None = None


@dataclass(slots=True, frozen=True)
class ConfigEntry:
    """One key of a topic's configuration: what holds, what would hold if nothing were set, and what it is for, with
    its unit and range. ``is_default``: nothing is set."""

    name: str
    value: str
    default: str
    is_default: bool
    documentation: str


@dataclass(slots=True, frozen=True)
class PartitionDescription:
    """One partition: node ids of its leader (None without one), replicas and in-sync replicas, and of the witness that
    votes beside an even number of replicas and has no records (None without one)."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int
    group_id: int
    witness: int | None = None


class ProducerListing(NamedTuple):
    """A producer name: its id, the newest epoch with which it was claimed, and when that was, in milliseconds since the
    epoch on the controller's clock (0: before that was kept)."""

    name: str
    producer_id: int
    producer_epoch: int
    claimed_ms: int


class PartitionReassignment(NamedTuple):
    """A partition that is being moved: nodes that have or get a replica, those that get one, those that lose it.
    ``throttle_bytes_per_second``: to which its copies are limited; 0: not at all."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    throttle_bytes_per_second: int = 0


@dataclass(slots=True, frozen=True)
class TopicDescription:
    """One topic. ``configs`` holds what was set on it, defaults left out; ``internal``: it is the cluster's own."""

    name: str
    topic_id: str
    partitions: tuple[PartitionDescription, ...]
    configs: Mapping[str, str]
    internal: bool = False


@dataclass(slots=True, frozen=True)
class BrokerDescription:
    """One registered broker.

    Arguments:
        fenced: the controller counts it as gone.
        leaving: it is being drained.
        feature_level: the highest that it supports; 0: not told.
        lost: its data directory was given up, and no other has taken its place yet.
        directory_id: of the data directory with which it registered last; empty: not told.
        returning: replicas that it is still to get back since its disk was lost.
        witness_only: it takes witnesses of partitions, and no replicas.
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


@dataclass(slots=True, frozen=True)
class ClusterDescription:
    """The cluster as one node sees it.

    Attributes:
        controller_id: None while there is no active controller.
        image_age_ms: what is shown was so at most this long ago (ms, by that node's clock); None while the node knows
            of no bound.
        feature_level: what nodes of an older one would misread is not written; 0: not told.
    """

    cluster_id: str
    controller_id: int | None
    brokers: tuple[BrokerDescription, ...]
    image_age_ms: int | None
    feature_level: int = 0


class PlannedMove(NamedTuple):
    """A partition that is to move: where its replicas are, and where they are to be, the preferred leader first.
    ``size_bytes``: of its log, about; 0 where it is not known."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    wanted: tuple[int, ...]
    size_bytes: int = 0


@dataclass(slots=True, frozen=True)
class NodePlan:
    """What emptying a node, or replacing its disk, is going to do.

    Arguments:
        moves: as planned now, 1,000 at most; where each goes is decided anew when it begins.
        all_moves: how many there are.
        voters: who is to vote in the metadata quorum in the end; empty: the node does not, or that does not change.
        all_bytes: that all moves copy, about.
    """

    moves: tuple[PlannedMove, ...]
    all_moves: int
    voters: tuple[int, ...]
    all_bytes: int = 0


@dataclass(slots=True, frozen=True)
class NodeLoad:
    """What a node carries, and what it would carry once all moves of a plan are done.

    Arguments:
        replicas, leaders: how many, and of how many of them it is the preferred leader.
        size_bytes: of its replicas, about.
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
    """What spreading replicas and leaderships is going to do.

    Arguments:
        moves: the most worthwhile first. Those that only change the preferred leader copy nothing.
        loads: of each node, before and after.
        all_bytes: that all moves copy, about.
    """

    moves: tuple[PlannedMove, ...]
    loads: tuple[NodeLoad, ...]
    all_bytes: int


class ReplicaCopy(NamedTuple):
    """A replica that is being copied to a node: bytes of its log, and of those that it lacks yet, both about."""

    topic: str
    partition: int
    node_id: int
    size_bytes: int
    left_bytes: int


@dataclass(slots=True, frozen=True)
class QuorumReplicaDescription:
    """One replica of the metadata log. ``last_contact_ms`` is None when it was not heard; without a leader nobody can
    tell ``log_end_index``, which is None then."""

    node_id: int
    directory_id: str
    log_end_index: int | None
    last_contact_ms: int | None


@dataclass(slots=True, frozen=True)
class QuorumDescription:
    """The metadata quorum as its leader sees it.

    Arguments:
        leader_id: None without a leader; then it is described by a node that is none.
        wanted_voters: node ids of those who are to vote, while that is not so yet; otherwise empty.
        outgoing_voters: node ids of those who voted before, while the voters are being replaced.
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
    """A node about itself.

    Arguments:
        reason: why it is not ready, or that it refuses appends; empty when all is well.
        last_scrubbed_ms: when all of its storage had last been read and checked, in milliseconds since the epoch; 0:
            never yet.
        damaged_entries: of its logs, found and not mended yet.
        copies: replicas that are being added to partitions which it leads.
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
    """In what state a group is, as KIP-848 names it."""

    #: It has no members; perhaps committed offsets.
    EMPTY = "Empty"
    #: A new assignment is to be computed.
    ASSIGNING = "Assigning"
    #: Members are on their way to the newest assignment.
    RECONCILING = "Reconciling"
    #: Every member has its part of the newest assignment.
    STABLE = "Stable"
    #: It does not exist.
    DEAD = "Dead"
    #: Of a classic group: members are to join again.
    PREPARING_REBALANCE = "PreparingRebalance"
    #: Of a classic group: its leader is to assign.
    COMPLETING_REBALANCE = "CompletingRebalance"


class GroupKind(Enum):
    """By which protocol a group's members share their work; without members, by which they did last."""

    #: KIP-848: the coordinator assigns.
    CONSUMER = "Consumer"
    #: Kafka's JoinGroup: one of the members assigns.
    CLASSIC = "Classic"


@dataclass(slots=True, frozen=True)
class GroupListing:
    """A group in a list. ``members``: how many it has."""

    group_id: str
    state: GroupState
    members: int
    kind: GroupKind = GroupKind.CONSUMER


@dataclass(slots=True, frozen=True)
class MemberDescription:
    """One member of a group.

    ``topics`` and ``topic_pattern`` are what it subscribes to; ``assignment`` is what it has or is about to release,
    ``target`` what it is to have. ``present`` is False of a static member that has left and is expected back.
    ``member_epoch`` is the generation in a classic group; ``classic_metadata`` and ``classic_assignment`` are what its
    members say of themselves, and what their leader has written.
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

    ``group_epoch`` counts changes of members, subscriptions and topics; the newest assignment was computed for
    ``assignment_epoch``. ``assignor`` is None without members; of a classic group it is the protocol that its members
    have chosen. ``coordinator`` is the node that answered. ``protocol_type``, ``generation`` and ``leader`` are those
    of a classic group: ``generation`` counts its rounds, ``leader`` is the member that assigns. ``offsets`` are what it
    has committed, at the same moment; None: nobody asked for them.
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
