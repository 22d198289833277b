"""A node as a member of its cluster: passes the events of a step to the services.

`Node` creates one when the node belongs to a cluster, and steps it. Everything here is synchronous, like the node.
"""

from __future__ import annotations

from collections.abc import Container

from quorumlog.server.groups.group_shard import GroupShard
from quorumlog.server.hosting.durable_raft_group import RaftGroupFactory
from quorumlog.server.hosting.partition_replica import PartitionReplica
from quorumlog.server.hosting.read_index import HeartbeatRounds
from quorumlog.server.metadata.records import METADATA_GROUP, ApplyResult
from quorumlog.server.node.append_guard import AppendGuard
from quorumlog.server.node.cluster_events import ClusterEvents
from quorumlog.server.node.controller_traffic import ControllerTraffic
from quorumlog.server.node.formation import Membership
from quorumlog.server.node.member_context import MemberContext
from quorumlog.server.node.member_services import MemberServices
from quorumlog.server.node.metadata_events import MetadataEvents
from quorumlog.server.node.metadata_member import MetadataMember
from quorumlog.server.node.readings import MemberReadings
from quorumlog.server.node.resources import NodeResources
from quorumlog.server.node.settings_in_effect import SettingsInEffect
from quorumlog.server.observability.metric_catalogue import Readings
from quorumlog.server.partition.partition import Partition
from quorumlog.server.partition.witness import PartitionWitness
from quorumlog.server.requests.metadata_staleness import ImageAge
from quorumlog.server.step.events import Effects, JobDone, PeerFrame
from quorumlog.server.step.node_service import StepTime
from quorumlog.server.transactions.transaction_shard import TransactionShard
from quorumlog.storage.transaction import RaftGroupState


class ClusterMember:
    """A cluster member: its replica of the metadata and its services.

    Arguments:
        state: the durable state of the metadata group.
        found: the durable state of partition replicas, by Raft group.
        time: the time of the current step; the node updates it.

    Attributes:
        metadata: this node's replica of the metadata.
        services: serve clients and have deadlines.
        settings: the settings that can be changed at run time.
    """

    def __init__(
        self,
        resources: NodeResources,
        membership: Membership,
        state: RaftGroupState,
        found: dict[int, RaftGroupState],
        time: StepTime,
    ) -> None:
        self._resources = resources
        self._time = time
        self._group_log = resources.log.named("server.groups")
        conditions = AppendGuard(resources, time)
        raft_groups = RaftGroupFactory(resources.options, resources.storage, resources.rng, resources.mender.take_up)
        self.metadata = MetadataMember(resources, membership, raft_groups, state, self, time.now)
        replica = self.metadata.replica
        self._traffic = ControllerTraffic(resources, self.metadata, time)
        context = MemberContext(
            resources,
            self.metadata,
            self._traffic,
            conditions,
            HeartbeatRounds(conditions.confirm_leadership),
            ImageAge(resources.options, replica, self._traffic.client, time.now),
            time,
        )
        self._image_age = context.image_age
        self._journal = ClusterEvents(replica.image, resources.log, time)
        self.services = MemberServices(context, raft_groups, self._replica_ended)
        self.settings = SettingsInEffect(context, self.services)
        self._events = MetadataEvents(context, self.services, self._journal, self.settings)
        self._readings = MemberReadings(context, self.services, self._journal.counts)
        self._start(found)

    def _start(self, found: dict[int, RaftGroupState]) -> None:
        """Opens the replicas that were found on disk, and starts stepping the metadata group."""
        resources, replicas, now = self._resources, self.services.replicas, self._time.now
        # The metadata of the last checkpoint: nothing may be applied after them for a long time.
        self.settings.follow()
        damage = resources.storage.opening_damage()
        replicas.endings.may_have_moved((*found, *damage.replicas))
        self._events.follow_lost_disks()
        self.metadata.join_rounds()
        resources.host.is_host = self._is_host
        resources.pace.throttle_of = self._throttle_of
        replicas.partitions.found(found, damage.replicas)
        replicas.damaged.say(now)
        for entry in damage.entries:
            resources.mender.take_up(entry)
        replicas.endings.find_deleted()
        replicas.partitions.reconcile(now)
        self.metadata.follow_groups(replicas.partitions)
        membership = self.metadata.membership
        resources.log("info", "cluster_joined", cluster_id=membership.cluster_id, controllers=len(membership.voters))
        self.metadata.open_first_term(now)

    def _is_host(self, raft_group: int, node: int) -> bool:
        """True if a node may have a replica of a Raft group according to the metadata."""
        if raft_group == METADATA_GROUP:
            return self.metadata.is_host(node)
        return self.services.replicas.partitions.is_host(raft_group, node)

    def _throttle_of(self, group: int) -> int | None:
        """Bytes per second to which copies of a Raft group are limited; None: no limit, as for the metadata."""
        record = self.metadata.replica.image.partitions.get(group)
        return record.throttle if record is not None else None

    # -- the step ---------------------------------------------------------------------------------------------

    def begin_step(self) -> None:
        """Starts a step of the node."""
        if self._journal.left_out:
            self._journal.begin_step()
        self.services.groups.begin_step(self._time.now, self._time.wall_ms)
        self.services.transactions.begin_step(self._time.now, self._time.wall_ms)

    def on_frame(self, peer: int, frame: PeerFrame) -> None:
        """Handles the parts of a peer's frame other than messages of Raft groups."""
        if frame.controller_requests or frame.controller_responses:
            self.services.in_order.deadlines_moved()
        for request in frame.controller_requests:
            self._traffic.on_request(peer, request)
        for response in frame.controller_responses:
            self._traffic.client.on_response(response)
        traces = self.services.logs.produce.traces
        if traces.by_request:
            traces.on_frame(peer, frame)

    def after_round(self, group: int) -> None:
        """Follows the role of a Raft group that was stepped, and answers the clients that waited for it."""
        if group == METADATA_GROUP:
            self.services.in_order.deadlines_moved()
            self._events.after_round()
            return
        services = self.services
        hosted = services.replicas.partitions[group]
        if not self.metadata.needed_links.is_current(group, hosted.raft.configuration):
            self.metadata.follow_group(group, hosted)
        if isinstance(hosted, Partition):
            services.logs.after_round(self._time.now, self._time.wall_ms, hosted)
        elif isinstance(hosted, GroupShard):
            services.groups.after_round(hosted)
            if self._group_log.debugs:
                self._group_log("debug", "coordinator_stepped", group=group, leads=hosted.leads)
        elif isinstance(hosted, TransactionShard):
            services.transactions.after_round(hosted)
        elif isinstance(hosted, PartitionWitness):
            self._shorten(hosted)
        if services.cluster.watches.is_watched:
            services.cluster.watches.after_round(hosted)
        leads = hosted.leads
        if leads != (group in self._journal.led):
            self._journal.follow(hosted, leads=leads)
        if leads and services.replicas.reports.needs_report(hosted):
            services.replicas.broker.report_soon(self._time.now)

    def on_job_done(self, event: JobDone) -> None:
        """Hands the result of a job to the service that started it."""
        now, replicas = self._time.now, self.services.replicas
        self.services.in_order.deadlines_moved()
        replicas.damaged.on_done(now, event)
        replicas.last_copy.on_done(event)
        self.services.logs.compactions.on_done(now, event)

    def _shorten(self, witness: PartitionWitness) -> None:
        up_to = witness.log_to_give_up(self._resources.options.limits.witness_traces)
        if up_to is not None:
            self._resources.host.give_up_log(witness.group, up_to)

    def _replica_ended(self, hosted: PartitionReplica) -> None:
        """Answers the clients that wait for a replica which this node no longer has."""
        self._journal.follow(hosted, leads=False)
        if isinstance(hosted, Partition):
            self.services.logs.produce.finish(hosted.end())
            self._readings.partitions.replica_ended(hosted)
        self.services.in_order.raft_group_gone(self._time.now, hosted.group)
        self.metadata.follow_group(hosted.group, None)

    def may_sleep(self, group: int, reachable: Container[int]) -> bool:
        """True if a led Raft group has nothing left to send outside its log.

        The metadata group never sleeps: its heartbeats confirm the age of every node's image.
        """
        replicas = self.services.replicas
        return group != METADATA_GROUP and replicas.reports.is_settled(replicas.partitions[group], reachable)

    def finish_step(self, effects: Effects) -> None:
        """Adds what the services hand over at the end of a step: audit lines, and streams that end or pause."""
        access = self.services.access
        throttle = self.services.pipeline.throttle
        if access.audit.lines:
            effects.audit = access.audit.take_lines()
        if access.admission.ended:
            effects.ended_streams = access.admission.take_ended()
        for fenced in (self.services.transactions.connections, self.services.groups.transactions.connections):
            if fenced.ended:
                effects.ended_streams += fenced.take_ended()
        if throttle.pauses:
            effects.stream_pauses = throttle.take_pauses()
        if self.settings.changed is not None:
            effects.settings = self.settings.take_changed()

    # -- the metadata -----------------------------------------------------------------------------------------

    def metadata_applied(self, result: ApplyResult) -> None:
        """Passes on the result of a command that was applied to the metadata."""
        self._events.metadata_applied(result)

    def metadata_restored(self) -> None:
        """Handles the replacement of the metadata by a snapshot."""
        self._events.metadata_restored()

    # -- state ------------------------------------------------------------------------------------------------

    def sees_topic(self, principal: str, name: str) -> bool:
        """True if a principal may see a topic of this name, should there be one."""
        return self.services.access.refusals.authorizer.sees_topic(principal, name)

    def not_ready(self) -> str:
        """Returns why this node does not serve yet, in one line; empty if it does."""
        return self.services.replicas.broker.not_ready()

    def is_cut_off(self, now: int) -> bool:
        """True if no controller has confirmed this node's metadata for so long that it counts as gone."""
        return now - self._image_age.confirmed_at > self._resources.options.broker_session_timeout_us

    def readings(self) -> Readings:
        """Returns the figures for metrics, by name."""
        return self._readings.take()
