"""A whole cluster in virtual time: processes, disks, network, and the judge of every step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from hashlib import blake2b
from typing import Any, Protocol

from google.protobuf.message import Message as ProtoMessage

from quorumlog.raft.options import RaftOptions
from quorumlog.raft.types import NO_NODE, ORIGIN
from quorumlog.server.config.options import (
    AuthorizationOptions,
    BalanceOptions,
    ConsumerGroupOptions,
    Endpoint,
    NodeLimits,
    NodeOptions,
    RepairOptions,
    ScrubOptions,
)
from quorumlog.server.deciding.coordinator_replica import CoordinatorReplica
from quorumlog.server.deciding.finder import coordinator_of
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.server.metadata.topic_config import parse_topic_config
from quorumlog.server.requests.metadata_staleness import UNKNOWN_AGE_MS
from quorumlog.server.step.events import Effects, Event, LossAnswered, PeerFrame, PeerIdentified, PeerIdentity
from quorumlog.server.step.request_context import UNKNOWN_CLIENT, Listener, RequestContext
from quorumlog.server.transport.peers.peer_codec import decode_frame, encode_frame, parse_frame
from quorumlog.simulator.models.committed_partition import TopicRetention, Violation
from quorumlog.simulator.models.records import is_compacted
from quorumlog.simulator.world.clients import ACKS_ALL, Answer, PartitionName, SequenceJudge, Unanswered
from quorumlog.simulator.world.disk import DiskOptions, SimDisk
from quorumlog.simulator.world.invariants import ClusterInvariants, check_promise
from quorumlog.simulator.world.network import NetworkOptions, SimNetwork
from quorumlog.simulator.world.process import SimProcess
from quorumlog.simulator.world.quota_judge import QuotaJudge
from quorumlog.simulator.world.rights_judge import RightsJudge
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.v1 import admin_pb2
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1.errors_pb2 import Error, ErrorCode
from quorumlog.wire.entry import BatchHeader, parse_header
from quorumlog.wire.kafka.entry import is_kafka
from quorumlog.wire.topic_names import GROUPS_TOPIC

CLIENT_DELAY_US = (100, 3_000)
FULL_CHECK_STEPS = 64
#: The offset of a DeleteRecords request that means the high watermark.
EVERYTHING = -1


@dataclass(slots=True)
class ClusterOptions:
    """The kind of cluster of a seed.

    Arguments:
        witness_only: nodes with witnesses, and without replicas.
        kafka: nodes that serve Kafka clients, or claim to.
        racks: of the nodes, the first one's first; empty: no node has one.
        machines: of the nodes, likewise; empty: each is a machine of its own. Machines of equal names fail together.
        pace: factor of the node's own times (heartbeats, timeouts, checks).
        clock_rates_ppm: minimum and maximum deviation of a machine's clock, in millionths.
    """

    nodes: int = 3
    replication_factor: int = 3
    min_insync_replicas: int = 1
    disk: DiskOptions = field(default_factory=DiskOptions)
    network: NetworkOptions = field(default_factory=NetworkOptions)
    raft: RaftOptions = field(default_factory=RaftOptions)
    limits: NodeLimits = field(default_factory=NodeLimits)
    balance: BalanceOptions = field(default_factory=BalanceOptions)
    groups: ConsumerGroupOptions = field(default_factory=ConsumerGroupOptions)
    scrub: ScrubOptions = field(default_factory=lambda: ScrubOptions(bytes_per_second=0))
    repair: RepairOptions = field(default_factory=RepairOptions)
    metadata_checkpoint_entries: int = 2_000
    producer_id_expiration_us: int = 86_400_000_000
    snapshot_stall_us: int = 10_000_000
    link_linger_us: int = 1_000_000
    compaction_interval_us: int = 15_000_000
    through_codec: bool = False
    disks_lie: bool = False
    pace: float = 1.0
    clock_rates_ppm: tuple[int, int] = (0, 0)
    witness_only: tuple[int, ...] = ()
    kafka: tuple[int, ...] = ()
    racks: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()
    authorization: AuthorizationOptions = field(default_factory=AuthorizationOptions)


@dataclass(slots=True, frozen=True)
class TopicState:
    """The state of a topic from some time (µs) on: its settings, and its number of partitions."""

    since_us: int
    configs: dict[str, str]
    partitions: int


class Witness(Protocol):
    """An observer of the nodes' steps."""

    def stepped(self, process: SimProcess, events: list[Event], effects: Effects) -> None:
        """Receives a step of a node, before it is judged."""


class SimCluster:
    """Node processes and everything between them. Implements the interfaces for network, processes and clients.

    ``narrator`` receives every step, for a transcript. ``ages_told`` counts the answers with a bound on the age of the
    metadata.
    """

    def __init__(self, scheduler: Scheduler, options: ClusterOptions) -> None:
        self.scheduler = scheduler
        self.options = options
        self.narrator: Witness | None = None
        self.ages_told = 0
        self._keep_running = False
        self._newest_image = -1
        #: Nodes whose disks were replaced by empty ones.
        self.wiped: set[int] = set()
        self._disks: dict[int, SimDisk] = {}
        self.invariants = ClusterInvariants(
            self._disks, lambda value: not value.startswith("hope"), options.limits.producers_per_partition
        )
        self.invariants.coordinators.clock_error = max(0, *options.clock_rates_ppm) / 1e6
        self.invariants.transactions.clock_error = max(0, *options.clock_rates_ppm) / 1e6
        carry = carry_through_codec if options.through_codec else carry_as_it_is
        self.network = SimNetwork(scheduler, scheduler.stream("network"), options.network, self, carry)
        self._rng = scheduler.stream("clients")
        self._lanes: dict[tuple[str, int], int] = {}
        #: Origins of clients by their names in the simulation; all others are anonymous.
        self.clients: dict[str, RequestContext] = {}
        self.quotas = QuotaJudge(max(0, *options.clock_rates_ppm) / 1e6)
        self.rights = RightsJudge(options.authorization.super_users, self._name_of_topic)
        self._numbers = {f"node-{number}:1": number for number in range(1, options.nodes + 1)}
        self._sequences = SequenceJudge()
        self._told: dict[int, tuple[int, int, int]] = {}
        #: The partition of each current or former group, and the id of its topic.
        self.partition_names: dict[int, tuple[PartitionName, bytes]] = {}
        #: When each topic id first appeared in an image, and when (µs) it disappeared from all.
        self.topics_seen: dict[bytes, tuple[str, int]] = {}
        self.topics_gone: dict[bytes, int] = {}
        #: The successive states of each topic id.
        self.topic_states: dict[bytes, list[TopicState]] = {}
        voters = len(set(options.machines)) or options.nodes
        # With machines, the first nodes are on different ones.
        controllers = {
            number: address for address, number in list(self._numbers.items())[: voters if voters >= 5 else 3]
        }
        self.processes: dict[int, SimProcess] = {}
        for address, number in self._numbers.items():
            self._disks[number] = SimDisk(
                number,
                scheduler,
                scheduler.stream(f"disk-{number}"),
                options.disk,
                self.invariants.before_sync,
                lies=options.disks_lie,
            )
            node_options = node_options_of(options, number, address, controllers)
            rate_ppm = scheduler.stream(f"clock-{number}").randint(*options.clock_rates_ppm)
            self.processes[number] = SimProcess(
                paced(node_options, options.pace), self._disks[number], scheduler, self.network, self, rate_ppm
            )

    @property
    def node_ids(self) -> tuple[int, ...]:
        """Every node, running or not."""
        return tuple(self.processes)

    @property
    def steps(self) -> int:
        """The number of steps of all nodes."""
        return sum(process.steps for process in self.processes.values())

    def start(self, node: int) -> None:
        """Starts a node's process on its disk. Without a sound replica of the metadata, the storage is moved aside
        first.
        """
        disk = self.processes[node].disk
        if METADATA_GROUP in disk.broken:
            self.scheduler.trace(f"the storage of {node} makes way")
            disk.make_way()
            self.wiped.add(node)
        self.invariants.process_started(node)
        self.processes[node].start()

    def wipe(self, node: int, *, moved_aside: bool = False) -> None:
        """Gives a node's machine an empty disk, on which its process starts with the same id.

        Arguments:
            moved_aside: the process has moved the old storage aside, because it was damaged, and has recorded its
                owner.
        """
        process = self.processes[node]
        if moved_aside:
            process.disk.aside.add(self.identity(node).directory_id)
        process.die(silent=True)
        process.disk.wipe()
        self.wiped.add(node)
        self.start(node)

    def heal(self) -> None:
        """Ends all faults: all nodes run, nothing is slow, cut or full; a node that exits later is restarted."""
        self._keep_running = True
        self.network.heal()
        for number, process in self.processes.items():
            process.disk.recover()
            process.wall_offset_ms = 0
            if not process.running:
                self.start(number)
            elif process.paused:
                process.resume()

    # -- for the network ------------------------------------------------------------------------------------------

    def on_machine_of(self, node: int) -> tuple[int, ...]:
        """Returns all nodes of a node's machine."""
        machines = self.options.machines
        if not machines:
            return (node,)
        return tuple(each for each in self.processes if machines[each - 1] == machines[node - 1])

    def is_up(self, node: int) -> bool:
        """True if the process is running (even if it is paused)."""
        return self.processes[node].running

    def deliver(self, node: int, event: Event) -> None:
        """Puts an event into the node's queue."""
        self.processes[node].deliver(event)

    def identity(self, node: int) -> PeerIdentity:
        """Returns the identity that the running node reports."""
        running = self.processes[node].node
        assert running is not None
        return running.identity

    def refusal(self, node: int, identity: PeerIdentity) -> str | None:
        """Returns why the node rejects streams of that peer, or None."""
        running = self.processes[node].node
        assert running is not None
        return running.accepts_peer(identity)

    # -- for the processes ----------------------------------------------------------------------------------------

    def stepped(self, process: SimProcess, events: list[Event], effects: Effects) -> None:
        """Judges a step."""
        if self.narrator is not None:
            self.narrator.stepped(process, events, effects)
        # All groups from time to time, in case a step changes one that it does not report.
        image = process.image
        if image is not None and METADATA_GROUP in effects.groups:
            self.invariants.coordinators.learn(image.applied_index, image.partitions.values())
            self.invariants.transactions.learn(image.partitions.values())
        self.invariants.now_us = self.scheduler.now
        if self.options.authorization.enabled:
            self._judge_rights(process, events, effects)
            self.quotas.stepped(process.node_id, process.life, self.scheduler.now, image, events, effects)
        self.invariants.settings.stepped(process.options, process.life, image, effects.settings)
        self.invariants.latest_wall_ms = max(self.invariants.latest_wall_ms, process.wall_ms)
        touched = effects.groups if process.steps % FULL_CHECK_STEPS else process.replicas
        self.invariants.after_step(process.node_id, process.replicas, touched)
        for group in touched:
            hosted = process.replicas.get(group)
            machine = hosted.machine if hosted is not None else None
            if isinstance(machine, CoordinatorReplica):
                applied, table = machine.last_applied.index, machine.table
                is_of_groups = machine.kind.topic == GROUPS_TOPIC
                models = self.invariants.coordinators if is_of_groups else self.invariants.transactions
                models.check_table(
                    process.node_id,
                    group,
                    applied,
                    lambda: table.to_snapshot(applied),  # noqa: B023
                )
            elif hosted is not None:
                self.invariants.check_stable(process.node_id, group, hosted.machine)
        self._judge_ages(process, effects)
        for _, frame in effects.frames:
            for group, message in frame.messages:
                durable = process.disk.synced.get(group)
                state, last = (durable.hard_state, durable.last) if durable is not None else (None, ORIGIN)
                check_promise(group, message, state, last)
        if image is not None and METADATA_GROUP in effects.groups:
            self.invariants.hosts_at(process.node_id, image.partitions)
        if image is not None and self.invariants.image_at(
            process.node_id, image.applied_index, lambda: image_digest(image)
        ):
            self.invariants.topics_at(image.applied_index, image.topic_table)
            if self.options.machines:
                self.invariants.apart_at(image.partitions.values(), self.options.machines)
            self._note_topics(image)
            for group, partition in image.partitions.items():
                self.invariants.model(group).log.retentions.add(retention_of(partition.topic.configs))
                self.partition_names.setdefault(
                    group, (PartitionName(partition.topic.name, partition.number), partition.topic.topic_id)
                )
                if partition.leader != NO_NODE:
                    self.invariants.leader_reported(group, partition.leader, partition.leader_epoch)

    def _name_of_topic(self, topic_id: bytes) -> str | None:
        """Returns the name of a topic that some node has known."""
        seen = self.topics_seen.get(topic_id)
        return None if seen is None else seen[0]

    def _note_topics(self, image: MetadataImage) -> None:
        if image.applied_index <= self._newest_image:
            return
        self._newest_image = image.applied_index
        now = self.scheduler.now
        for topic_id, topic in image.topics_by_id.items():
            self.topics_seen.setdefault(topic_id, (topic.name, now))
            states = self.topic_states.setdefault(topic_id, [])
            state = TopicState(now, dict(topic.configs), len(topic.partitions))
            if not states or (states[-1].configs, states[-1].partitions) != (state.configs, state.partitions):
                states.append(state)
        for topic_id in self.topics_seen:
            if topic_id not in image.topics_by_id:
                self.topics_gone.setdefault(topic_id, now)

    def topic_states_since(self, topic_id: bytes, first_us: int) -> list[TopicState]:
        """Returns the states of a topic id from ``first_us`` on, by the newest metadata of any node."""
        states = self.topic_states[topic_id]
        later = [state for state in states if state.since_us > first_us]
        return [*states[: len(states) - len(later)][-1:], *later]

    def rename(self, node: int, address: str) -> None:
        """Lets the node's next process listen at another address; peers that have the former one still find it."""
        self._numbers[address] = node
        self.processes[node].move_to(address)

    def _judge_rights(self, process: SimProcess, events: list[Event], effects: Effects) -> None:
        """Checks that a node's answers are allowed by its own ACLs, and that these are not older than allowed."""
        before, image = self.rights.handed_out, process.image
        self.rights.stepped(process.node_id, process.life, image, events, effects)
        limit_us = 1_000 * self.options.authorization.image_max_age_ms
        if limit_us and self.rights.handed_out > before:
            applied = image.applied_index if image is not None else 0
            self.invariants.decided_by(process.node_id, applied, process.true_us(limit_us))

    def _judge_ages(self, process: SimProcess, effects: Effects) -> None:
        """Checks that a node's stated age of its metadata is an upper bound, except for the deviation of its clock."""
        for reply in effects.replies:
            answer = reply.message
            if isinstance(answer, pb.MetadataResponse) and answer.image_age_ms != UNKNOWN_AGE_MS:
                applied = process.image.applied_index if process.image is not None else 0
                self.ages_told += 1
                self.invariants.image_age_told(process.node_id, applied, process.true_us(answer.image_age_ms * 1_000))

    def identify(self, node: int, address: str) -> None:
        """Requests the identity of the node at an address, if it is reachable."""
        other = self._numbers[address]

        def answer() -> None:
            contacted, asker = self.processes[other], self.processes[node]
            if (
                contacted.node is not None
                and asker.running
                and not contacted.paused
                and self.network.reachable(node, other)
            ):
                asker.deliver(PeerIdentified(contacted.node.identity, contacted.node.standing(node)))

        self.scheduler.after(self._rng.randint(500, 4_000), answer)

    def report_loss(self, node: int, address: str, directory_id: str) -> None:
        """Requests that the node at an address gives up a former disk of another node."""
        process, life = self.processes[node], self.processes[node].life
        request = admin_pb2.AlterNodeRequest(
            node_id=node, action=admin_pb2.NODE_ACTION_REPLACE_DISK, directory_id=directory_id, timeout_ms=5_000
        )

        def answered(answer: ProtoMessage | Unanswered) -> None:
            if process.running and process.life == life:
                refused = answer.error.message if isinstance(answer, admin_pb2.AlterNodeResponse) else "no answer"
                process.deliver(LossAnswered(refused))

        self.request(f"node {node}", self._numbers[address], request, answered)

    def halted(self, process: SimProcess, error: str | None) -> None:
        """Handles the exit of a node: as requested, or because of a fatal error, for which only its disk may be the
        reason.
        """
        if error is not None and not process.disk.has_failed:
            raise Violation(f"node {process.node_id} gives up: {error}")
        process.die(silent=False)
        if self._keep_running:
            self.scheduler.after(100_000, lambda: self.start(process.node_id))

    # -- for the clients ------------------------------------------------------------------------------------------

    def request(
        self,
        client: str,
        node: int,
        message: ProtoMessage,
        answered: Answer,
        served: Callable[[ProtoMessage], None] | None = None,
        stream: int = 0,
    ) -> None:
        """Carries a request to a node; one client's requests to one node arrive in order.

        Arguments:
            stream: its stream, if it has one; a stream ends with the node's process.
        """
        when = self._arrival(client, node)
        process = self.processes[node]
        if isinstance(message, admin_pb2.DeleteRecordsRequest):
            self.may_delete(message)

        def arrive() -> None:
            if process.running and (not stream or process.has_stream(stream)):
                process.request(message, answered, served, stream, self._origin(client, message))
            else:
                self.scheduler.after(self._rng.randint(*CLIENT_DELAY_US), lambda: answered(Unanswered.REFUSED))

        self.scheduler.at(when, arrive)

    def _arrival(self, client: str, node: int) -> int:
        """Returns when a client's message to a node arrives: after all its earlier ones."""
        when = max(self.scheduler.now + self._rng.randint(*CLIENT_DELAY_US), self._lanes.get((client, node), 0) + 1)
        self._lanes[(client, node)] = when
        return when

    def open_stream(self, node: int) -> int:
        """Opens a stream of requests to a node."""
        return self.processes[node].open_stream()

    def close_stream(self, client: str, node: int, stream: int) -> None:
        """Closes a stream: the node is notified after all messages on it."""
        process = self.processes[node]

        def arrive() -> None:
            if process.has_stream(stream):
                process.close_stream(stream)

        self.scheduler.at(self._arrival(client, node), arrive)

    def coordinates(self, node: int, group_id: str, topic_name: str = GROUPS_TOPIC) -> bool:
        """True if a node leads the coordinator of a consumer group, in the newest term of any node.

        Arguments:
            topic_name: the internal topic of another kind of coordinators, whose keys are transactional ids.
        """
        image = self.processes[node].image
        topic = None if image is None else image.topics.get(topic_name)
        if topic is None:
            return False
        return self._leads_last(node, coordinator_of(topic, group_id).group)

    def _leads_last(self, node: int, group: int) -> bool:
        """True if a node leads a group, in the newest term of any node."""
        leaders = self.invariants.model(group).leaders
        return bool(leaders) and leaders[max(leaders)] == node

    def may_delete(self, request: admin_pb2.DeleteRecordsRequest) -> None:
        """Records a request for a deletion: it may be executed late, even if it is never answered."""
        images = [process.image for process in self.processes.values() if process.image is not None]
        for wanted in request.partitions:
            topics = [image.topics_by_id[wanted.topic_id] for image in images if wanted.topic_id in image.topics_by_id]
            partitions = (
                record for topic in topics for record in topic.partitions if record.number == wanted.partition
            )
            for group in {record.group for record in partitions}:
                log = self.invariants.model(group).log
                everything = wanted.before_offset == EVERYTHING
                log.deletable = max(log.deletable, 1 << 62 if everything else wanted.before_offset)

    def _origin(self, client: str, message: ProtoMessage) -> RequestContext:
        origin = self.clients.get(client, UNKNOWN_CLIENT)
        if isinstance(message, pb.ProduceRequest) and any(is_kafka(each.batch) for each in message.batches):
            return replace(origin, listener=Listener.KAFKA)  # Only that listener accepts them.
        return origin

    # -- answers to clients -----------------------------------------------------------------------------------------

    def batch_acknowledged(
        self, node: int, name: PartitionName, group: int, values: list[str], acks: int, result: pb.ProduceResult
    ) -> None:
        """Judges an acknowledgement: the batch must be durable."""
        copies = max(self.options.min_insync_replicas, self.invariants.model(group).data_quorum)
        self.invariants.acknowledged(
            node, group, result.base_offset, result.leader_epoch, values, copies, acks == ACKS_ALL
        )

    def batch_refused(self, node: int, group: int, header: BatchHeader, problem: Error) -> None:
        """Judges a refusal: a sequence that the node has broken itself is not the producer's fault."""
        process = self.processes[node]
        expected = process.next_sequence(group, header)
        self._sequences.refused(self.scheduler.now, (node, process.life), group, header, problem, expected)

    def told_end(self, group: int) -> int:
        """Returns the highest high watermark of a group that was reported to a reader."""
        return self._told.get(group, (0, 0, 0))[1]

    def entries_served(
        self, node: int, name: PartitionName, group: int, request: pb.FetchRequest, result: pb.FetchResult
    ) -> None:
        """Judges an answer to a fetch of one partition: only committed and available records. A leader's high watermark
        and log start never go back; a follower may be behind, but never refuses an offset that it may get.
        """
        log = self.invariants.model(group).log
        fetch_offset = request.partitions[0].fetch_offset
        follows = request.from_replicas and self.invariants.model(group).leaders.get(result.leader_epoch) != node
        # A deposed leader that has not learned it yet may lag behind.
        if (
            result.error.code == ErrorCode.OFFSET_OUT_OF_RANGE
            and fetch_offset >= log.log_start
            and (follows or self._leads_last(node, group))
        ):
            raise Violation(
                f"node {node} refuses offset {fetch_offset} of {name}, which is kept: {result.error.message}"
            )
        if result.error.code != ErrorCode.NONE:
            return
        if not follows:
            self.invariants.served(node, group, result.leader_epoch)
        start, end = result.log_start_offset, result.high_watermark
        for entry in result.entries:
            header = parse_header(entry)
            batch = log.batches.get(header.base_offset)
            if not is_compacted(entry) and (batch is None or batch.entry.data != entry):
                raise Violation(f"node {node} serves an entry of {name} that is not committed")
            if header.last_offset < start:
                raise Violation(f"node {node} serves offset {header.last_offset} of {name} below its log start {start}")
        wrong = log.compaction.wrong_in_answer(
            result.compacted_offset, start, fetch_offset, result.entries, log.entries()
        )
        if wrong:
            raise Violation(f"node {node} answers a fetch of {name} from {fetch_offset} on: {wrong}")
        if start > log.log_start or end > log.next_offset:
            raise Violation(
                f"node {node} says that {name} goes from {start} to {end}; committed is {log.log_start} to"
                f" {log.next_offset}"
            )
        newest, highest, latest = self._told.get(group, (0, 0, 0))
        if not follows and result.leader_epoch >= newest:
            if end < highest or start < latest:
                raise Violation(
                    f"high watermark or log start of {name} went back from {highest}, {latest} (epoch {newest}) to"
                    f" {end}, {start} (epoch {result.leader_epoch}, node {node})"
                )
            self._told[group] = (result.leader_epoch, end, start)


@cache
def _retention_of(configs: tuple[tuple[str, str], ...]) -> TopicRetention:
    config = parse_topic_config(dict(configs))
    if not config.deletes:
        return TopicRetention(-1, -1)
    return TopicRetention(config.retention_bytes, config.retention_ms)


def retention_of(configs: Mapping[str, str]) -> TopicRetention:
    """Returns the automatic deletion that a topic's configuration allows."""
    return _retention_of(tuple(sorted(configs.items())))


def node_options_of(options: ClusterOptions, number: int, address: str, controllers: dict[int, str]) -> NodeOptions:
    """Returns the options of one node of a cluster."""
    return NodeOptions(
        node_id=number,
        address=address,
        endpoints=(Endpoint(Listener.KAFKA, f"node-{number}", 9092),) if number in options.kafka else (),
        controllers=controllers,
        raft=options.raft,
        limits=options.limits,
        balance=options.balance,
        groups=options.groups,
        scrub=options.scrub,
        repair=options.repair,
        authorization=options.authorization,
        witness_only=number in options.witness_only,
        rack=options.racks[number - 1] if options.racks else "",
        machine=options.machines[number - 1] if options.machines else "",
        metadata_checkpoint_entries=options.metadata_checkpoint_entries,
        producer_id_expiration_us=options.producer_id_expiration_us,
        snapshot_stall_us=options.snapshot_stall_us,
        link_linger_us=options.link_linger_us,
        compaction_interval_us=options.compaction_interval_us,
    )


def paced(options: NodeOptions, pace: float) -> NodeOptions:
    """Returns the options with all times (µs) multiplied."""
    times = [item.name for item in fields(options) if item.name.endswith("_us")]
    scaled: dict[str, Any] = {name: int(getattr(options, name) * pace) for name in times}
    return replace(options, **scaled)


def image_digest(image: MetadataImage) -> str:
    """Returns a hash of a metadata image."""
    return blake2b(image.to_snapshot(), digest_size=16).hexdigest()


def carry_as_it_is(sender: int, receiver: int, frame: PeerFrame) -> PeerFrame:
    """Returns the same frame: neither end changes it."""
    return frame


def carry_through_codec(sender: int, receiver: int, frame: PeerFrame) -> PeerFrame:
    """Returns a frame after encoding and decoding by the shipped codec."""
    return decode_frame(parse_frame(encode_frame(frame)), frame.stream, sender, receiver)
