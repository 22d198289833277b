"""A node inside its cluster: the metadata group, the partitions, the broker, and what it serves to clients.

`Node` makes one when the node belongs to a cluster, and steps it. Everything here is synchronous, like the node.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Container
from dataclasses import dataclass

from google.protobuf.message import Message as ProtoMessage

from quorumlog.raft.errors import NotLeaderError, ProposalRefusedError
from quorumlog.raft.types import NO_NODE, ORIGIN, Configuration, Snapshot
from quorumlog.server.broker.broker import Broker
from quorumlog.server.broker.former_replicas import FormerReplicas
from quorumlog.server.broker.leader_elections import LeaderElections
from quorumlog.server.broker.leader_reports import LeaderReports
from quorumlog.server.broker.reassignments import Reassignments
from quorumlog.server.broker.replica_endings import ReplicaEndings
from quorumlog.server.broker.replica_factory import ReplicaFactory
from quorumlog.server.broker.replicas import Replicas
from quorumlog.server.client_origin import ClientOrigin
from quorumlog.server.controller.controller import ControllerOptions
from quorumlog.server.controller.coordinator_creation import CoordinatorPlan
from quorumlog.server.controller.metadata_replica import MetadataReplica, decode_applied
from quorumlog.server.coordinator.coordinator import Coordinator
from quorumlog.server.coordinator.coordinators import Coordinators
from quorumlog.server.coordinator.group_requests import GroupRequest
from quorumlog.server.coordinator.services import CoordinatorServices
from quorumlog.server.events import Job
from quorumlog.server.hosting.durable_raft_group import RaftGroupFactory
from quorumlog.server.hosting.partition_replica import PartitionReplica
from quorumlog.server.hosting.peer_queues import PeerQueues
from quorumlog.server.hosting.raft_host import HostedReplica, RaftHost
from quorumlog.server.hosting.read_index import HeartbeatRounds
from quorumlog.server.hosting.sealing import GroupSealer
from quorumlog.server.hosting.snapshots import Snapshots
from quorumlog.server.metadata.controller_client import ControllerClient
from quorumlog.server.metadata.producer_names import NamedProducers
from quorumlog.server.metadata.records import METADATA_GROUP, ApplyResult
from quorumlog.server.node.formation import Membership
from quorumlog.server.node.space_watch import SpaceWatch
from quorumlog.server.options import NodeOptions
from quorumlog.server.partition.checkpoints import PartitionCheckpoints
from quorumlog.server.partition.compaction_proposals import CompactionProposals
from quorumlog.server.partition.compaction_runner import CompactionRunner
from quorumlog.server.partition.forgotten_producers import DeletedProducers, ProducerExpiry
from quorumlog.server.partition.partition import Partition
from quorumlog.server.partition.retention import LogRetention
from quorumlog.server.requests.cluster_requests import AdminRequests
from quorumlog.server.requests.delete_records import RecordDeletions
from quorumlog.server.requests.elections import ElectionRequests
from quorumlog.server.requests.linearizable_reads import MetadataReads
from quorumlog.server.requests.list_offsets import OffsetRequests
from quorumlog.server.requests.produce import DataRequests
from quorumlog.server.requests.producers import ProducerRequests
from quorumlog.server.requests.topics import TopicRequests
from quorumlog.server.wire_errors import error
from quorumlog.storage.interface import StorageReader
from quorumlog.storage.transaction import RaftGroupState
from quorumlog.v1 import admin_pb2, data_plane_pb2, errors_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: A paused or slow peer counts as live for this many election timeouts of silence.
LIVE_FOR_ELECTION_TIMEOUTS = 2


@dataclass(slots=True, frozen=True)
class NodeServices:
    """What a member shares with its node.

    Arguments:
        reply: answers a client's request.
        log: level, event name and fields of something that an operator would want to know.
        start_job: has work done beside the steps; its end comes to ``compactions.on_done``.
        deliver_early: a group exists now: votes that were asked of it before are to be answered.
        forget_group: a group has no replica here any more.
        former: what is known of replicas that were moved away from here.
    """

    options: NodeOptions
    host: RaftHost
    links: PeerQueues
    space: SpaceWatch
    snapshots: Snapshots
    storage: StorageReader
    rng: random.Random
    reply: Callable[[int, ProtoMessage], None]
    log: Callable[..., None]
    deliver_early: Callable[[int], None]
    forget_group: Callable[[int], None]
    start_job: Callable[[Job], None]
    former: FormerReplicas


class ClusterMember:
    """A node's part in its cluster.

    Arguments:
        state: what is durable of the metadata group.
        found: replicas of partitions found on disk.
        directory_id, boot_id: of this node and this process.
        now: microseconds.
    """

    def __init__(
        self,
        surroundings: NodeServices,
        membership: Membership,
        state: RaftGroupState,
        found: dict[int, RaftGroupState],
        directory_id: str,
        boot_id: int,
        now: int,
    ) -> None:
        self._around = surroundings
        self._options = options = surroundings.options
        self._host = host = surroundings.host
        self._links = surroundings.links
        self.membership = membership
        self._now, self._wall_ms = now, 0
        self.metadata_contact = now
        self._known_controller = NO_NODE
        self.peers_changed = True
        raft_groups = RaftGroupFactory(options, surroundings.storage, surroundings.rng)
        self.metadata = self._open_metadata(raft_groups, state, now)
        self.partitions = Replicas(
            options.node_id, host, surroundings.former,
            ReplicaFactory(raft_groups, surroundings.snapshots.checkpoints, surroundings.former, self.metadata),
            self.metadata,
        )  # fmt: skip
        self.reports = LeaderReports(options, host, self.partitions, self.metadata)
        logs = self.partitions.logs
        self.checkpoints = PartitionCheckpoints(host, surroundings.storage, logs, surroundings.snapshots)
        self.compactions = CompactionRunner(
            options.limits, host, surroundings.storage, logs, surroundings.snapshots,
            surroundings.start_job, lambda: surroundings.space.last.free_bytes, surroundings.log,
        )  # fmt: skip
        self.proposals = CompactionProposals(
            now, options.limits, options.compaction_interval_us, host, surroundings.storage, logs
        )
        self.retention = LogRetention(host, surroundings.storage, logs)
        self.client = ControllerClient(
            self._send_to_controller, self._controller_id, options.limits.controller_requests
        )
        self.broker = Broker(options, directory_id, boot_id, self.client, self.reports)
        self.admin = AdminRequests(
            self.metadata, self.partitions, self.broker, self.client, membership.cluster_id, surroundings.reply
        )
        self.topics = TopicRequests(
            lambda: self.metadata.image, self.client, options.limits.controller_requests, surroundings.reply
        )
        self.data = DataRequests(
            self.partitions,
            options.limits,
            surroundings.reply,
            self._live_replicas,
            self.admin.missing_partition,
            self._refusal,
            host.touch,
        )
        rounds = HeartbeatRounds(self._confirm_leadership)
        self.offsets = OffsetRequests(
            self.partitions,
            surroundings.storage,
            options.limits.parked_fetches,
            surroundings.reply,
            self.admin.missing_partition,
            rounds,
        )
        self.deletions = RecordDeletions(
            self.partitions, options.limits.parked_fetches, surroundings.reply, self.admin.missing_partition, host.touch
        )
        self.groups = Coordinators(now, CoordinatorServices(
            options, self.metadata, self.partitions.coordinators, self.partitions, self.client, host, rounds,
            surroundings.snapshots, surroundings.reply,
        ))  # fmt: skip
        self.reads = MetadataReads(options, self.metadata, self.client, rounds)
        self.producers = ProducerRequests(self._named_producers, self.reads, surroundings.reply)
        self.elections = LeaderElections(
            options,
            host,
            surroundings.links,
            self.partitions,
            surroundings.log,
            now,
        )
        self.election_requests = ElectionRequests(self.partitions, self.client, surroundings.reply)
        self.reassignments = Reassignments(options, host, self.partitions, self.broker, self.client, surroundings.log)
        self.endings = ReplicaEndings(
            host, self.partitions, surroundings.snapshots, surroundings.former, self._ended,
            surroundings.forget_group, surroundings.log,
        )  # fmt: skip
        self.endings.may_have_moved(found)
        self.expiry = ProducerExpiry(now, options.producer_id_expiration_us, host, logs)
        self.deleted_producers = DeletedProducers(host, self.metadata, logs)
        host.add(METADATA_GROUP, HostedReplica(self.metadata.raft, self.metadata, lazy_commit=False))
        host.is_host = self.partitions.is_host
        self.partitions.found(found)
        self.endings.find_deleted()
        self.partitions.reconcile(now)
        surroundings.log(
            "info", "cluster_joined", cluster_id=membership.cluster_id, controllers=len(membership.founders)
        )
        self.open_first_term()

    def _open_metadata(self, raft_groups: RaftGroupFactory, state: RaftGroupState, now: int) -> MetadataReplica:
        sealer = GroupSealer(METADATA_GROUP)
        raft = raft_groups.make(
            now, state, sealer, applied=state.anchor.index, committed=decode_applied(state.table),
            snapshot_source=self._metadata_snapshot,
        )  # fmt: skip
        groups = self._options.groups
        options = ControllerOptions(
            session_timeout_us=self._options.broker_session_timeout_us,
            coordinators=CoordinatorPlan(
                groups.coordinators, groups.coordinators_factor, len(self.membership.founders)
            ),
        )
        return MetadataReplica(raft, sealer, state.snapshot, raft_groups.reader, raft_groups.rng, options, self)

    def _named_producers(self) -> NamedProducers:
        return self.metadata.image.named_producers

    def _metadata_snapshot(self) -> Snapshot | None:
        """What followers are offered: the newest durable one, but none that is about to be superseded."""
        return None if self._around.snapshots.checkpoints.is_writing(METADATA_GROUP) else self.metadata.snapshot

    def open_first_term(self) -> None:
        """The node that decided on the formation campaigns as soon as others can hear it: nobody leads yet."""
        raft = self.metadata.raft
        first = min(node for node, _, _ in self.membership.founders)
        if self._options.node_id == first and raft.last_id == ORIGIN and raft.term == 0:
            raft.campaign(self._now)
            self._host.touch(METADATA_GROUP)

    # -- the step ---------------------------------------------------------------------------------------------

    def begin_step(self, now: int, wall_ms: int) -> None:
        """A step of the node begins."""
        self._now, self._wall_ms = now, wall_ms
        self.groups.begin_step(now, wall_ms)

    def on_time(self) -> None:
        """Does what is due."""
        now = self._now
        self.client.on_time(now)
        self.broker.on_time(now, self.metadata.image.applied_index)
        if self.metadata.on_time(now, self._wall_ms):
            self._host.touch(METADATA_GROUP)
        self.data.on_time(now)
        self.checkpoints.begin_due()
        self.retention.on_time(now, self._wall_ms)
        self.compactions.on_time(now)
        self.proposals.on_time(now, self._wall_ms)
        self.deletions.on_time(now)
        self.offsets.on_time(now)
        self.topics.on_time(now)
        self.elections.on_time(now)
        self.reassignments.on_time(now)
        self.reads.on_time(now)
        self.expiry.on_time(now)
        self.deleted_producers.on_time(now)
        self.groups.on_time()

    @property
    def next_deadline(self) -> int:
        """When ``on_time`` is due."""
        due = (
            self.broker.next_deadline,
            self.client.next_deadline,
            self.metadata.next_deadline,
            self.data.calls.next_deadline,
            self.data.fetches.next_deadline,
            self.offsets.next_deadline,
            self.retention.next_deadline,
            self.compactions.next_deadline,
            self.proposals.next_deadline,
            self.deletions.next_deadline,
            self.topics.next_deadline,
            self.elections.next_deadline,
            self.reassignments.next_deadline,
            self.reads.next_deadline,
            self.expiry.next_deadline,
            self.deleted_producers.next_deadline,
            self.groups.next_deadline,
        )
        return min(deadline for deadline in due if deadline is not None)

    def after_round(self, group: int) -> None:
        """A group was stepped: follows its role, and tells clients what has become possible."""
        if group == METADATA_GROUP:
            self._after_metadata_round()
            return
        hosted = self.partitions[group]
        if isinstance(hosted, Partition):
            self._after_log_round(hosted)
        elif isinstance(hosted, Coordinator):
            self.groups.after_round(hosted)
        if hosted.leads and self.reports.needs_report(hosted):
            self.broker.report_soon(self._now)

    def _after_log_round(self, partition: Partition) -> None:
        led = partition.leading_term
        self.data.finish(partition.update_leadership())
        if led or partition.leading_term:
            self.data.finish(partition.resolve_acknowledgements())
            self.data.fetches.group_changed(self._now, partition)
            self.offsets.after_round(partition)
            self.deletions.after_round(partition)
            self.retention.after_round(self._now, self._wall_ms, partition)
        if partition.leading_term != led:
            self.deleted_producers.consider(self._now, partition)
        self.checkpoints.consider(partition)
        self.compactions.consider(self._now, partition)

    def _after_metadata_round(self) -> None:
        metadata = self.metadata
        was = metadata.controller is not None
        metadata.update_leadership(self._now)
        if metadata.controller is not None:
            if not was:
                self._around.log("info", "controller_active", term=metadata.raft.term)
            self._admit_learners()
        if metadata.raft.leader_id != self._known_controller:
            self._known_controller = metadata.raft.leader_id
            self.broker.controller_changed(self._now)
        self.reads.after_round()
        self.groups.metadata_changed()
        self.endings.leave()
        self.deleted_producers.metadata_changed(self._now)
        self._checkpoint_metadata()

    def _checkpoint_metadata(self) -> None:
        metadata, snapshots = self.metadata, self._around.snapshots
        due = metadata.entries_since_snapshot > self._options.metadata_checkpoint_entries
        if due and metadata.is_durable and snapshots.may_checkpoint(METADATA_GROUP):
            snapshots.checkpoints.begin(
                METADATA_GROUP,
                metadata.last_applied,
                metadata.raft.configuration,
                metadata.image.to_snapshot(),
                metadata.checkpointed,
            )

    def may_sleep(self, group: int, reachable: Container[int]) -> bool:
        """Whether nothing is left to be said of a led group beside its log.

        The metadata group never sleeps: its heartbeats tell every node how old its image is.
        """
        return group != METADATA_GROUP and self.reports.is_settled(self.partitions[group], reachable)

    # -- peers ------------------------------------------------------------------------------------------------

    def on_peer_lost(self, peer: int) -> None:
        """A peer's connection broke: whoever waits for more copies than are left is told."""
        for partition in self.partitions.logs.values():
            if peer in partition.raft.configuration.voters:
                self.data.finish(partition.fail_short_of_copies(self._live_replicas(partition)))

    def _live_replicas(self, partition: Partition) -> int:
        """Voters of a partition that can be expected to confirm an append, this node included."""
        silence = self._options.raft.election_timeout_us * LIVE_FOR_ELECTION_TIMEOUTS
        return sum(
            node == self._options.node_id or self._links.alive(node, self._now, silence)
            for node in partition.raft.configuration.voters
        )

    def peers(self) -> dict[int, str]:
        """Whom to hold streams to: the controllers, and every registered broker where it says it is."""
        addresses = {node: address for node, _, address in self.membership.founders}
        for broker in self.metadata.image.brokers.values():
            addresses[broker.node_id] = f"{broker.host}:{broker.port}"
        addresses.pop(self._options.node_id, None)
        return addresses

    def directory_of(self, node_id: int) -> str | None:
        """The data directory under which a node is known."""
        broker = self.metadata.image.brokers.get(node_id)
        if broker is not None:
            return broker.registration.directory_id
        return self.membership.directory_of(node_id)

    # -- metadata ---------------------------------------------------------------------------------------------

    def metadata_applied(self, result: ApplyResult) -> None:
        for topic in result.deleted:
            self._around.log("info", "topic_deleted", topic=topic.name, partitions=len(topic.partitions))
            self.endings.deleted(record.group for record in topic.partitions)
        for group in sorted(result.changed_groups):
            self.partitions.ensure(self._now, group)
            self.partitions.metadata_changed(self._now, group)
            self._around.deliver_early(group)
        self.endings.may_have_moved(result.changed_groups)
        self.peers_changed = self.peers_changed or result.brokers_changed
        self.topics.on_applied()

    def _ended(self, hosted: PartitionReplica) -> None:
        """This node has no replica of a partition any more: whoever waits for it is told."""
        if isinstance(hosted, Coordinator):
            self.groups.ended(hosted)
        elif isinstance(hosted, Partition):
            self.data.finish(hosted.end())
            self.data.fetches.group_gone(self._now, hosted.group)
            self.offsets.group_gone(hosted.group)
            self.deletions.group_gone(hosted.group)

    def metadata_restored(self) -> None:
        self.peers_changed = True
        self.endings.find_deleted()
        self.endings.may_have_moved(partition.group for partition in self.partitions)
        self.partitions.reconcile(self._now)
        for partition in self.partitions:
            self.partitions.metadata_changed(self._now, partition.group)
        self.topics.on_applied()

    def _admit_learners(self) -> None:
        """Makes every registered broker that is no controller a learner of the metadata group."""
        raft = self.metadata.raft
        known = raft.configuration
        new = [node for node in self.metadata.image.brokers if node not in known.members]
        if new:
            try:
                raft.propose_configuration(self._now, Configuration(known.voters, (*known.learners, *new)))
            except (NotLeaderError, ProposalRefusedError):
                # An earlier change is not applied yet: the round after that tries again.
                return
            self._host.touch(METADATA_GROUP)

    def _controller_id(self) -> int:
        raft = self.metadata.raft
        if raft.leader_id == NO_NODE and self._options.node_id not in raft.configuration.voters:
            # A new broker hears from the leader only once it is a learner: any controller knows where to go.
            candidates = [node for node in raft.configuration.voters if self._links[node].up]
            return self._around.rng.choice(candidates) if candidates else NO_NODE
        return raft.leader_id

    def _send_to_controller(self, target: int, request: peer_pb2.ControllerRequest) -> bool:
        if target == self._options.node_id:
            self.on_controller_request(target, request)
            return True
        link = self._links[target]
        if not link.up:
            return False
        self._links.control(link).controller_requests.append(request)
        return True

    def on_controller_request(self, peer: int, request: peer_pb2.ControllerRequest) -> None:
        """A broker, this one included, asks this node as the controller, or as a leader."""

        def respond(response: peer_pb2.ControllerResponse) -> None:
            if peer == self._options.node_id:
                self.client.on_response(response)
            else:
                self._links.control_answer(self._links[peer]).controller_responses.append(response)

        what = request.WhichOneof("body")
        if what == "describe_quorum" and self.metadata.raft.is_leader:
            quorum = self.admin.quorum(self._now)
            respond(peer_pb2.ControllerResponse(request_id=request.request_id, describe_quorum=quorum))
        elif what == "elect_preferred_leaders":
            self.elections.order(self._now, request, respond)
        elif what == "metadata_read_index":
            self.reads.serve(self._now, request, respond)
        else:
            self.metadata.handle(self._now, self._wall_ms, request, respond)
            self._host.touch(METADATA_GROUP)

    # -- clients ----------------------------------------------------------------------------------------------

    def on_request(self, request_id: int, stream: int, message: ProtoMessage, client: ClientOrigin) -> None:
        """Serves a client's request; ``stream`` is the one that it came on, 0 without one."""
        match message:
            case data_plane_pb2.ProduceRequest():
                self.data.produce(self._now, self._wall_ms, request_id, message)
            case data_plane_pb2.FetchRequest():
                self.data.fetches.fetch(self._now, request_id, stream, message)
            case data_plane_pb2.MetadataRequest():
                self._metadata_request(request_id, message)
            case data_plane_pb2.ListOffsetsRequest():
                self.offsets.list_offsets(self._now, request_id, message)
            case admin_pb2.DeleteRecordsRequest():
                self.deletions.delete(self._now, request_id, message)
            case data_plane_pb2.InitProducerIdRequest():
                self.admin.init_producer_id(self._now, request_id, message)
            case (
                admin_pb2.CreateTopicsRequest()
                | admin_pb2.DeleteTopicsRequest()
                | admin_pb2.CreatePartitionsRequest()
                | admin_pb2.AlterConfigsRequest()
                | admin_pb2.ReassignPartitionsRequest()
                | admin_pb2.DeleteProducersRequest()
            ):
                self.topics.change(self._now, request_id, message)
            case admin_pb2.ListReassignmentsRequest():
                self._list_reassignments(request_id, message)
            case admin_pb2.ListProducersRequest():
                self.producers.list_producers(self._now, request_id, message)
            case admin_pb2.DescribeConfigsRequest():
                self.topics.describe_configs(request_id, message)
            case admin_pb2.ElectLeadersRequest():
                self.election_requests.elect(self._now, request_id, message)
            case admin_pb2.DescribeQuorumRequest():
                self.admin.describe_quorum(self._now, request_id)
            case _ if isinstance(message, GroupRequest):
                self.groups.on_request(request_id, message, client)
            case _:
                raise AssertionError(f"no service lets {type(message).__name__} through")

    def client_gone(self, request_id: int) -> None:
        """Nobody waits for that answer any more."""
        self.data.client_gone(request_id)
        self.offsets.client_gone(request_id)
        self.deletions.client_gone(request_id)
        self.groups.client_gone(request_id)

    def stream_closed(self, stream: int) -> None:
        """A client's stream has ended."""
        self.data.fetches.stream_closed(stream)

    def _metadata_request(self, request_id: int, request: data_plane_pb2.MetadataRequest) -> None:
        def answer(problem: errors_pb2.Error | None) -> None:
            if problem is None:
                self.admin.metadata(request_id, request, self._image_age_ms())
            else:
                self._around.reply(request_id, data_plane_pb2.MetadataResponse(controller_id=NO_NODE, error=problem))

        if request.linearizable:
            self.reads.read(self._now, request.timeout_ms, answer)
        else:
            answer(None)

    def _list_reassignments(self, request_id: int, request: admin_pb2.ListReassignmentsRequest) -> None:
        def answer(problem: errors_pb2.Error | None) -> None:
            if problem is None:
                self.topics.list_reassignments(request_id)
            else:
                self._around.reply(request_id, admin_pb2.ListReassignmentsResponse(error=problem))

        # An answer that is behind would take a move that has just begun for one that is done.
        self.reads.read(self._now, request.timeout_ms, answer)

    def _image_age_ms(self) -> int:
        if self.metadata.raft.is_leader:
            return 0
        return (self._now - self.metadata_contact) // 1000

    def _refusal(self) -> errors_pb2.Error | None:
        """Why this node takes no appends now; None while it does."""
        if self._host.gathered_bytes >= self._options.limits.gathered_bytes:
            # The followers may commit without this disk, so Raft's own bound does not see what piles up here.
            waiting = self._host.gathered_bytes >> 20
            return error(ErrorCode.SERVER_BUSY, f"{waiting} MiB wait for the node's disk; try again after a pause")
        return self._around.space.refusal()

    def _confirm_leadership(self, group: int) -> int | None:
        """Sends a heartbeat of one group now and returns its round; None while this node could not lead anyway."""
        if self._host.stalled(self._now, self._options.storage_stall_us):
            return None
        self._host.touch(group)
        return self._host.replicas[group].raft.heartbeat(self._now)

    # -- state ------------------------------------------------------------------------------------------------

    def not_ready(self) -> str:
        """Why this node does not serve yet, in one line; empty when it does."""
        if not self.broker.registered:
            return self.broker.refusal or "not registered with the controller yet"
        return "the controller has not let this node in yet" if self.broker.fenced else ""

    def gauges(self) -> dict[str, float]:
        """Figures for metrics, by name."""
        led = {group for group, _ in self._host.led()}
        partitions = self.metadata.image.partitions
        own = self._options.node_id
        return {
            "under_replicated_partitions": sum(
                len(record.isr) < len(record.replicas) for group, record in partitions.items() if group in led
            ),
            "leaders_not_preferred": sum(
                record.replicas[0] != own for group, record in partitions.items() if group in led
            ),
            "active_controller": float(self.metadata.controller is not None),
            "pending_produces": len(self.data.calls),
            "parked_fetches": len(self.data.fetches),
            "fetch_sessions": len(self.data.fetches.sessions),
            "producer_names": len(self.metadata.image.named_producers),
            "fenced": float(self.broker.fenced),
            **self.groups.gauges(),
        }
