"""This node as a member of the metadata's Raft group: its replica, the group's members, and their addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from quorumlog.raft.types import ORIGIN, Snapshot
from quorumlog.server.controller.controller import ControllerOptions
from quorumlog.server.controller.coordinator_creation import CoordinatorPlan
from quorumlog.server.controller.metadata_replica import MetadataListener, MetadataReplica, decode_applied
from quorumlog.server.hosting.durable_raft_group import RaftGroupFactory
from quorumlog.server.hosting.partition_replica import PartitionReplica
from quorumlog.server.hosting.raft_host import HostedReplica
from quorumlog.server.hosting.sealing import GroupSealer
from quorumlog.server.metadata.records import METADATA_GROUP, BrokerRecord
from quorumlog.server.node.formation import MOST_REPORTED_VOTERS, Membership, Voter
from quorumlog.server.node.metadata_quorum import MetadataQuorum
from quorumlog.server.node.needed_links import NeededLinks
from quorumlog.server.node.resources import NodeResources
from quorumlog.server.step.deadlines import earlier
from quorumlog.server.step.events import PeerIdentified, PeerIdentity
from quorumlog.server.step.node_service import ServiceHooks
from quorumlog.storage.transaction import RaftGroupState


@dataclass(slots=True, frozen=True)
class _ReportedVoters:
    """The voters of the metadata quorum according to another node, which has applied the metadata up to ``index``."""

    index: int = 0
    voters: tuple[Voter, ...] = ()


class MetadataMember:
    """Keeps this node's replica of the metadata.

    Arguments:
        state: the durable state of the metadata group.
        raft_groups: builds the Raft replica.
        listener: notified of changes of the metadata.

    Attributes:
        replica: the replicated state and, while this node leads the group, the controller.
        peers_changed: ``peers`` may have changed since they were last taken.
        needed_links: follows which nodes share Raft groups with this one.
    """

    def __init__(
        self,
        resources: NodeResources,
        membership: Membership,
        raft_groups: RaftGroupFactory,
        state: RaftGroupState,
        listener: MetadataListener,
        now: int,
    ) -> None:
        self._resources = resources
        self.membership = membership
        self.peers_changed = True
        self._known_peers: dict[int, str] = {}
        self._reported = _ReportedVoters()
        self.needed_links = NeededLinks(resources.options.node_id, resources.options.link_linger_us)
        self._deadline_moved: Callable[[], None] = lambda: None
        self.replica = self._open(raft_groups, state, listener, now)
        self._quorum = MetadataQuorum(self.replica, resources.host, resources.log)
        self._known_quorum = self.replica.raft.configuration, self.replica.image.quorum.voters

    def register(self, hooks: ServiceHooks) -> None:
        hooks.on_time(self.on_time)
        self._deadline_moved = hooks.deadline(self)

    def _open(
        self, raft_groups: RaftGroupFactory, state: RaftGroupState, listener: MetadataListener, now: int
    ) -> MetadataReplica:
        shared, sealer = self._resources, GroupSealer(METADATA_GROUP)
        raft = raft_groups.make(
            now, state, sealer, applied=state.anchor.index, committed=decode_applied(state.table),
            snapshot_source=self._snapshot_to_offer, votes_from=self.membership.votes_from,
        )  # fmt: skip
        groups = shared.options.groups
        options = ControllerOptions(
            session_timeout_us=shared.options.broker_session_timeout_us,
            raises_features=shared.options.raises_features,
            coordinators=CoordinatorPlan(groups.coordinators, groups.coordinators_factor),
            repair=shared.options.repair,
            authorization=shared.options.authorization,
        )
        return MetadataReplica(raft, sealer, state.snapshot, shared.storage, shared.rng, options, listener)

    def _snapshot_to_offer(self) -> Snapshot | None:
        """Returns the snapshot to offer to followers: the newest durable one, unless it is about to be superseded."""
        is_writing = self._resources.snapshots.checkpoints.is_writing(METADATA_GROUP)
        return None if is_writing else self.replica.snapshot

    def join_rounds(self) -> None:
        """Adds the group to those that the node steps."""
        hosted = HostedReplica(self.replica.raft, self.replica, lazy_commit=False)
        self._resources.host.add(METADATA_GROUP, hosted)

    def open_first_term(self, now: int) -> None:
        """Makes the node that decided on the formation campaign as soon as others are connected: no node leads yet."""
        raft = self.replica.raft
        first = min(node for node, _, _ in self.membership.voters)
        if self._resources.options.node_id == first and raft.last_id == ORIGIN and raft.term == 0:
            raft.campaign(now)
            self._resources.host.touch(METADATA_GROUP)

    def on_time(self, now: int, wall_ms: int) -> None:
        """Runs what is due in the controller, if it is active here, and in the quorum."""
        if self.replica.on_time(now, wall_ms):
            self._resources.host.touch(METADATA_GROUP)
        self._quorum.on_time(now)
        closing = self.needed_links.next_deadline
        if closing is not None and now >= closing:
            self.peers_changed = True

    @property
    def next_deadline(self) -> int | None:
        """The time at which ``on_time`` is due."""
        due = earlier(self.replica.next_deadline, self._quorum.next_deadline)
        return earlier(due, self.needed_links.next_deadline)

    def after_round(self, now: int) -> None:
        """Handles a step of the metadata group: the controller starts and stops with the leadership."""
        was_controller = self.replica.controller is not None
        self.replica.update_leadership(now)
        if self.replica.controller is not None:
            if not was_controller:
                self._resources.log("info", "controller_active", term=self.replica.raft.term)
            self._quorum.admit_learners(now)
        known = self.replica.raft.configuration, self.replica.image.quorum.voters
        if known != self._known_quorum:
            self._known_quorum = known
            self.peers_changed = True
        if self._reported.voters and self.replica.image.applied_index >= self._reported.index:
            self._reported = _ReportedVoters()
            self.peers_changed = True

    def voters_reported(self, report: PeerIdentified) -> None:
        """Follows the voters that a controller of this cluster reports, until this node's own metadata are as new.

        The quorum may have moved to nodes that were added while this node was away. Without the report it would take
        their leader for a stranger, and never get the metadata that contain it. Only answers from the configured
        addresses of controllers count, as when a node joins: a caller cannot make this node connect anywhere.
        """
        standing, applied = report.standing, self.replica.image.applied_index
        if report.identity.cluster_id != self.membership.cluster_id:
            return
        if standing.applied_index <= max(applied, self._reported.index):
            return
        self._reported = _ReportedVoters(standing.applied_index, standing.voters[:MOST_REPORTED_VOTERS])
        self.peers_changed = True
        if unknown := self._unknown_voters():
            self._resources.log(
                "info", "metadata_voters_reported", by=report.identity.node_id, index=standing.applied_index,
                unknown=[node for node, _, _ in unknown],
            )  # fmt: skip

    @property
    def reported_voters(self) -> tuple[int, ...]:
        """The voters that were reported, while this node's own metadata are older; otherwise empty."""
        return tuple(node for node, _, _ in self._reported.voters)

    def _unknown_voters(self) -> list[Voter]:
        """Returns the reported voters that are missing in the image.

        For all others the image decides: it may have given up the disk that was reported.
        """
        own_id, brokers = self._resources.options.node_id, self.replica.image.brokers
        return [voter for voter in self._reported.voters if voter[0] not in brokers and voter[0] != own_id]

    def is_host(self, node: int) -> bool:
        """True if a node has a replica of the metadata, regardless of the group's configuration: every registered node
        whose disk is not lost, and every voter that is newer than this node's metadata.

        A node that has lost its vote is not a member until it is a learner again. It may not have learned yet that the
        change is committed, and the group may need it to find out: based on what is on its disk it must still be able
        to receive votes and requests, request votes, and lead. If a node that has newer metadata refused it as a
        stranger, the group could stay without a leader forever (scenario 12).
        """
        broker = self.replica.image.brokers.get(node)
        if broker is None:
            return any(node == voter for voter, _, _ in self._reported.voters)
        return not broker.is_lost

    def checkpoint(self) -> None:
        """Writes a snapshot of the image when enough has been applied since the last one."""
        replica, snapshots = self.replica, self._resources.snapshots
        due = replica.entries_since_snapshot > self._resources.options.metadata_checkpoint_entries
        due = due or (replica.entries_since_snapshot > 0 and self._resources.mender.has_lost(METADATA_GROUP))
        if due and replica.is_durable and snapshots.may_checkpoint(METADATA_GROUP):
            snapshots.checkpoints.begin(
                METADATA_GROUP,
                replica.last_applied,
                replica.raft.configuration,
                replica.image.to_snapshot(),
                replica.checkpointed,
            )

    def follow_group(self, group: int, hosted: PartitionReplica | None) -> None:
        """Follows the members of a partition's Raft group, each of which may need a link.

        Arguments:
            hosted: the replica here; None without one.
        """
        record = self.replica.image.partitions.get(group)
        if self.needed_links.follow(group, record, None if hosted is None else hosted.raft.configuration):
            self.peers_changed = True

    def follow_groups(self, hosted: Iterable[PartitionReplica]) -> None:
        """Follows the members of all Raft groups again.

        Arguments:
            hosted: every replica of a partition here.
        """
        replicas = {replica.group: replica for replica in hosted}
        for group in {*self.needed_links.groups(), *self.replica.image.partitions, *replicas}:
            self.follow_group(group, replicas.get(group))

    def peers(self, now: int) -> dict[int, str]:
        """Returns the peers to keep streams to: the voters, and the registered brokers that share a Raft group with
        this node, at their registered addresses. A voter keeps streams to every registered broker.

        Also the voters that are newer than this node's metadata.
        """
        addresses = {node: address for node, _, address in self._unregistered_voters()}
        brokers = self.replica.image.brokers
        voters = {*self.replica.raft.configuration.electors, *self.replica.image.quorum.voters, *self.reported_voters}
        needed = self.needed_links.select(now, voters, brokers.keys())
        for broker in brokers.values():
            if broker.is_lost:
                # A node at that address is another one, or will connect on its own.
                addresses.pop(broker.node_id, None)
                continue
            if broker.node_id in needed:
                addresses[broker.node_id] = self._peer_address(broker)
        addresses.update((node, address) for node, _, address in self._unknown_voters())
        addresses.pop(self._resources.options.node_id, None)
        return addresses

    def voters(self) -> tuple[Voter, ...]:
        """Returns the voters of the metadata quorum in this node's metadata, for nodes that search for the cluster."""
        brokers, electors = self.replica.image.brokers, self.replica.raft.configuration.electors
        known = [brokers[node] for node in electors if node in brokers]
        registered = [(each.node_id, each.registration.directory_id, self._peer_address(each)) for each in known]
        return tuple(sorted([*registered, *self._unregistered_voters()]))

    def _peer_address(self, broker: BrokerRecord) -> str:
        host, port = broker.endpoint(self._resources.options.peer_listener)
        return f"{host}:{port}"

    def _unregistered_voters(self) -> list[Voter]:
        """Returns the voters that the image contains no address for.

        The founders' addresses are known from the membership; every later voter was registered before it could vote.
        """
        brokers, electors = self.replica.image.brokers, self.replica.raft.configuration.electors
        return [voter for voter in self.membership.voters if voter[0] in electors and voter[0] not in brokers]

    def take_changed_peers(self, now: int) -> dict[int, str] | None:
        """Returns the peers to keep streams to from now on; None: unchanged."""
        self.peers_changed = False
        peers = self.peers(now)
        self._deadline_moved()
        if peers == self._known_peers:
            return None
        self._known_peers = peers
        return dict(peers)

    def directory_of(self, node_id: int) -> str | None:
        """Returns the data directory by which a node is known."""
        broker = self.replica.image.brokers.get(node_id)
        if broker is not None:
            return None if broker.is_vacant else broker.registration.directory_id
        voters = (*self._unregistered_voters(), *self._unknown_voters())
        return next((directory for node, directory, _ in voters if node == node_id), None)

    def refuse_peer(self, peer: PeerIdentity) -> str | None:
        """Returns why the streams of a node are refused, in one line; None if they are accepted."""
        image, cluster_id = self.replica.image, self.membership.cluster_id
        own_id = self._resources.options.node_id
        if peer.cluster_id in image.former_cluster_ids:
            return (
                f"node {peer.node_id} returned from cluster {peer.cluster_id}, which was given up with its data"
                f" (quorumlog recover) and is {cluster_id} since: start the node with an empty data directory"
            )
        if peer.cluster_id != cluster_id:
            return (
                f"node {peer.node_id} belongs to cluster {peer.cluster_id or '(none)'}, node"
                f" {own_id} to {cluster_id}; check --controllers and --data-dir"
            )
        if peer.node_id == own_id:
            return f"node id {peer.node_id} is taken by this node; give every node its own id"
        if peer.node_id in image.departures.removed:
            return (
                f"node {peer.node_id} was removed from the cluster; give it an empty data directory and a new node id"
            )
        lost = image.lost_disks.refuse(peer.node_id, peer.directory_id)
        if lost is not None or (peer.node_id, peer.directory_id) in self._resources.refused:
            return lost or f"data directory {peer.directory_id} of node {peer.node_id} was given up as lost"
        known = self.directory_of(peer.node_id)
        if known is not None and known != peer.directory_id:
            return (
                f"node {peer.node_id} is known with data directory {known}, not {peer.directory_id};"
                " give it the directory that it had, or another node id"
            )
        return None
