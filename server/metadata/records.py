"""What the metadata image is made of, and how it stands in a snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from quorumlog.raft.types import NO_NODE
from quorumlog.server.step.request_context import Listener
from quorumlog.v1 import metadata_log_pb2, peer_pb2
from quorumlog.wire.topic_names import is_internal

#: The metadata group itself.
METADATA_GROUP = 0
#: Groups of partitions start here.
FIRST_PARTITION_GROUP = 1000
#: Stands for the id of a topic where there is none: no topic has it.
NO_TOPIC_ID = bytes(16)
#: Producer ids are given to brokers in blocks of this many.
PRODUCER_ID_BLOCK = 1000
#: The feature level at which a metadata log begins, whichever version reads it.
FIRST_FEATURE_LEVEL = 1
#: From this one on: deletions of producer claims, states of partitions in slices, named producers counted apart, other
#: voters in the metadata quorum, nodes that leave, restores from backups, witnesses, rules of who may do what, users,
#: revocations, quotas, batches of Kafka's clients in partitions, classic groups.
SECOND_FEATURE_LEVEL = 2
#: The highest that this version supports.
FEATURE_LEVEL = SECOND_FEATURE_LEVEL


@dataclass(slots=True)
class BrokerRecord:
    """A registered broker.

    Arguments:
        epoch: the index of its registration's entry; tells its lives apart.
        leaving: its replicas are to go to other nodes.
        successor: to which one; NO_NODE: to whichever has room.
        throttle: bytes per second that each node sends of them at most; 0: as fast as it goes.
        disk: whether its data directory counts.
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
        """Whether its data directory is given up, and no other has taken its place yet."""
        return self.disk != metadata_log_pb2.DISK_STATE_UNSPECIFIED

    @property
    def is_vacant(self) -> bool:
        """Whether another data directory may take the place of the one that was given up."""
        return self.disk == metadata_log_pb2.DISK_STATE_VACANT

    @property
    def node_id(self) -> int:
        """Its node id."""
        return self.registration.node_id

    def endpoint(self, listener: Listener) -> tuple[str, int]:
        """Host and port at which others reach it through one kind of listener; where it has none of that kind, what it
        tells everybody. Kafka's clients could do nothing with that: an empty host."""
        for each in self.registration.endpoints:
            if each.listener == listener.value:
                return each.host, each.port
        if listener is Listener.KAFKA:
            return "", 0
        return self.registration.host, self.registration.port

    @property
    def rack(self) -> str:
        """Its rack; empty when it has none."""
        return self.registration.rack

    @property
    def witness_only(self) -> bool:
        """Whether it takes witnesses, and no replicas."""
        return self.registration.witness_only


@dataclass(slots=True, eq=False)
class Topic:
    """A topic. ``configs`` is only what was set; ``partitions`` are by number."""

    name: str
    topic_id: bytes
    configs: dict[str, str]
    partitions: list[PartitionRecord] = field(default_factory=list)

    @property
    def is_internal(self) -> bool:
        """Whether it belongs to the cluster itself."""
        return is_internal(self.name)


@dataclass(slots=True, eq=False)
class PartitionRecord:
    """One partition.

    Arguments:
        replicas: the preferred leader first.
        isr: in-sync replicas, in the order of ``hosts``; never empty; holds the leader; holds no other fenced node
            unless that one is alone.
        leader: as last reported, NO_NODE before the first report. It stays when it is fenced, until another reports.
        leader_epoch: the Raft term in which it leads; never goes back.
        partition_epoch: counts changes of leader, ISR and replicas.
        target: where its replicas are to be, the preferred leader first; empty unless it is being moved.
        former_targets: nodes to which it was to be moved before its target was changed, and that may have replicas.
        moved_index: of its log: there, after its last move, nobody but its replicas had a vote; 0 if it never moved.
        wishes: how often it was wished elsewhere, or back.
        throttle: bytes per second that its leader's node sends of it while it is being moved; 0: as fast as it goes.
        returning: where its replicas are to be once lost disks have been replaced; empty if none is missing.
        witness: the node that votes and has no records; NO_NODE where the number of replicas is odd.
        target_witness: where that is to be, while the partition is being moved.
        former_witnesses: as ``former_targets``, of nodes that were to have the witness.
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
        """Its replicas, and its witness behind them."""
        return self.replicas if self.witness == NO_NODE else (*self.replicas, self.witness)

    @property
    def wanted_witness(self) -> int:
        """Where its witness is to be; NO_NODE: nowhere."""
        return self.target_witness if self.target else self.witness

    @property
    def wanted_voters(self) -> tuple[int, ...]:
        """Where its replicas and its witness are to be."""
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
        """Whether it is being moved, or back."""
        return bool(self.target)

    @property
    def wanted(self) -> tuple[int, ...]:
        """Where its replicas are to be."""
        return self.target or self.replicas

    @property
    def intended(self) -> tuple[int, ...]:
        """Where its replicas are to be once lost disks have been replaced."""
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
        """Topic and number, as messages show it."""
        return f"{self.topic.name}-{self.number}"

    def ordered(self, members: Iterable[int]) -> tuple[int, ...]:
        """Some of the replicas, in the order of preference."""
        chosen = set(members)
        return tuple(node for node in self.hosts if node in chosen)


@dataclass(slots=True)
class ApplyResult:
    """What one entry did.

    Arguments:
        response: answers the request behind it; its request_id is 0.
        changed_groups: partitions that exist, of which something changed: leader, ISR, configuration, existence.
        created: topics that are new.
        deleted: topics that are gone.
        brokers_changed: whether a broker was registered, fenced or unfenced.
    """

    response: peer_pb2.ControllerResponse
    changed_groups: set[int] = field(default_factory=set)
    created: tuple[Topic, ...] = ()
    deleted: tuple[Topic, ...] = ()
    brokers_changed: bool = False


def copy_of(registration: peer_pb2.RegisterBroker) -> peer_pb2.RegisterBroker:
    """A copy that nobody else can change."""
    copy = peer_pb2.RegisterBroker()
    copy.CopyFrom(registration)
    return copy


def broker_record(broker: BrokerRecord) -> metadata_log_pb2.BrokerRecord:
    """A broker as it stands in a snapshot."""
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
    """The broker that ``broker_record`` wrote."""
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
    """A topic as it stands in a snapshot."""
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
    """The topic that ``topic_record`` wrote."""
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
