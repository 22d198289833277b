"""Records of the metadata image, and their form in a snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from quorumlog.raft.types import NO_NODE
from quorumlog.server.step.request_context import Listener
from quorumlog.v1 import metadata_log_pb2, peer_pb2
from quorumlog.wire.topic_names import is_internal

#: The metadata group itself.
METADATA_GROUP = 0
#: Lowest group number of partitions.
FIRST_PARTITION_GROUP = 1000
#: The missing topic id; no topic has it.
NO_TOPIC_ID = bytes(16)
#: Size of the blocks in which producer ids are assigned to brokers.
PRODUCER_ID_BLOCK = 1000
#: The feature level at which a metadata log starts, whichever version reads it.
FIRST_FEATURE_LEVEL = 1
#: From this level on: deletions of producer claims, partition states in slices, separate numbering of named producers,
#: changes of the metadata quorum's voters, leaving nodes, restores from backups, witnesses, ACLs, users, revocations,
#: quotas, Kafka clients' batches in partitions, classic groups.
SECOND_FEATURE_LEVEL = 2
#: From this level on: cleanup.policy=compact,delete, compaction lags, append times of compacted batches; passwords for
#: SCRAM-SHA-512; settings of nodes at run time; transactions in partitions.
THIRD_FEATURE_LEVEL = 3
#: The highest level that this version supports.
FEATURE_LEVEL = THIRD_FEATURE_LEVEL


def machine_of_its_own(node_id: int) -> str:
    """Returns the machine of a node that shares it with no other. No configured name equals it."""
    return f"\0node {node_id}"


@dataclass(slots=True)
class BrokerRecord:
    """A registered broker.

    Arguments:
        epoch: the index of its registration's entry; distinguishes the processes of a node.
        leaving: its replicas must be moved to other nodes.
        successor: the node that gets them; NO_NODE: any node with capacity.
        throttle: maximum bytes per second that each node sends of them; 0: no limit.
        disk: the state of its data directory.
    """

    registration: peer_pb2.RegisterBroker
    epoch: int
    fenced: bool
    leaving: bool = False
    successor: int = NO_NODE
    throttle: int = 0
    disk: metadata_log_pb2.DiskState.ValueType = metadata_log_pb2.DISK_STATE_UNSPECIFIED

    @property
    def is_lost(self) -> bool:
        """True if its data directory is given up and no other has replaced it yet."""
        return self.disk != metadata_log_pb2.DISK_STATE_UNSPECIFIED

    @property
    def is_vacant(self) -> bool:
        """True if another data directory may replace the one that was given up."""
        return self.disk == metadata_log_pb2.DISK_STATE_VACANT

    @property
    def node_id(self) -> int:
        return self.registration.node_id

    def endpoint(self, listener: Listener) -> tuple[str, int]:
        """Returns host and port of its listener of one kind; if it has none of that kind, its general address.

        Kafka clients could not use that: for them the host is empty.
        """
        for each in self.registration.endpoints:
            if each.listener == listener.value:
                return each.host, each.port
        if listener is Listener.KAFKA:
            return "", 0
        return self.registration.host, self.registration.port

    @property
    def rack(self) -> str:
        """The rack; empty if it has none."""
        return self.registration.rack

    @property
    def machine(self) -> str:
        """The machine that it fails with; equal for the nodes of one machine. A node without a name of its machine is
        a machine of its own."""
        return self.registration.machine or machine_of_its_own(self.node_id)

    @property
    def witness_only(self) -> bool:
        """True if it accepts witnesses only, and no replicas."""
        return self.registration.witness_only


@dataclass(slots=True, eq=False)
class Topic:
    """A topic. ``configs`` contains only the keys that were set; ``partitions`` are by number."""

    name: str
    topic_id: bytes
    configs: dict[str, str]
    partitions: list[PartitionRecord] = field(default_factory=list)

    @property
    def is_internal(self) -> bool:
        """True if it belongs to the cluster itself."""
        return is_internal(self.name)


@dataclass(slots=True, eq=False)
class PartitionRecord:
    """One partition.

    Arguments:
        replicas: the preferred leader first.
        isr: in-sync replicas, in the order of ``hosts``; never empty; contains the leader; contains another fenced node
            only if that is its only member.
        leader: as last reported, NO_NODE before the first report. It stays while fenced, until another leader reports.
        leader_epoch: the Raft term in which it leads; never decreases.
        partition_epoch: counts changes of leader, ISR and replicas.
        target: the nodes that the replicas are moved to, the preferred leader first; empty unless it is being moved.
        former_targets: targets of requests that were superseded; they may have replicas.
        moved_index: index in its log at which, after its last move, only its replicas had a vote; 0 if it never moved.
        wishes: the number of requests to move it, or to cancel a move.
        throttle: bytes per second that its leader's node sends of it while it is being moved; 0: no limit.
        returning: the nodes of its replicas once lost disks have been replaced; empty if none is missing.
        witness: the node that votes and has no records; NO_NODE if the number of replicas is odd.
        target_witness: the node that the witness is moved to, while the partition is being moved.
        former_witnesses: like ``former_targets``, for the witness.
    """

    topic: Topic
    number: int
    group: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int = NO_NODE
    leader_epoch: int = 0
    partition_epoch: int = 0
    target: tuple[int, ...] = ()
    former_targets: tuple[int, ...] = ()
    moved_index: int = 0
    wishes: int = 0
    throttle: int = 0
    returning: tuple[int, ...] = ()
    witness: int = NO_NODE
    target_witness: int = NO_NODE
    former_witnesses: tuple[int, ...] = ()

    @property
    def voters(self) -> tuple[int, ...]:
        """Its replicas, followed by its witness."""
        return self.replicas if self.witness == NO_NODE else (*self.replicas, self.witness)

    @property
    def wanted_witness(self) -> int:
        """The node that should have its witness; NO_NODE: none."""
        return self.target_witness if self.target else self.witness

    @property
    def wanted_voters(self) -> tuple[int, ...]:
        """The nodes that should have its replicas and its witness."""
        return self.wanted if self.wanted_witness == NO_NODE else (*self.wanted, self.wanted_witness)

    @property
    def intended_voters(self) -> tuple[int, ...]:
        """The same, once lost disks have been replaced."""
        return self.intended if self.wanted_witness == NO_NODE else (*self.intended, self.wanted_witness)

    @property
    def witness_hosts(self) -> frozenset[int]:
        """Every node that may have its witness: none of them has a replica."""
        return frozenset({self.witness, self.target_witness, *self.former_witnesses} - {NO_NODE})

    @property
    def is_moving(self) -> bool:
        """True if it is being moved, or moved back."""
        return bool(self.target)

    @property
    def wanted(self) -> tuple[int, ...]:
        """The nodes that should have its replicas."""
        return self.target or self.replicas

    @property
    def intended(self) -> tuple[int, ...]:
        """The nodes that should have its replicas once lost disks have been replaced."""
        return self.returning or self.wanted

    @property
    def hosts(self) -> tuple[int, ...]:
        """Every node that may have a replica, or the witness."""
        if not self.target:
            return self.voters
        replicas = (*self.replicas, *self.target, *self.former_targets)
        return tuple(dict.fromkeys((*replicas, *sorted(self.witness_hosts))))

    @property
    def name(self) -> str:
        """Topic and number, as in messages."""
        return f"{self.topic.name}-{self.number}"

    def ordered(self, members: Iterable[int]) -> tuple[int, ...]:
        """Returns some of the replicas, in order of preference."""
        chosen = set(members)
        return tuple(node for node in self.hosts if node in chosen)


@dataclass(slots=True)
class ApplyResult:
    """The outcome of one entry.

    Arguments:
        response: the response to the request that caused it; its request_id is 0.
        changed_groups: existing partitions whose leader, ISR, configuration or existence changed.
        created: new topics.
        deleted: deleted topics.
        brokers_changed: True if a broker was registered, fenced or unfenced.
    """

    response: peer_pb2.ControllerResponse
    changed_groups: set[int] = field(default_factory=set)
    created: tuple[Topic, ...] = ()
    deleted: tuple[Topic, ...] = ()
    brokers_changed: bool = False


def copy_of(registration: peer_pb2.RegisterBroker) -> peer_pb2.RegisterBroker:
    """Returns a copy that no caller can change."""
    copy = peer_pb2.RegisterBroker()
    copy.CopyFrom(registration)
    return copy


def broker_record(broker: BrokerRecord) -> metadata_log_pb2.BrokerRecord:
    """Returns a broker in the form of a snapshot."""
    record = metadata_log_pb2.BrokerRecord(
        registration=broker.registration,
        broker_epoch=broker.epoch,
        fenced=broker.fenced,
        leaving=broker.leaving,
        bytes_per_second=broker.throttle,
        disk=broker.disk,
    )
    if broker.successor != NO_NODE:
        record.successor = broker.successor
    return record


def broker_of(record: metadata_log_pb2.BrokerRecord) -> BrokerRecord:
    """Returns the broker that ``broker_record`` wrote."""
    successor = record.successor if record.HasField("successor") else NO_NODE
    registration = copy_of(record.registration)
    return BrokerRecord(
        registration,
        record.broker_epoch,
        record.fenced,
        record.leaving,
        successor,
        record.bytes_per_second,
        record.disk,
    )


def topic_record(topic: Topic) -> metadata_log_pb2.TopicRecord:
    """Returns a topic in the form of a snapshot."""
    return metadata_log_pb2.TopicRecord(
        name=topic.name,
        topic_id=topic.topic_id,
        configs=topic.configs,
        partitions=[
            metadata_log_pb2.PartitionRecord(
                group=partition.group,
                replicas=partition.replicas,
                isr=partition.isr,
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                partition_epoch=partition.partition_epoch,
                target_replicas=partition.target,
                former_targets=partition.former_targets,
                moved_index=partition.moved_index,
                wishes=partition.wishes,
                bytes_per_second=partition.throttle,
                returning=partition.returning,
                witness=partition.witness if partition.witness != NO_NODE else None,
                target_witness=partition.target_witness if partition.target_witness != NO_NODE else None,
                former_witnesses=partition.former_witnesses,
            )
            for partition in topic.partitions
        ],
    )


def topic_of(record: metadata_log_pb2.TopicRecord) -> Topic:
    """Returns the topic that ``topic_record`` wrote."""
    topic = Topic(record.name, record.topic_id, dict(record.configs))
    for number, row in enumerate(record.partitions):
        topic.partitions.append(
            PartitionRecord(
                topic,
                number,
                row.group,
                tuple(row.replicas),
                tuple(row.isr),
                row.leader,
                row.leader_epoch,
                row.partition_epoch,
                tuple(row.target_replicas),
                tuple(row.former_targets),
                row.moved_index,
                row.wishes,
                row.bytes_per_second,
                tuple(row.returning),
                row.witness if row.HasField("witness") else NO_NODE,
                row.target_witness if row.HasField("target_witness") else NO_NODE,
                tuple(row.former_witnesses),
            )
        )
    return topic
