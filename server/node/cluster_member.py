"""A node inside its cluster: the parts that belong to it are put together here, and told what happens.

`Node` makes one when the node belongs to a cluster, and steps it. Everything here is synchronous, like the node.
"""

from __future__ import annotations

import math
from collections.abc import Container

from quorumlog.raft.types import NO_NODE
from quorumlog.server.authentication.admission import Admission
from quorumlog.server.authentication.scram_sign_in import ScramSignIns
from quorumlog.server.authentication.sessions import Sessions
from quorumlog.server.authentication.sign_in_rules import SignInRules
from quorumlog.server.authentication.token_sign_in import TokenSignIns
from quorumlog.server.authorization.audit import AuditTrail
from quorumlog.server.authorization.authorizer import Authorizer
from quorumlog.server.authorization.refusals import Refusals
from quorumlog.server.authorization.whole_requests import refuse_whole
from quorumlog.server.broker.broker import Broker
from quorumlog.server.broker.damaged_replicas import DamagedReplicas
from quorumlog.server.broker.last_copy import LastCopyCheck
from quorumlog.server.broker.leader_elections import LeaderElections
from quorumlog.server.broker.leader_reports import LeaderReports
from quorumlog.server.broker.log_sizes import LogSizes
from quorumlog.server.broker.reassignments import Reassignments
from quorumlog.server.broker.replica_endings import ReplicaEndings
from quorumlog.server.broker.replica_factory import ReplicaFactory
from quorumlog.server.broker.replicas import Replicas
from quorumlog.server.coordinator.coordinator import Coordinator
from quorumlog.server.coordinator.coordinators import Coordinators
from quorumlog.server.coordinator.services import CoordinatorServices
from quorumlog.server.events import ClientRequest, Effects, JobDone, PeerFrame, PeerIdentity
from quorumlog.server.hosting.durable_raft_group import RaftGroupFactory
from quorumlog.server.hosting.partition_replica import PartitionReplica
from quorumlog.server.hosting.read_index import HeartbeatRounds
from quorumlog.server.metadata.records import METADATA_GROUP, ApplyResult
from quorumlog.server.metric_catalogue import Readings
from quorumlog.server.node.cluster_journal import ClusterJournal
from quorumlog.server.node.controller_traffic import ControllerTraffic
from quorumlog.server.node.formation import Membership
from quorumlog.server.node.log_services import LogServices
from quorumlog.server.node.metadata_member import MetadataMember
from quorumlog.server.node.readings import PartitionReadings, controller_readings
from quorumlog.server.node.resources import NodeResources
from quorumlog.server.node.serving_conditions import ServingConditions
from quorumlog.server.node_service import NodeServices, StepTime
from quorumlog.server.partition.partition import Partition
from quorumlog.server.partition.witness import PartitionWitness
from quorumlog.server.quotas.throttle import Throttle
from quorumlog.server.requests.absent_partitions import AbsentPartitions
from quorumlog.server.requests.acl_requests import AclRequests
from quorumlog.server.requests.cluster_changes import ClusterChanges
from quorumlog.server.requests.cluster_watches import ClusterWatches
from quorumlog.server.requests.credential_requests import CredentialRequests
from quorumlog.server.requests.elections import ElectionRequests
from quorumlog.server.requests.failed_responses import FAILED_RESPONSES
from quorumlog.server.requests.image_age import UNKNOWN_AGE_MS, ImageAge
from quorumlog.server.requests.linearizable_reads import MetadataReads
from quorumlog.server.requests.log_dirs import LogDirRequests
from quorumlog.server.requests.metadata_queries import MetadataQueries
from quorumlog.server.requests.producer_identities import ProducerIdentities
from quorumlog.server.requests.quorum_requests import QuorumRequests
from quorumlog.server.requests.quota_requests import QuotaRequests
from quorumlog.server.requests.rules_age import RulesAge
from quorumlog.server.requests.topics import TopicRequests
from quorumlog.storage.transaction import RaftGroupState
from quorumlog.v1 import errors_pb2


class ClusterMember:
    """A node's part in its cluster.

    Arguments:
        state: what is durable of the metadata group.
        found: replicas of partitions found on disk.
        time: of the step under way; the node keeps it up to date.

    Attributes:
        services: all of them, in the order in which they are told what happens.
        controller_traffic: requests to and from other nodes.
        admission: lets requests in.
        throttle: has those wait whose principal is over a quota.
        log_sizes: of what is led here.
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
        self._known_controller = NO_NODE
        self._known_level = 0
        conditions = ServingConditions(resources, time)
        rounds = HeartbeatRounds(conditions.confirm_leadership)
        raft_groups = RaftGroupFactory(resources.options, resources.storage, resources.rng, resources.mender.take_up)
        self.metadata = MetadataMember(resources, membership, raft_groups, state, self, time.now)
        metadata = self.metadata.replica
        factory = ReplicaFactory(raft_groups, resources.snapshots.checkpoints, resources.former, metadata)
        self.partitions = Replicas(
            resources.options.node_id, resources.directory_id, resources.host, resources.former, factory, metadata
        )
        self.log_sizes = LogSizes(resources.storage, resources.host, self.partitions)
        self._readings = PartitionReadings(resources.options.node_id, resources.host, self.partitions, self.log_sizes)
        self._journal = ClusterJournal(metadata.image, resources.log, time)
        self._known_rights = metadata.image.acls.index
        self._reports = LeaderReports(resources.options, resources.host, self.partitions, metadata, self.log_sizes)
        self.controller_traffic = ControllerTraffic(resources, metadata, time)
        self._image_age = ImageAge(resources.options, metadata, self.controller_traffic.client, time.now)
        self._audit = AuditTrail(resources.options.authorization.audited, time, metadata, self._image_age)
        self._refusals = Refusals(Authorizer(resources.options.authorization, metadata), self._audit)
        if resources.options.authorization.audited:
            resources.replies.listener = self._audit
        self._sessions = Sessions(resources.rng, resources.options.session_lifetime_us)
        self.admission = Admission(metadata, self._sessions, resources.options.authorization.token_users)
        sign_in_rules = SignInRules(resources.options.authorization, metadata, self._sessions, self._audit)
        self._sign_ins = ScramSignIns(sign_in_rules, resources.replies, resources.rng)
        self._token_sign_ins = TokenSignIns(sign_in_rules, resources.token_keys, resources.replies)
        rules_age = RulesAge(resources.options.authorization, self._image_age, time)
        absent = AbsentPartitions(metadata, self._refusals, rules_age)
        self.throttle = Throttle(metadata, time, self)
        self.logs = LogServices(resources, self.partitions, metadata, rounds, conditions, absent, self.throttle, time)
        self._make_broker()
        self._make_other_services(rounds)
        self.services = self._in_order()
        assert self.services.kinds == FAILED_RESPONSES.keys(), "every kind of request is served, and can fail"
        self._take_part(found)

    def _make_broker(self) -> None:
        """What places, moves and ends this node's replicas as the metadata say."""
        shared, options, host, links = (
            self._resources, self._resources.options, self._resources.host, self._resources.links,
        )  # fmt: skip
        controller = self.controller_traffic.client
        self.broker = Broker(
            options, shared.directory_id, shared.boot_id, controller, self._reports, self.metadata.replica
        )
        self.damaged_replicas = DamagedReplicas(
            options.node_id, host, self.partitions, shared.former, self.metadata.replica, shared.storage,
            shared.start_job, links.enqueue, shared.log,
        )  # fmt: skip
        self.elections = LeaderElections(options, host, links, self.partitions, shared.log, self._time.now)
        self._last_copy = LastCopyCheck(shared.storage, shared.mender, shared.start_job, shared.log)
        self._reassignments = Reassignments(
            options, host, self.partitions, self.broker, controller, self._last_copy, shared.log
        )
        self._endings = ReplicaEndings(
            host, self.partitions, shared.snapshots, shared.former, self._replica_ended, shared.forget_group, shared.log
        )

    def _make_other_services(self, rounds: HeartbeatRounds) -> None:
        """What clients ask of the cluster as a whole, and of coordinators."""
        shared, options = self._resources, self._resources.options
        metadata, controller = self.metadata.replica, self.controller_traffic.client
        limit = options.limits.controller_requests
        self._metadata_reads = MetadataReads(options, metadata, controller, rounds)
        self._topic_requests = TopicRequests(
            metadata, controller, self._metadata_reads, limit, shared.replies, self._refusals
        )
        self._acl_requests = AclRequests(
            metadata, controller, self._metadata_reads, limit, shared.replies, self._refusals
        )
        self._credential_requests = CredentialRequests(
            metadata, controller, self._metadata_reads, limit, shared.replies
        )
        self._quota_requests = QuotaRequests(metadata, controller, self._metadata_reads, limit, shared.replies)
        self._changes = (
            self._topic_requests, self._acl_requests, self._credential_requests, self._quota_requests,
        )  # fmt: skip
        self._metadata_queries = MetadataQueries(
            self.metadata.membership.cluster_id,
            metadata,
            self._image_age,
            self.partitions,
            self._metadata_reads,
            shared.replies,
            self._refusals,
        )
        self._log_dir_requests = LogDirRequests(
            options.data_dir, shared.space, self.partitions, self.log_sizes, shared.replies
        )
        self._watches = ClusterWatches(
            shared.boot_id, self._time, metadata, self._metadata_queries, self._refusals.authorizer, self.partitions,
            self.log_sizes, shared.replies,
        )  # fmt: skip
        self._producer_identities = ProducerIdentities(self.broker, controller, shared.replies, self._refusals)
        self._quorum_requests = QuorumRequests(
            options.node_id, self._time, metadata, controller, shared.links, shared.replies
        )
        self._cluster_changes = ClusterChanges(controller, shared.replies)
        self._election_requests = ElectionRequests(self.partitions, controller, shared.replies)
        self._coordinators = Coordinators(self._time.now, CoordinatorServices(
            options, metadata, self.partitions.coordinators, self.partitions, controller, shared.host, rounds,
            shared.snapshots, shared.replies.reply, self._refusals,
        ))  # fmt: skip
        self.controller_traffic.declare("describe_quorum", self._quorum_requests.on_describe_quorum)
        self.controller_traffic.declare("elect_preferred_leaders", self.elections.order)
        self.controller_traffic.declare("metadata_read_index", self._metadata_reads.serve)

    def _in_order(self) -> NodeServices:
        """The order is part of what a node does: a simulation that is run again takes the same steps."""
        return NodeServices(
            (
                self.controller_traffic.client,
                self.broker,
                self.metadata,
                self.logs.produce,
                self.logs.fetches,
                self.logs.checkpoints,
                self.logs.retention,
                self.logs.compactions,
                self.logs.compaction_proposals,
                self.logs.record_deletions,
                self.logs.restores,
                self.logs.offset_requests,
                self._topic_requests,
                self.admission,
                self.throttle,
                self._sign_ins,
                self._token_sign_ins,
                self._acl_requests,
                self._credential_requests,
                self._quota_requests,
                self.elections,
                self._election_requests,
                self._reassignments,
                self._metadata_reads,
                self._image_age,
                self._metadata_queries,
                self._log_dir_requests,
                self._watches,
                self._producer_identities,
                self._quorum_requests,
                self._cluster_changes,
                self.logs.producer_expiry,
                self.logs.deleted_producers,
                self._coordinators,
                self._resources.scrub,
                self.damaged_replicas,
                self._audit,
            )
        )

    def _take_part(self, found: dict[int, RaftGroupState]) -> None:
        """All is put together: the replicas that were found begin, and the metadata group is stepped."""
        membership = self.metadata.membership
        damage = self._resources.storage.opening_damage()
        self._endings.may_have_moved((*found, *damage.replicas))
        self._follow_lost_disks()
        self.metadata.join_rounds()
        self._resources.host.is_host = self._is_host
        self._resources.pace.throttle_of = self._throttle_of
        self.partitions.found(found, damage.replicas)
        self.damaged_replicas.say(self._time.now)
        for entry in damage.entries:
            self._resources.mender.take_up(entry)
        self._endings.find_deleted()
        self.partitions.reconcile(self._time.now)
        self._resources.log(
            "info", "cluster_joined", cluster_id=membership.cluster_id, controllers=len(membership.voters)
        )
        self.metadata.open_first_term(self._time.now)

    def _is_host(self, raft_group: int, node: int) -> bool:
        """Whether the metadata say that a node may have a replica of a Raft group."""
        if raft_group == METADATA_GROUP:
            return self.metadata.is_host(node)
        return self.partitions.is_host(raft_group, node)

    # -- the step ---------------------------------------------------------------------------------------------

    def begin_step(self) -> None:
        """A step of the node begins."""
        self._journal.begin_step()
        self._coordinators.begin_step(self._time.now, self._time.wall_ms)

    def on_frame(self, peer: int, frame: PeerFrame) -> None:
        """A frame came from a peer, and the Raft groups have taken their messages: what else is in it."""
        for request in frame.controller_requests:
            self.controller_traffic.on_request(peer, request)
        for response in frame.controller_responses:
            self.controller_traffic.client.on_response(response)
        if self.logs.produce.traces:
            self.logs.produce.traces.on_frame(peer, frame)

    def after_round(self, group: int) -> None:
        """A Raft group was stepped: follows its role, and tells clients what has become possible."""
        if group == METADATA_GROUP:
            self._after_metadata_round()
            return
        hosted = self.partitions[group]
        if isinstance(hosted, Partition):
            self.logs.after_round(self._time.now, self._time.wall_ms, hosted)
        elif isinstance(hosted, Coordinator):
            self._coordinators.after_round(hosted)
        elif isinstance(hosted, PartitionWitness):
            self._shorten(hosted)
        if self._watches:
            self._watches.after_round(hosted)
        leads = hosted.leads
        self._journal.follow(hosted, leads=leads)
        if leads and self._reports.needs_report(hosted):
            self.broker.report_soon(self._time.now)

    def on_job_done(self, event: JobDone) -> None:
        """A piece of work is done that was started for one of the services."""
        now = self._time.now
        self.damaged_replicas.on_done(now, event)
        self._last_copy.on_done(event)
        self.logs.compactions.on_done(now, event)

    def _shorten(self, witness: PartitionWitness) -> None:
        up_to = witness.log_to_give_up(self._resources.options.limits.witness_traces)
        if up_to is not None:
            self._resources.host.give_up_log(witness.group, up_to)

    def _after_metadata_round(self) -> None:
        now, raft = self._time.now, self.metadata.replica.raft
        self.metadata.after_round(now)
        if raft.leader_id != self._known_controller:
            self._known_controller = raft.leader_id
            self._watches.controller_changed()
            if raft.leader_id == NO_NODE:
                self._resources.log("warning", "metadata_leader_lost", term=raft.term)
            else:
                self._resources.log("info", "metadata_leader", leader=raft.leader_id, term=raft.term)
            self.broker.controller_changed(now)
        self._metadata_reads.after_round()
        self._image_age.after_round()
        self._coordinators.metadata_changed()
        self._follow_rights(now)
        self._endings.leave(now)
        self.logs.deleted_producers.metadata_changed(now)
        self.metadata.checkpoint()

    def _follow_rights(self, now: int) -> None:
        """Rules may have changed: who may not go on with what they have begun is told."""
        rights = self.metadata.replica.image.acls.index
        if rights != self._known_rights:
            self._known_rights = rights
            self.logs.fetches.rights_changed(now)
            self._coordinators.rights_changed()
        if self._watches:
            self._watches.rights_may_have_changed()
        self.admission.metadata_changed()
        self.throttle.metadata_changed()

    def may_sleep(self, group: int, reachable: Container[int]) -> bool:
        """Whether nothing is left to be said of a led Raft group beside its log.

        The metadata group never sleeps: its heartbeats confirm to every node how old its image may be.
        """
        return group != METADATA_GROUP and self._reports.is_settled(self.partitions[group], reachable)

    def _throttle_of(self, group: int) -> int | None:
        """Bytes per second to which copies of a Raft group are limited; the metadata wait for nothing."""
        record = self.metadata.replica.image.partitions.get(group)
        return record.throttle if record is not None else None

    def serve(self, request: ClientRequest) -> None:
        """Has a client's request served, if its client may ask for it, once it is under its quotas."""
        if not self.throttle.holds(request):
            self._serve_now(request)

    def serve_held(self, request: ClientRequest, credentials_index: int) -> None:
        """Has a request served that has waited, if its client is still let in."""
        refused = self.admission.refuse_held(request, credentials_index)
        if refused is None:
            self._serve_now(request)
        elif not request.stream:
            self._resources.replies.reply(request.request_id, refused)

    def answer_without_records(self, request: ClientRequest) -> None:
        """A fetch has waited for as long as it may."""
        self.logs.fetches.answer_without_records(self._time, request)

    def refuse_throttled(self, request: ClientRequest, problem: errors_pb2.Error) -> None:
        """Another request has."""
        response = FAILED_RESPONSES[type(request.message)](request.message, problem)
        if response is not None:
            self._resources.replies.reply(request.request_id, response)
        else:
            self.logs.produce.dropped(self._time, problem)

    def _serve_now(self, request: ClientRequest) -> None:
        refused = self.refuse(request)
        if refused is not None:
            response = FAILED_RESPONSES[type(request.message)](request.message, refused)
            assert response is not None, "what is refused as a whole is answered"
            self._resources.replies.reply(request.request_id, response)
            return
        self._audit.change_begins(request)
        self.services.serve(self._time, request)

    def lets_in(self, request: ClientRequest) -> bool:
        """Whether a request belongs to somebody who is let in, which is said on it. A stream that is not let in ends,
        and every other call is refused."""
        refused = self.admission.admit(self._time.now, request)
        if refused is not None and not request.stream:
            self._resources.replies.reply(request.request_id, refused)
        return refused is None

    def hand_over(self, effects: Effects) -> None:
        """A step is over: what is to be written into the audit log, and the streams that are to end, or to be
        read no further."""
        effects.audit = self._audit.take_lines()
        effects.ended_streams = self.admission.take_ended()
        effects.stream_pauses = self.throttle.take_pauses()

    def refuse(self, request: ClientRequest) -> errors_pb2.Error | None:
        """Why a client may not ask for anything of the kind; None if it may, or may ask for some of it."""
        return refuse_whole(self._refusals, request)

    def sees_topic(self, principal: str, name: str) -> bool:
        """Whether a principal may know of a topic of this name, if there is one."""
        return self._refusals.authorizer.sees_topic(principal, name)

    def refusal_of(self, peer: PeerIdentity) -> str | None:
        """Why a peer's streams are refused, in one line; None when they are welcome."""
        own, cluster_id = self._resources.options.node_id, self.metadata.membership.cluster_id
        if peer.cluster_id in self.metadata.replica.image.former_cluster_ids:
            return (
                f"node {peer.node_id} comes back from cluster {peer.cluster_id}, which was given up with its data"
                f" (quorumlog recover) and is {cluster_id} since: start the node with an empty data directory"
            )
        if peer.cluster_id != cluster_id:
            return (
                f"node {peer.node_id} belongs to cluster {peer.cluster_id or '(none)'}, node"
                f" {own} to {cluster_id}; check --controllers and --data-dir"
            )
        if peer.node_id == own:
            return f"node id {peer.node_id} is taken by this node; give every node its own id"
        if peer.node_id in self.metadata.replica.image.departures.removed:
            return (
                f"node {peer.node_id} was removed from the cluster; give it an empty data directory and a new node id"
            )
        lost = self.metadata.replica.image.lost_disks.refuse(peer.node_id, peer.directory_id)
        if lost is not None or (peer.node_id, peer.directory_id) in self._resources.refused:
            return lost or f"data directory {peer.directory_id} of node {peer.node_id} was given up as lost"
        known = self.metadata.directory_of(peer.node_id)
        if known is not None and known != peer.directory_id:
            return (
                f"node {peer.node_id} is known with data directory {known}, not {peer.directory_id};"
                " give it the directory that it had, or another node id"
            )
        return None

    # -- what becomes of the metadata -------------------------------------------------------------------------

    def metadata_applied(self, result: ApplyResult) -> None:
        """A command was applied to the metadata."""
        level = self.metadata.replica.image.feature_level
        if level != self._known_level:
            self._known_level = level
            self._resources.log("info", "feature_level", feature_level=level)
        image = self.metadata.replica.image
        self._journal.applied(image, result, is_controller=self.metadata.replica.controller is not None)
        if self._watches:
            self._watches.metadata_applied(result)
        for topic in result.deleted:
            self._endings.deleted(record.group for record in topic.partitions)
        for group in sorted(result.changed_groups):
            self.partitions.ensure(self._time.now, group)
            self.partitions.metadata_changed(self._time.now, group)
            self._resources.deliver_early(group)
        self._endings.may_have_moved(result.changed_groups)
        if result.brokers_changed:
            self.metadata.peers_changed = True
            self._follow_lost_disks()
            # Of a node that was to return empty, what was created meanwhile is meant for the disk it has now.
            self.partitions.reconcile(self._time.now)
        for changes in self._changes:
            changes.on_applied()

    def metadata_restored(self) -> None:
        """A snapshot has replaced the metadata."""
        self._journal.start_from(self.metadata.replica.image)
        if self._watches:
            self._watches.begin_anew()
        self.metadata.peers_changed = True
        self._follow_lost_disks()
        self._endings.find_deleted()
        self._endings.may_have_moved(self.partitions.held)
        self.partitions.reconcile(self._time.now)
        for partition in self.partitions:
            self.partitions.metadata_changed(self._time.now, partition.group)
        for changes in self._changes:
            changes.on_applied()

    def _follow_lost_disks(self) -> None:
        """Disks may have been given up: what they send is heard no more, also after a restart."""

        def kept(index: int) -> None:
            self.broker.lost_index = max(self.broker.lost_index, index)

        self._resources.refused.follow(self.metadata.replica.image, kept)

    def _replica_ended(self, hosted: PartitionReplica) -> None:
        """This node has no replica of a partition any more: whoever waits for it is told."""
        self._journal.follow(hosted, leads=False)
        if isinstance(hosted, Partition):
            self.logs.produce.finish(hosted.end())
            self._readings.replica_ended(hosted)
        self.services.raft_group_gone(self._time.now, hosted.group)

    # -- state ------------------------------------------------------------------------------------------------

    def not_ready(self) -> str:
        """Why this node does not serve yet, in one line; empty when it does."""
        if not self.broker.registered:
            return self.broker.refusal or "not registered with the controller yet"
        return "the controller has not let this node in yet" if self.broker.fenced else ""

    def readings(self) -> Readings:
        """Figures for metrics, by name."""
        metadata = self.metadata.replica
        counts, age_ms = self._journal.counts, self._image_age.bound_ms(self._time.now)
        return {
            "active_controller": float(metadata.controller is not None),
            "metadata_leader_known": float(metadata.raft.leader_id != NO_NODE),
            "metadata_age_seconds": math.inf if age_ms == UNKNOWN_AGE_MS else age_ms / 1_000,
            "feature_level": float(metadata.image.feature_level),
            "leader_elections": counts.leader_elections,
            "isr_shrinks": counts.isr_shrinks,
            "isr_expansions": counts.isr_expansions,
            "brokers_fenced": counts.brokers_fenced,
            "pending_produces": len(self.logs.produce),
            "parked_fetches": len(self.logs.fetches),
            "fetch_sessions": len(self.logs.fetches.sessions),
            "password_sessions": len(self._sessions),
            "throttled_seconds": self.throttle.throttled_seconds.readings(),
            "authorization_refusals": self._audit.refusals.readings(),
            "producer_names": len(metadata.image.named_producers),
            "ready": float(not self.not_ready()),
            "fenced": float(self.broker.fenced),
            "replicas_set_aside": len(self.partitions.set_aside),
            **self._readings.take(metadata.image),
            **(controller_readings(metadata.image) if metadata.controller is not None else {}),
            **self._coordinators.readings(),
        }
