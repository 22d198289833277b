"""The node: one synchronous step from events to effects.

Nothing here waits, reads a clock or does I/O other than short reads of storage; so no step is ever suspended between
reading a term and using it, and the simulator runs this very code. The order within a step is the driver contract of
`quorumlog.raft`: messages that may precede the fsync leave at once, all writes of all groups become one transaction,
and what speaks of them waits until that is durable.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from google.protobuf.message import Message as ProtoMessage

from quorumlog.raft.errors import MalformedMessageError, NotLeaderError, ProposalRefusedError
from quorumlog.raft.types import (
    NO_NODE,
    ORIGIN,
    AppendRequest,
    Configuration,
    HardState,
    Heartbeat,
    InstallSnapshot,
    Message,
    VoteRequest,
)
from quorumlog.server.admin_requests import AdminRequests
from quorumlog.server.broker import Broker
from quorumlog.server.controller import ControllerOptions
from quorumlog.server.controller_client import ControllerClient
from quorumlog.server.data_requests import DataRequests
from quorumlog.server.events import (
    ClientGone,
    ClientRequest,
    Effects,
    Event,
    FrameReceived,
    Halt,
    LogLine,
    PeerConnected,
    PeerDisconnected,
    PeerFrame,
    PeerIdentified,
    PeerIdentity,
    Reply,
    SnapshotDelivered,
    StopRequested,
    StorageDone,
    StorageFailed,
)
from quorumlog.server.formation import CLUSTER_ROW, DIRECTORY_ROW, Formation, Founder, Membership
from quorumlog.server.group_host import GroupHost, Replica
from quorumlog.server.handover import Handover
from quorumlog.server.links import Links
from quorumlog.server.metadata_image import MetadataImage
from quorumlog.server.metadata_records import METADATA_GROUP, ApplyResult
from quorumlog.server.metadata_replica import MetadataReplica, decode_applied
from quorumlog.server.offset_requests import OffsetRequests
from quorumlog.server.options import NodeOptions
from quorumlog.server.partition import Partition
from quorumlog.server.partitions import Partitions, make_group
from quorumlog.server.sealing import GroupSealer
from quorumlog.server.space_watch import SpaceWatch
from quorumlog.server.wire_errors import error
from quorumlog.storage.interface import DiskFullError, StorageReader
from quorumlog.storage.transaction import GroupState, GroupWrite
from quorumlog.v1 import admin_pb2, data_plane_pb2, errors_pb2, peer_pb2
from quorumlog.v1.entry import CorruptEntryError
from quorumlog.v1.errors_pb2 import ErrorCode

#: Vote requests kept for groups that this node has not heard of yet.
EARLY_VOTES = 10_000


class Node:
    """One node of the cluster.

    Arguments:
        storage: durable state, read synchronously.
        rng: for elections and ids.
        now: microseconds on the node's clock.
        wall_ms: milliseconds since the epoch.
        boot_id: random, of this process.
    """

    def __init__(
        self, options: NodeOptions, storage: StorageReader, rng: random.Random, now: int, wall_ms: int, boot_id: int
    ) -> None:
        self._options = options
        self._storage = storage
        self._rng = rng
        self._boot_id = boot_id
        self._now, self._wall_ms = now, wall_ms
        self._effects = Effects()
        self._halted = False
        self._heartbeat_due = now
        self._identify_due = now
        self._was_ready = False
        self._metadata_contact = now
        self._connected_to: dict[int, str] = {}
        self._peers_changed = True
        self._frame_acks: dict[int, int] = {}
        self._early_votes: dict[tuple[int, int], VoteRequest] = {}
        self._retry_at: int | None = None
        self._retry_number = 0
        self._handover: Handover | None = None
        self._links = Links(options.node_id, options.limits.frame_bytes)
        self._host = GroupHost(self._links.enqueue)
        self._space = SpaceWatch(storage, options.limits, now)
        self._membership: Membership | None = None
        self._concluded = False
        self._metadata: MetadataReplica | None = None
        self._known_controller = NO_NODE
        self._client = ControllerClient(
            self._send_to_controller, self._controller_id, options.limits.controller_requests
        )
        self._partitions = Partitions(options, self._host, storage, rng, lambda: self._joined().image)
        self._load(storage.node_state(), storage.groups())

    def _load(self, rows: dict[bytes, bytes], groups: dict[int, GroupState]) -> None:
        directory = rows.get(DIRECTORY_ROW)
        self._directory_durable = directory is not None
        if directory is None:
            directory = f"{self._rng.getrandbits(128):032x}".encode()
            self._host.set_node_state(DIRECTORY_ROW, directory)
            self._host.after_durable(self._directory_saved)
        self._directory_id = directory.decode()
        self._broker = Broker(self._options, self._directory_id, self._boot_id, self._client, self._partitions)
        self._formation = Formation(
            self._options.node_id, self._directory_id, self._options.address, self._options.controllers
        )
        if CLUSTER_ROW in rows:
            self._concluded = True
            self._partitions.found({group: state for group, state in groups.items() if group != METADATA_GROUP})
            self._open_metadata(Membership.decode(rows[CLUSTER_ROW]), groups[METADATA_GROUP])

    def _directory_saved(self) -> None:
        self._directory_durable = True
        self._consider_forming()

    # -- who this is ------------------------------------------------------------------------------------------

    @property
    def identity(self) -> PeerIdentity:
        """Who this node says it is. Its directory id is empty until it is durable."""
        return PeerIdentity(
            self._membership.cluster_id if self._membership is not None else "",
            self._options.node_id,
            self._directory_id if self._directory_durable else "",
            self._boot_id,
            self._options.address,
        )

    @property
    def founders(self) -> tuple[Founder, ...]:
        """The controllers with which the cluster was formed; empty before."""
        return self._membership.founders if self._membership is not None else ()

    @property
    def replicas(self) -> Mapping[int, Replica]:
        """The Raft groups with a replica here, by group id; for inspection."""
        return self._host.replicas

    @property
    def image(self) -> MetadataImage | None:
        """The metadata image; None before the node belongs to a cluster."""
        return self._metadata.image if self._metadata is not None else None

    def accepts_peer(self, identity: PeerIdentity) -> str | None:
        """Why a peer's streams are refused, in one line; None when they are welcome."""
        if self._membership is None:
            return f"node {self._options.node_id} does not belong to a cluster yet; try again"
        if identity.cluster_id != self._membership.cluster_id:
            return (
                f"node {identity.node_id} belongs to cluster {identity.cluster_id or '(none)'}, node"
                f" {self._options.node_id} to {self._membership.cluster_id}; check --controllers and --data-dir"
            )
        if identity.node_id == self._options.node_id:
            return f"node id {identity.node_id} is taken by this node; give every node its own id"
        known = self._membership.directory_of(identity.node_id)
        if self._metadata is not None and identity.node_id in self._metadata.image.brokers:
            known = self._metadata.image.brokers[identity.node_id].registration.directory_id
        if known is not None and known != identity.directory_id:
            return (
                f"node {identity.node_id} is known with data directory {known}, not {identity.directory_id};"
                " restore its directory, or start it under a new node id"
            )
        return None

    # -- the step ---------------------------------------------------------------------------------------------

    def step(self, now: int, wall_ms: int, events: list[Event]) -> Effects:
        """Takes what has happened and says what is to be done.

        Arguments:
            now: microseconds; never less than before.
            wall_ms: milliseconds since the epoch.
            events: in the order of their arrival.
        """
        assert now >= self._now, f"time went back from {self._now} to {now}"
        self._now, self._wall_ms = now, wall_ms
        if self._halted:
            return Effects()
        try:
            for event in events:
                self._dispatch(event)
            self._on_time()
            self._settle()
        except CorruptEntryError as damage:
            self._halt(f"a log is damaged: {damage}; restore this node's data directory, or give it a new one")
        self._effects.frames.extend(self._links.collect(now, self._host))
        self._connect()
        effects, self._effects = self._effects, Effects()
        return effects

    def _dispatch(self, event: Event) -> None:
        match event:
            case FrameReceived():
                self._on_frame(event.peer, event.frame)
            case ClientRequest():
                self._on_request(event.request_id, event.message)
            case StorageDone():
                self._host.on_durable(self._now, event.number)
            case StorageFailed():
                self._on_storage_failed(event)
            case PeerConnected():
                self._on_connected(event.peer, event.identity)
            case PeerDisconnected():
                self._on_disconnected(event.peer)
            case PeerIdentified():
                self._on_identified(event)
            case SnapshotDelivered():
                replica = self._host.replicas.get(event.group)
                if replica is not None:
                    replica.raft.snapshot_status(self._now, event.peer, event.ok)
                    self._host.touch(event.group)
            case ClientGone():
                if self._metadata is not None:
                    self._data.client_gone(event.request_id)
                    self._offsets.client_gone(event.request_id)
            case StopRequested():
                self._stop()

    def _settle(self) -> None:
        """Rounds until nothing more can be done before the disk or a peer answers."""
        while True:
            for group in self._host.run_round():
                self._after_round(group)
            for peer, sequence in self._frame_acks.items():
                self._host.after_durable(self._acknowledge_frame(peer, sequence))
            self._frame_acks.clear()
            if self._effects.transaction is None and self._retry_at is None:
                self._effects.transaction = self._host.take_transaction(self._now)
            if not self._host.has_work:
                return

    def _after_round(self, group: int) -> None:
        raft = self._host.replicas[group].raft
        if group == METADATA_GROUP:
            self._after_metadata_round()
        else:
            partition = self._partitions[group]
            led = partition.leading_term
            self._data.finish(partition.update_leadership())
            if led or partition.leading_term:
                self._after_led_round(partition)
        if raft.is_leader:
            self._links.mark(group, raft.configuration.members)

    def _after_led_round(self, partition: Partition) -> None:
        """Clients of a partition that is led here, or was until this round, hear what has become possible."""
        self._data.finish(partition.resolve_acknowledgements())
        self._data.wake_if_changed(self._now, partition)
        self._offsets.after_round(partition)
        if self._partitions.needs_report(partition):
            self._broker.report_soon(self._now)

    def _after_metadata_round(self) -> None:
        metadata = self._joined()
        was = metadata.controller is not None
        metadata.update_leadership(self._now)
        if metadata.controller is not None and not was:
            self._log("info", "controller_active", term=metadata.raft.term)
        if metadata.raft.leader_id != self._known_controller:
            self._known_controller = metadata.raft.leader_id
            self._broker.controller_changed(self._now)
        if metadata.controller is not None:
            self._admit_learners()
        checkpoint = metadata.due_checkpoint(self._options.metadata_checkpoint_entries)
        if checkpoint is not None:
            self._host.checkpoint(METADATA_GROUP, checkpoint)
            metadata.raft.compact(checkpoint.last)

    def _acknowledge_frame(self, peer: int, sequence: int) -> Callable[[], None]:
        def acknowledge() -> None:
            answer = self._links.data_answer(self._links[peer])
            answer.acknowledged = max(answer.acknowledged, sequence)

        return acknowledge

    # -- time -------------------------------------------------------------------------------------------------

    def _on_time(self) -> None:
        now = self._now
        if self._retry_at is not None and now >= self._retry_at:
            self._retry_at = None
            self._effects.transaction = self._host.retry(self._retry_number)
        self._space.on_time(now)
        if self._metadata is None:
            if now >= self._identify_due:
                self._identify_due = now + self._options.identify_interval_us
                self._effects.identify.extend(self._formation.missing)
                self._consider_forming()
            return
        if self._membership is not None and not self._was_ready and now >= self._identify_due:
            # Until it has been ready once, a node makes sure that it is among its own.
            self._identify_due = now + 10 * self._options.identify_interval_us
            self._effects.identify.extend(self._formation.missing)
        self._host.fire_timers(now)
        if now >= self._heartbeat_due:
            self._heartbeat_due = now + self._options.heartbeat_interval_us
            self._heartbeat()
        self._client.on_time(now)
        self._broker.on_time(now, self._metadata.image.applied_index)
        if self._metadata.on_time(now, self._wall_ms):
            self._host.touch(METADATA_GROUP)
        self._data.on_time(now)
        self._offsets.on_time(now)
        self._admin.on_time(now)
        self._was_ready = self._was_ready or not self.not_ready()
        if self._handover is not None and self._handover.on_time(now):
            self._halt(None)

    def _heartbeat(self) -> None:
        """One heartbeat of every group that this node leads, coalesced into one frame per peer.

        None while the storage stalls: a leader that cannot write must lose its leadership.
        """
        now = self._now
        if self._stalled():
            return
        for link in self._links:
            if link.stuck(now, self._options.frame_ack_timeout_us):
                link.in_flight.clear()
                for group, replica in self._host.led():
                    if link.peer in replica.raft.configuration.members:
                        replica.raft.peer_unreachable(now, link.peer)
                        self._host.touch(group)
        for group, replica in self._host.led():
            replica.raft.heartbeat(now)
            self._host.touch(group)

    def _confirm_leadership(self, group: int) -> int | None:
        """Sends a heartbeat of one group now and returns its round; None while this node could not lead anyway."""
        if self._stalled():
            return None
        self._host.touch(group)
        return self._host.replicas[group].raft.heartbeat(self._now)

    def _stalled(self) -> bool:
        return self._host.writing and self._now - self._host.in_flight_since > self._options.storage_stall_us

    @property
    def next_deadline(self) -> int:
        """Step again at this time at the latest (µs)."""
        due = [self._space.next_deadline]
        if self._retry_at is not None:
            due.append(self._retry_at)
        if self._metadata is None:
            due.append(self._identify_due)
            return min(due)
        due += [self._heartbeat_due, self._broker.next_deadline]
        optional = (
            self._host.next_deadline,
            self._client.next_deadline,
            self._metadata.next_deadline,
            self._data.calls.next_deadline,
            self._data.fetches.next_deadline,
            self._offsets.next_deadline,
            self._admin.next_deadline,
            self._handover.next_deadline if self._handover is not None else None,
        )
        return min(due + [deadline for deadline in optional if deadline is not None])

    # -- peers ------------------------------------------------------------------------------------------------

    def _on_frame(self, peer: int, frame: PeerFrame) -> None:
        link = self._links[peer]
        link.heard = self._now
        if frame.acknowledged:
            link.acknowledge(frame.acknowledged)
        for group, message in frame.messages:
            self._on_message(group, message)
        if frame.sequence:
            self._frame_acks[peer] = frame.sequence
        if self._metadata is None:
            return
        for request in frame.controller_requests:
            self._on_controller_request(peer, request)
        for response in frame.controller_responses:
            self._client.on_response(response)

    def _on_message(self, group: int, message: Message) -> None:
        replica = self._host.replicas.get(group)
        if replica is None:
            if isinstance(message, VoteRequest) and len(self._early_votes) < EARLY_VOTES:
                # A candidate was told of a new partition before we were: it gets its answer when we are.
                self._early_votes[group, message.sender] = message
            return
        if group == METADATA_GROUP and isinstance(message, Heartbeat | AppendRequest | InstallSnapshot):
            self._metadata_contact = self._now
        try:
            replica.raft.step(self._now, message)
        except MalformedMessageError as malformed:
            self._log("error", "malformed_message", group=group, peer=message.sender, reason=str(malformed))
        self._host.touch(group)

    def _on_connected(self, peer: int, identity: PeerIdentity) -> None:
        link = self._links[peer]
        link.reset()
        link.identity = identity
        link.connected_at = self._now
        self._log("info", "peer_connected", peer=peer)
        for group, replica in self._host.replicas.items():
            if peer in replica.raft.configuration.members:
                replica.raft.peer_unreachable(self._now, peer)
                self._host.touch(group)
        self._open_first_term()

    def _on_disconnected(self, peer: int) -> None:
        link = self._links[peer]
        link.reset()
        link.identity = None
        self._log("info", "peer_disconnected", peer=peer)
        for group, replica in self._host.replicas.items():
            if peer in replica.raft.configuration.members:
                replica.raft.peer_lost(self._now, peer)
                self._host.touch(group)
        for partition in self._partitions:
            if peer in partition.raft.configuration.voters:
                self._data.finish(partition.fail_short_of_copies(self._live_replicas(partition)))

    def _live_replicas(self, partition: Partition) -> int:
        """Voters of a partition that can be expected to confirm an append, this node included."""
        silence = self._options.raft.election_timeout_us * 2
        return sum(
            node == self._options.node_id or self._links.alive(node, self._now, silence)
            for node in partition.raft.configuration.voters
        )

    def _connect(self) -> None:
        """Says whom to hold streams to, when that has changed."""
        if not self._peers_changed or self._membership is None or self._metadata is None:
            return
        self._peers_changed = False
        wanted = {node: address for node, _, address in self._membership.founders}
        for broker in self._metadata.image.brokers.values():
            wanted[broker.node_id] = f"{broker.host}:{broker.port}"
        wanted.pop(self._options.node_id, None)
        if wanted != self._connected_to:
            self._connected_to = wanted
            self._effects.connect = dict(wanted)

    # -- formation --------------------------------------------------------------------------------------------

    def _on_identified(self, event: PeerIdentified) -> None:
        if self._membership is not None:
            self._check_cluster(event.identity)
        elif self._directory_durable:
            self._conclude(self._formation.on_identified(event.identity, event.founders))

    def _check_cluster(self, identity: PeerIdentity) -> None:
        assert self._membership is not None
        ours, theirs = self._membership.cluster_id, identity.cluster_id
        if theirs and theirs != ours and not self._was_ready and identity.node_id in self._options.controllers:
            self._halt(
                f"the data directory belongs to cluster {ours}, but controller {identity.node_id} at {identity.address}"
                f" to cluster {theirs}; start this node with its own --data-dir and --controllers"
            )

    def _consider_forming(self) -> None:
        if self._membership is None and self._directory_durable and self._options.node_id in self._options.controllers:
            self._conclude(self._formation.decide())

    def _conclude(self, conclusion: Membership | str | None) -> None:
        if isinstance(conclusion, str):
            self._halt(conclusion)
        elif conclusion is not None and not self._concluded:
            # Once: more answers of controllers arrive while this one is being made durable.
            self._concluded = True
            voters = tuple(node for node, _, _ in conclusion.founders)
            learners = () if self._options.node_id in voters else (self._options.node_id,)
            configuration = Configuration(voters, learners)
            self._host.set_node_state(CLUSTER_ROW, conclusion.encode())
            self._host.create(GroupWrite(METADATA_GROUP, create=configuration, hard_state=HardState()))
            state = GroupState(METADATA_GROUP, configuration, HardState(), ORIGIN, ORIGIN, None, {})
            # Said to nobody before it is durable: a founder that forgets would let the cluster form twice.
            self._host.after_durable(lambda: self._open_metadata(conclusion, state))

    def _open_metadata(self, membership: Membership, state: GroupState) -> None:
        self._membership = membership
        sealer = GroupSealer(METADATA_GROUP)
        applied = decode_applied(state.table)
        hard = HardState(state.hard_state.term, state.hard_state.vote, max(state.hard_state.commit, applied))
        state = GroupState(METADATA_GROUP, state.configuration, hard, state.anchor, state.last, state.snapshot, {})
        raft = make_group(
            self._options, state, state.anchor.index, sealer, self._storage, self._rng, self._now,
            lambda: self._joined().snapshot(),
        )  # fmt: skip
        self._metadata = MetadataReplica(
            raft, sealer, state.snapshot, self._rng,
            ControllerOptions(session_timeout_us=self._options.broker_session_timeout_us),
            self._on_metadata_applied, self._on_metadata_restored,
        )  # fmt: skip
        self._data = DataRequests(
            self._partitions, self._options.limits, self._reply, self._live_replicas,
            self._missing_partition, self._space.refusal, self._host.touch,
        )  # fmt: skip
        self._offsets = OffsetRequests(
            self._partitions,
            self._options.limits.parked_fetches,
            self._reply,
            self._missing_partition,
            self._confirm_leadership,
        )
        self._admin = AdminRequests(
            self._metadata, self._partitions, self._broker, self._client, membership.cluster_id, self._reply
        )
        self._host.add(METADATA_GROUP, Replica(raft, self._metadata, lazy_commit=False))
        self._partitions.reconcile(self._now)
        self._log("info", "cluster_joined", cluster_id=membership.cluster_id, controllers=len(membership.founders))
        self._open_first_term()

    def _open_first_term(self) -> None:
        """The node that decided on the formation campaigns as soon as others can hear it: nobody leads yet."""
        metadata = self._joined()
        first = min(node for node, _, _ in self.founders)
        if self._options.node_id == first and metadata.raft.last_id == ORIGIN and metadata.raft.term == 0:
            metadata.raft.campaign(self._now)
            self._host.touch(METADATA_GROUP)

    def _joined(self) -> MetadataReplica:
        assert self._metadata is not None
        return self._metadata

    # -- metadata ---------------------------------------------------------------------------------------------

    def _on_metadata_applied(self, result: ApplyResult) -> None:
        for group in sorted(result.changed_groups):
            self._partitions.ensure(self._now, group)
            self._answer_early(group)
        self._peers_changed = self._peers_changed or result.brokers_changed
        self._admin.on_applied()

    def _on_metadata_restored(self) -> None:
        self._peers_changed = True
        self._partitions.reconcile(self._now)
        self._admin.on_applied()

    def _answer_early(self, group: int) -> None:
        for key in [key for key in self._early_votes if key[0] == group]:
            self._on_message(group, self._early_votes.pop(key))

    def _admit_learners(self) -> None:
        """Makes every registered broker that is no controller a learner of the metadata group."""
        raft = self._joined().raft
        known = raft.configuration
        new = [node for node in self._joined().image.brokers if node not in known.members]
        if new:
            try:
                raft.propose_configuration(self._now, Configuration(known.voters, (*known.learners, *new)))
            except (NotLeaderError, ProposalRefusedError):
                # An earlier change is not applied yet: the round after that tries again.
                return

    def _controller_id(self) -> int:
        if self._metadata is None:
            return NO_NODE
        raft = self._metadata.raft
        if raft.leader_id == NO_NODE and self._options.node_id not in raft.configuration.voters:
            # A new broker hears from the leader only once it is a learner: any controller knows where to go.
            candidates = [node for node in raft.configuration.voters if self._links[node].up]
            return self._rng.choice(candidates) if candidates else NO_NODE
        return raft.leader_id

    def _send_to_controller(self, target: int, request: peer_pb2.ControllerRequest) -> bool:
        if target == self._options.node_id:
            self._on_controller_request(target, request)
            return True
        link = self._links[target]
        if not link.up:
            return False
        self._links.control(link).controller_requests.append(request)
        return True

    def _on_controller_request(self, peer: int, request: peer_pb2.ControllerRequest) -> None:
        def respond(response: peer_pb2.ControllerResponse) -> None:
            if peer == self._options.node_id:
                self._client.on_response(response)
            else:
                self._links.control_answer(self._links[peer]).controller_responses.append(response)

        metadata = self._joined()
        if request.WhichOneof("body") == "describe_quorum" and metadata.raft.is_leader:
            quorum = self._admin.quorum(self._now)
            respond(peer_pb2.ControllerResponse(request_id=request.request_id, describe_quorum=quorum))
        else:
            metadata.handle(self._now, self._wall_ms, request, respond)
            self._host.touch(METADATA_GROUP)

    # -- clients ----------------------------------------------------------------------------------------------

    def _reply(self, request_id: int, message: ProtoMessage) -> None:
        self._effects.replies.append(Reply(request_id, message))

    def _on_request(self, request_id: int, message: ProtoMessage) -> None:
        if isinstance(message, admin_pb2.DescribeNodeRequest):
            self._reply(request_id, self.describe())
        elif self._metadata is None:
            self._refuse_unformed(request_id, message)
        elif isinstance(message, data_plane_pb2.ProduceRequest):
            self._data.produce(self._now, self._wall_ms, request_id, message)
        elif isinstance(message, data_plane_pb2.FetchRequest):
            self._data.fetch(self._now, request_id, message)
        elif isinstance(message, data_plane_pb2.MetadataRequest):
            self._admin.metadata(request_id, message, self._image_age_ms())
        elif isinstance(message, data_plane_pb2.ListOffsetsRequest):
            self._offsets.list_offsets(self._now, request_id, message)
        elif isinstance(message, data_plane_pb2.InitProducerIdRequest):
            self._admin.init_producer_id(self._now, request_id, message)
        elif isinstance(message, admin_pb2.CreateTopicsRequest):
            self._admin.create_topics(self._now, request_id, message)
        elif isinstance(message, admin_pb2.DescribeQuorumRequest):
            self._admin.describe_quorum(self._now, request_id)
        else:
            raise AssertionError(f"no service lets {type(message).__name__} through")

    def _refuse_unformed(self, request_id: int, message: ProtoMessage) -> None:
        response = unformed_response(message, self.not_ready())
        if response is not None:
            self._reply(request_id, response)

    def _missing_partition(self, topic_id: bytes, number: int) -> errors_pb2.Error:
        return self._admin.missing_partition(topic_id, number)

    def _image_age_ms(self) -> int:
        if self._joined().raft.is_leader:
            return 0
        return (self._now - self._metadata_contact) // 1000

    # -- storage, stopping, reporting -------------------------------------------------------------------------

    def _on_storage_failed(self, event: StorageFailed) -> None:
        if isinstance(event.error, DiskFullError):
            self._log("error", "storage_full", reason=str(event.error))
            self._retry_number = event.number
            self._retry_at = self._now + self._options.storage_retry_us
            self._space.failed()
        else:
            self._halt(f"storage failed: {event.error}")

    def _stop(self) -> None:
        if self._metadata is None:
            self._halt(None)
        elif self._handover is None:
            self._log("info", "stopping", groups_led=sum(1 for _ in self._host.led()))
            self._handover = Handover(self._options, self._host, self._links, self._broker, self._now)

    def _halt(self, reason: str | None) -> None:
        if not self._halted:
            self._halted = True
            self._effects.halt = Halt(reason)

    def _log(self, level: str, event: str, **fields: object) -> None:
        self._effects.logs.append(LogLine(level, event, fields))

    def not_ready(self) -> str:
        """Why this node does not serve yet, in one line; empty when it does."""
        if self._membership is None:
            waiting = ", ".join(map(str, self._formation.waiting_for))
            return f"the cluster has not formed; waiting for controllers {waiting}"
        if not self._broker.registered:
            return self._broker.refusal or "not registered with the controller yet"
        return "the controller has not let this node in yet" if self._broker.fenced else ""

    def describe(self) -> admin_pb2.DescribeNodeResponse:
        """This node about itself."""
        reason = self.not_ready()
        space = self._space.last
        return admin_pb2.DescribeNodeResponse(
            node_id=self._options.node_id,
            directory_id=self._directory_id,
            cluster_id=self._membership.cluster_id if self._membership is not None else "",
            version=self._options.version,
            ready=not reason,
            reason=reason,
            storage_used_bytes=space.used_bytes,
            storage_free_bytes=space.free_bytes,
            groups=len(self._host.replicas),
            groups_led=sum(1 for _ in self._host.led()),
        )

    def gauges(self) -> dict[str, float]:
        """Figures for metrics, by name."""
        image = self._metadata.image if self._metadata is not None else None
        led = {group for group, _ in self._host.led()}
        under = 0
        if image is not None:
            under = sum(len(p.isr) < len(p.replicas) for g, p in image.partitions.items() if g in led)
        return {
            "groups": len(self._host.replicas),
            "groups_led": len(led),
            "under_replicated_partitions": under,
            "active_controller": float(self._metadata is not None and self._metadata.controller is not None),
            "pending_produces": len(self._data.calls) if self._metadata is not None else 0,
            "parked_fetches": len(self._data.fetches) if self._metadata is not None else 0,
            "storage_used_bytes": self._space.last.used_bytes,
            "storage_free_bytes": self._space.last.free_bytes,
            "fenced": float(self._broker.fenced),
        }


def unformed_response(message: ProtoMessage, reason: str) -> ProtoMessage | None:
    """The answer to a client of a node that belongs to no cluster yet; None where none is awaited."""
    problem = error(ErrorCode.CLUSTER_NOT_FORMED, f"{reason}; try again shortly")
    if isinstance(message, data_plane_pb2.ProduceRequest):
        response = data_plane_pb2.ProduceResponse(correlation_id=message.correlation_id)
        for batch in message.batches:
            response.results.add(topic_id=batch.topic_id, partition=batch.partition, error=problem, base_offset=-1)
        return response if message.acks else None
    if isinstance(message, data_plane_pb2.FetchRequest):
        fetched = data_plane_pb2.FetchResponse(correlation_id=message.correlation_id)
        for wanted in message.partitions:
            fetched.results.add(topic_id=wanted.topic_id, partition=wanted.partition, error=problem)
        return fetched
    if isinstance(message, data_plane_pb2.ListOffsetsRequest):
        listed = data_plane_pb2.ListOffsetsResponse()
        for partition in message.partitions:
            listed.results.add(topic_id=partition.topic_id, partition=partition.partition, error=problem, offset=-1)
        return listed
    if isinstance(message, admin_pb2.CreateTopicsRequest):
        created = admin_pb2.CreateTopicsResponse()
        for topic in message.topics:
            created.results.add(name=topic.name, error=problem)
        return created
    if isinstance(message, data_plane_pb2.InitProducerIdRequest):
        return data_plane_pb2.InitProducerIdResponse(error=problem, producer_id=-1, producer_epoch=-1)
    if isinstance(message, admin_pb2.DescribeQuorumRequest):
        return admin_pb2.DescribeQuorumResponse(error=problem, leader_id=NO_NODE)
    assert isinstance(message, data_plane_pb2.MetadataRequest)
    return data_plane_pb2.MetadataResponse(controller_id=NO_NODE)
