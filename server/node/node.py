"""The node: one synchronous step from events to effects.

Nothing here waits, reads a clock or does I/O other than short reads of storage; so no step is ever suspended between
reading a term and using it, and the simulator runs this very code. The order within a step is the driver contract of
`quorumlog.raft`: messages that may precede the fsync are sent at once, all writes of all groups become one transaction,
and messages that depend on it wait until it is durable.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from quorumlog.raft.errors import MalformedMessageError, UnreadableEntryError
from quorumlog.raft.types import Heartbeat, InstallSnapshot, Message, Role, VoteRequest
from quorumlog.server.config.options import NodeOptions
from quorumlog.server.hosting.entry_repair import EntryRepair
from quorumlog.server.hosting.leases import Leases
from quorumlog.server.hosting.peer_queues import PeerQueues
from quorumlog.server.hosting.raft_host import HostedReplica, RaftHost
from quorumlog.server.hosting.replication_throttle import ReplicationThrottle
from quorumlog.server.hosting.snapshots import Snapshots
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.server.node.cluster_member import ClusterMember
from quorumlog.server.node.cluster_search import ClusterSearch
from quorumlog.server.node.description import describe_node
from quorumlog.server.node.directory_identity import DirectoryIdentity
from quorumlog.server.node.formation import Membership
from quorumlog.server.node.leader_heartbeats import LeaderHeartbeats, StorageStall
from quorumlog.server.node.readings import node_readings
from quorumlog.server.node.resources import NodeResources, StepLog
from quorumlog.server.node.scrub import Scrub
from quorumlog.server.node.space_watch import SpaceWatch
from quorumlog.server.node.stop_handover import Handover
from quorumlog.server.observability.metric_catalogue import Readings
from quorumlog.server.replicas.replica_tombstones import ReplicaTombstones
from quorumlog.server.replicas.retired_directories import RefusedDisks
from quorumlog.server.requests.error_responses import not_formed_response
from quorumlog.server.step.bearer_tokens import TokenKeys
from quorumlog.server.step.events import (
    ClientGone,
    ClientRequest,
    ClusterStanding,
    Effects,
    Event,
    FrameReceived,
    Halt,
    Job,
    JobDone,
    LogLine,
    LossAnswered,
    PeerConnected,
    PeerDisconnected,
    PeerFrame,
    PeerIdentified,
    PeerIdentity,
    StopRequested,
    StorageDone,
    StorageFailed,
    StreamClosed,
    TokenKeysRead,
)
from quorumlog.server.step.node_service import StepTime
from quorumlog.server.step.replies import Replies
from quorumlog.server.step.request_context import Listener
from quorumlog.storage.interface import DamageError, DiskFullError, StorageReader
from quorumlog.storage.transaction import RaftGroupState
from quorumlog.v1 import admin_pb2
from quorumlog.wire.entry import CorruptEntryError

#: Maximum number of early vote requests; the oldest is dropped for a new one.
MOST_EARLY_VOTES = 2_000


class EarlyVotes:
    """The newest vote request of each candidate for Raft groups without a replica here yet.

    A candidate may learn of a new partition before this node does. Its request is kept and answered once the metadata
    create the partition's replica here; otherwise the first election would take another election timeout.
    """

    def __init__(self) -> None:
        self._requests: dict[tuple[int, int], VoteRequest] = {}

    def keep(self, raft_group: int, request: VoteRequest) -> None:
        """Keeps a candidate's request for a vote."""
        self._requests[raft_group, request.sender] = request
        if len(self._requests) > MOST_EARLY_VOTES:
            del self._requests[next(iter(self._requests))]

    def take(self, raft_group: int) -> list[VoteRequest]:
        """Returns and forgets the requests kept for a Raft group."""
        keys = [key for key in self._requests if key[0] == raft_group]
        return [self._requests.pop(key) for key in keys]


class Node:
    """One node of the cluster.

    Arguments:
        storage: durable state, read synchronously.
        rng: for elections and ids.
        now: microseconds on the node's clock.
        wall_ms: milliseconds since the epoch.
        boot_id: random id of this process.

    Raises:
        ValueError: the storage belongs to another node.
    """

    def __init__(
        self, options: NodeOptions, storage: StorageReader, rng: random.Random, now: int, wall_ms: int, boot_id: int
    ) -> None:
        self._options = options
        self._storage = storage
        self._rng = rng
        self._boot_id = boot_id
        self._time = StepTime(now, wall_ms)
        self._effects = Effects()
        self._log = StepLog.of_node(options.log_level, self._add_line)
        self._replies = Replies()
        self._token_keys = TokenKeys()
        self._halted = False
        self._was_ready = False
        self._frame_acks: dict[int, int] = {}
        self._early_votes = EarlyVotes()
        self._retry_at: int | None = None
        self._retry_number = 0
        self._handover: Handover | None = None
        self._hosting_log = hosting = self._log.named("server.hosting")
        self._pace = ReplicationThrottle(options.limits.copy_bytes_per_second)
        self._links = PeerQueues(
            options.node_id, METADATA_GROUP, options.limits.frame_bytes, self._offer_snapshot, self._pace
        )
        self._host = RaftHost(self._links.enqueue)
        self._leases = Leases(boot_id, options.raft.election_timeout_us, self._host.touch)
        self._stall = StorageStall(options, self._host, self._links)
        self._heartbeats = LeaderHeartbeats(options, self._host, self._links, self._leases, self._stall, now)
        self._space = SpaceWatch(storage, options.limits, now, self._log)
        self._snapshots = Snapshots(
            options, self._host, storage, rng, self._pace, lambda: self._space.refusal() is None, self._on_message,
            hosting,
        )  # fmt: skip
        self._mender = EntryRepair(options.node_id, METADATA_GROUP, now, self._host, self._links, storage, hosting)
        rows, groups = storage.node_state(), storage.groups()
        self._scrub = Scrub(options.scrub, rows, self._host, storage, self._mender, self._start_job)
        self._former = ReplicaTombstones(options.node_id, self._host, rows)
        self._refused = RefusedDisks(self._host, rows)
        self._directory = DirectoryIdentity(options.node_id, rows, self._host, rng)
        self._search = ClusterSearch(options, self._directory, self._host, now, storage.moved_aside(), self)
        self._member: ClusterMember | None = None
        if self._directory.membership is not None:
            self._join(self._directory.membership, groups.pop(METADATA_GROUP), groups)

    # -- who this is ------------------------------------------------------------------------------------------

    @property
    def identity(self) -> PeerIdentity:
        """This node's identity for peers. Its directory id is empty until it is durable."""
        return PeerIdentity(
            self._cluster_id,
            self._options.node_id,
            self._directory.id if self._directory.is_durable and self._may_be_known else "",
            self._boot_id,
            self._options.address,
        )

    @property
    def _may_be_known(self) -> bool:
        return self._member is not None or self._search.may_found()

    @property
    def _cluster_id(self) -> str:
        return self._member.metadata.membership.cluster_id if self._member is not None else ""

    def standing(self, asker: int) -> ClusterStanding:
        """Returns this node's view of its cluster, for a node that searches for it.

        Arguments:
            asker: the node id of the requesting node.
        """
        if self._member is None:
            return ClusterStanding()
        metadata = self._member.metadata
        known = metadata.directory_of(asker) or ""
        replica = metadata.replica
        return ClusterStanding(metadata.voters(), known, replica.image.applied_index, replica.controller is None)

    def touch(self, group: int) -> None:
        """Includes a Raft group in the next step; for simulations that act on its replica between two steps."""
        self._host.touch(group)

    @property
    def replicas(self) -> Mapping[int, HostedReplica]:
        """The Raft groups with a replica here, by group id; for inspection."""
        return self._host.replicas

    @property
    def image(self) -> MetadataImage | None:
        """The metadata image; None before the node belongs to a cluster."""
        return self._member.metadata.replica.image if self._member is not None else None

    def sees_topic(self, principal: str, name: str) -> bool:
        """True if a principal may learn whether a topic with this name exists."""
        return self._member is not None and self._member.sees_topic(principal, name)

    def accepts_peer(self, identity: PeerIdentity) -> str | None:
        """Returns why a peer's streams are refused, in one line; None if they are accepted."""
        if self._member is None:
            return f"node {self._options.node_id} does not belong to a cluster yet; try again"
        return self._member.metadata.refuse_peer(identity)

    # -- the step ---------------------------------------------------------------------------------------------

    def step(self, now: int, wall_ms: int, events: list[Event]) -> Effects:
        """Processes events and returns their effects.

        Arguments:
            now: microseconds; never less than before.
            wall_ms: milliseconds since the epoch.
            events: in the order of their arrival.
        """
        assert now >= self._time.now, f"time went back from {self._time.now} to {now}"
        self._time.now, self._time.wall_ms = now, wall_ms
        if self._halted:
            return Effects()
        if self._member is not None:
            self._member.begin_step()
        try:
            for event in events:
                self._dispatch(event)
            self._on_time()
            self._settle()
            self._collect_frames(now)
        except CorruptEntryError as damage:
            self._halt(f"a log is damaged: {damage}; replace the disk with an empty one (quorumlog nodes replace)")
        except (DamageError, UnreadableEntryError) as damage:
            # Never served: a read that cannot be trusted, and that cannot wait, stops the node; the others continue.
            if isinstance(damage, DamageError) and damage.index is None:
                self._storage.suspect(damage.group)
            self._halt(str(damage))
        if self._member is not None and self._member.metadata.peers_changed:
            self._effects.connect = self._member.metadata.take_changed_peers(now)
        effects, self._effects = self._effects, Effects()
        effects.replies = self._replies.take_gathered()
        if self._member is not None:
            self._member.finish_step(effects)
        return effects

    def _dispatch(self, event: Event) -> None:
        match event:
            case FrameReceived():
                # A stream may have been accepted from a disk that has been given up since: frames from the old disk
                # must not be attributed to its replacement.
                if (event.peer, event.directory_id) not in self._refused:
                    self._on_frame(event.peer, event.frame)
            case ClientRequest():
                self._on_request(event)
            case StorageDone():
                self._host.on_durable(self._time.now, event.number)
                self._space.wrote(self._time.now)
            case StorageFailed():
                self._on_storage_failed(event)
            case PeerConnected():
                if (event.peer, event.identity.directory_id) not in self._refused:
                    self._on_connected(event.peer, event.identity)
            case PeerDisconnected():
                self._on_disconnected(event.peer)
            case PeerIdentified():
                self._search.on_identified(event)
            case LossAnswered():
                self._search.on_loss_answered(event)
            case JobDone():
                self._scrub.on_done(self._time.now, self._time.wall_ms, event)
                if self._member is not None:
                    self._member.on_job_done(event)
            case ClientGone():
                if self._member is not None:
                    self._member.services.in_order.client_gone(event.request_id)
            case StreamClosed():
                if self._member is not None:
                    self._member.services.in_order.stream_closed(event.stream)
            case TokenKeysRead():
                self._token_keys.verifier = event.verifier
            case StopRequested():
                self._stop()

    def _settle(self) -> None:
        """Runs rounds until nothing more can be done before the disk or a peer answers."""
        while True:
            groups = self._host.run_round()
            self._effects.groups.extend(groups)
            for group in groups:
                if group in self._host.replicas:
                    self._after_round(group)
            for peer, sequence in self._frame_acks.items():
                self._host.after_durable(self._acknowledge_frame(peer, sequence))
            self._frame_acks.clear()
            if self._effects.transaction is None and self._retry_at is None:
                self._effects.transaction = self._host.take_transaction(self._time.now)
            if not self._host.has_work:
                return

    def _collect_frames(self, now: int) -> None:
        """Collects the frames to send now. Entries and slices of snapshots take turns if one limit applies to both."""
        self._pace.begin(now)
        frames = self._effects.frames
        slices = self._snapshots.collect(now) if self._pace.snapshots_first else None
        frames.extend(self._links.collect(now, self._host, silent=self._stall.is_silent(now)))
        frames.extend(slices if slices is not None else self._snapshots.collect(now))
        if self._mender.frames:
            frames.extend(self._mender.collect())

    def _after_round(self, group: int) -> None:
        assert self._member is not None
        self._member.after_round(group)
        raft = self._host.replicas[group].raft
        if self._hosting_log.debugs:
            self._hosting_log(
                "debug", "raft_stepped", group=group, term=raft.term, leader=raft.leader_id,
                commit_index=raft.commit_index, last_index=raft.last_id.index,
            )  # fmt: skip
        self._leases.follow(self._time.now, group, raft)
        if raft.is_leader:
            self._links.mark(group, raft.configuration.members)

    def _acknowledge_frame(self, peer: int, sequence: int) -> Callable[[], None]:
        def acknowledge() -> None:
            link = self._links.find(peer)
            if link is not None:
                answer = self._links.data_answer(link)
                answer.acknowledged = max(answer.acknowledged, sequence)
                answer.sync_us = self._host.sync_us

        return acknowledge

    # -- time -------------------------------------------------------------------------------------------------

    def _on_time(self) -> None:
        now = self._time.now
        if self._retry_at is not None and now >= self._retry_at:
            self._retry_at = None
            self._effects.transaction = self._host.retry(self._retry_number)
        if now >= self._space.next_deadline:
            self._space.check(now)
        if now >= self._search.next_deadline:
            self._effects.identify.extend(self._search.whom_to_ask(now))
        if self._member is None:
            return
        self._leases.on_time(now)
        self._host.fire_timers(now)
        self._snapshots.on_time(now)
        self._mender.on_time(now)
        if now >= self._heartbeats.next_deadline:
            self._heartbeats.give(now, self._member)
        self._member.services.in_order.on_time(now, self._time.wall_ms)
        self._was_ready = self._was_ready or not self._member.not_ready()
        if self._was_ready:
            self._search.ask_while(now, is_cut_off=self._member.is_cut_off(now))
        if self._handover is not None and self._handover.on_time(now):
            self._halt(None)

    @property
    def next_deadline(self) -> int:
        """The time by which the node must be stepped again (µs)."""
        due = min(self._space.next_deadline, self._search.next_deadline)
        if self._retry_at is not None:
            due = min(due, self._retry_at)
        if self._member is None:
            return due
        due = min(due, self._heartbeats.next_deadline, self._leases.next_deadline)
        for deadline in (
            self._member.services.in_order.next_deadline,
            self._host.next_deadline,
            self._snapshots.next_deadline,
            self._pace.held_until,
            self._mender.next_deadline,
        ):
            if deadline is not None and deadline < due:
                due = deadline
        return min(due, self._handover.next_deadline) if self._handover is not None else due

    def check_deadlines(self) -> None:
        """Checks in a simulation that every deadline that has moved was announced.

        Raises:
            AssertionError: one was not.
        """
        if self._member is not None:
            self._member.services.in_order.check_deadlines()

    # -- peers ------------------------------------------------------------------------------------------------

    def _on_frame(self, peer: int, frame: PeerFrame) -> None:
        link = self._links[peer]
        link.heard = self._time.now
        if frame.acknowledged:
            link.acknowledge(frame.acknowledged)
        if frame.lease is not None:
            self._leases.heard(self._time.now, peer, frame.lease)
        for group, message in frame.messages:
            # An unreachable node must not lead for long: a leader whose own connections still work would keep its
            # followers from electing one that peers and clients can reach.
            if link.up or not isinstance(message, Heartbeat):
                self._on_message(group, message)
        if frame.sequence:
            self._frame_acks[peer] = frame.sequence
        if self._member is None:
            return
        if frame.chunks or frame.receipts:
            self._snapshots.on_frame(self._time.now, peer, frame)
        if frame.wanted or frame.entries_found:
            self._mender.on_frame(self._time.now, peer, frame)
        self._member.on_frame(peer, frame)

    def _on_message(self, group: int, message: Message) -> None:
        replica = self._host.replicas.get(group)
        if replica is None:
            if isinstance(message, VoteRequest) and not self._was_deleted(group):
                self._early_votes.keep(group, message)
            elif self._member is not None:
                self._member.services.replicas.damaged.hear(self._time.now, group, message)
            return
        if not self._host.may_speak(group, message.sender):
            # A stranger, such as a node with the wrong --controllers, may not take part in a group: it must not depose
            # its leader.
            return
        raft = replica.raft
        if raft.quiescent and message.sender != raft.leader_id and not raft.sleeps_through(message):
            self._leases.stir(self._time.now, raft)
        try:
            raft.step(self._time.now, message)
        except MalformedMessageError as malformed:
            self._log("error", "malformed_message", group=group, peer=message.sender, reason=str(malformed))
        except UnreadableEntryError:
            pass  # treated like a lost message: it is sent again, or superseded
        self._host.touch(group)

    def _offer_snapshot(self, now: int, group: int, message: InstallSnapshot) -> None:
        self._snapshots.sender.offer(now, group, message)

    def _deliver_early(self, group: int) -> None:
        for request in self._early_votes.take(group):
            self._on_message(group, request)

    def _was_deleted(self, group: int) -> bool:
        return self._member is not None and self._member.metadata.replica.image.topic_table.was_deleted(group)

    def _forget_group(self, group: int) -> None:
        """Forgets a group that no longer has a replica here: late messages to it are dropped."""
        self._early_votes.take(group)
        self._leases.forget(group)
        self._mender.group_gone(group)

    def _on_connected(self, peer: int, identity: PeerIdentity) -> None:
        self._links[peer].open(identity, self._time.now)
        self._log("info", "peer_connected", peer=peer)
        self._heartbeats.resend(self._time.now, peer)
        self._ask_again(peer)
        if self._member is not None:
            self._member.metadata.open_first_term(self._time.now)

    def _ask_again(self, peer: int) -> None:
        """Requests pre-votes again that a peer may not have received. Otherwise the first election of a new partition
        would wait for an election timeout if its nodes had no links before."""
        for group, replica in self._host.replicas.items():
            raft = replica.raft
            if raft.role is Role.PRE_CANDIDATE and peer in raft.configuration.electors:
                raft.campaign(self._time.now)
                self._host.touch(group)

    def _on_disconnected(self, peer: int) -> None:
        if self._links[peer].up:
            self._log("info", "peer_disconnected", peer=peer)
        self._links[peer].close()
        self._leases.lost(peer)
        self._snapshots.peer_lost(self._time.now, peer)
        is_stranger = True
        for group, replica in self._host.replicas.items():
            if peer in replica.raft.configuration.members:
                is_stranger = False
                replica.raft.peer_lost(self._time.now, peer)
                self._host.touch(group)
        if is_stranger:
            self._links.forget(peer)
            self._leases.forget_peer(peer)
        if self._member is not None:
            self._member.services.logs.peer_lost(peer)

    # -- the way into a cluster -------------------------------------------------------------------------------

    def found_cluster(self, membership: Membership, state: RaftGroupState) -> None:
        """Joins a cluster; no replica of a partition exists here yet."""
        self._join(membership, state, {})

    def report_loss(self, address: str, directory_id: str) -> None:
        """Requests that the cluster give up the damaged directory that this one replaces."""
        self._effects.report_loss.append((address, directory_id))

    def voters_reported(self, report: PeerIdentified) -> None:
        """Follows the voters of the metadata that a controller reports."""
        if self._member is not None:
            self._member.metadata.voters_reported(report)

    def returned_empty(self, reason: str) -> None:
        """Logs that the existing cluster identifies this node by another data directory, so that it has to wait."""
        self._log("warning", "returned_empty", reason=reason)

    def _join(self, membership: Membership, state: RaftGroupState, found: dict[int, RaftGroupState]) -> None:
        self._member = ClusterMember(self._resources(), membership, state, found, self._time)
        self._member.begin_step()

    def _resources(self) -> NodeResources:
        return NodeResources(
            options=self._options,
            directory_id=self._directory.id,
            boot_id=self._boot_id,
            host=self._host,
            links=self._links,
            space=self._space,
            snapshots=self._snapshots,
            mender=self._mender,
            scrub=self._scrub,
            storage=self._storage,
            rng=self._rng,
            replies=self._replies,
            log=self._log,
            start_job=self._start_job,
            deliver_early=self._deliver_early,
            forget_group=self._forget_group,
            former=self._former,
            pace=self._pace,
            refused=self._refused,
            token_keys=self._token_keys,
        )

    # -- clients ----------------------------------------------------------------------------------------------

    def _on_request(self, request: ClientRequest) -> None:
        message = request.message
        if self._member is not None:
            self._member.services.pipeline.serve(request)
        elif isinstance(message, admin_pb2.DescribeNodeRequest) and request.client.proof is not Listener.PASSWORD:
            # Any client that may connect may ask a node why it does not belong to a cluster yet.
            self._replies.reply(request.request_id, self.describe())
        else:
            response = not_formed_response(message, self.not_ready())
            if response is not None:
                self._replies.reply(request.request_id, response)

    # -- storage, stopping, reporting -------------------------------------------------------------------------

    def _start_job(self, job: Job) -> None:
        self._effects.jobs.append(job)

    def _on_storage_failed(self, event: StorageFailed) -> None:
        if isinstance(event.error, DiskFullError):
            self._log("error", "storage_full", reason=str(event.error))
            self._retry_number = event.number
            self._retry_at = self._time.now + self._options.storage_retry_us
            self._space.failed()
        else:
            self._halt(f"storage failed: {event.error}")

    def _stop(self) -> None:
        if self._member is None:
            self._halt(None)
        elif self._handover is None:
            self._log("info", "stopping", raft_groups_led=sum(1 for _ in self._host.led()))
            self._member.services.replicas.elections.stopping = True
            self._handover = Handover(
                self._options, self._host, self._links, self._member.services.replicas.broker, self._time.now
            )

    def _halt(self, reason: str | None) -> None:
        if not self._halted:
            self._halted = True
            self._effects.halt = Halt(reason)

    def _add_line(self, line: LogLine) -> None:
        self._effects.logs.append(line)

    def not_ready(self) -> str:
        """Returns why this node does not serve yet, in one line; empty if it does."""
        return self._member.not_ready() if self._member is not None else self._search.not_ready()

    def describe(self) -> admin_pb2.DescribeNodeResponse:
        """Returns a description of this node, for clients and the log."""
        if self._member is None:
            return describe_node(self._resources(), self.not_ready())
        return self._member.services.cluster.description.take()

    def readings(self) -> Readings:
        """Returns the figures for metrics, by name."""
        own = node_readings(self._options, self._host, self._space, self._mender, self._scrub)
        return {**own, **(self._member.readings() if self._member is not None else {"ready": 0.0, "fenced": 1.0})}
