"""The active controller: decisions before anything is proposed to the metadata log.

It exists on the node that leads group 0, once that has applied everything up to an entry of its own term, and is
dropped when that node stops leading. It validates requests, places replicas and watches brokers; conflicts between
requests are decided again when a command is applied (``MetadataImage.apply``). Pure: time and randomness are arguments.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from quorumlog.raft.types import Configuration
from quorumlog.server.access.mutation_quota import MutationQuota
from quorumlog.server.config.options import AuthorizationOptions, RepairOptions
from quorumlog.server.controller.access_decisions import AclDecisions, CredentialDecisions, decide_on_quotas
from quorumlog.server.controller.auto_repair import AutoRepair
from quorumlog.server.controller.broker_liveness import BrokerLiveness
from quorumlog.server.controller.coordinator_creation import CoordinatorPlan
from quorumlog.server.controller.decision import ControllerDecision, answer_now, refusal
from quorumlog.server.controller.disk_replacement import DiskReplacement
from quorumlog.server.controller.feature_levels import FeatureLevels, refuse_below_second
from quorumlog.server.controller.forwarded_requests import ControllersImage, ForwardedRequests
from quorumlog.server.controller.node_decisions import NodeDecisions, decide_on_node_settings
from quorumlog.server.controller.node_drain import NodeDrain
from quorumlog.server.controller.quorum_decisions import QuorumDecisions
from quorumlog.server.controller.reassignment_decisions import ReassignmentDecisions
from quorumlog.server.controller.rebalance_decisions import RebalanceDecisions
from quorumlog.server.controller.replica_assignment import TopicLimits
from quorumlog.server.controller.topic_decisions import TopicDecisions
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.producer_names import check_claim, check_deletion, check_restored_names
from quorumlog.server.metadata.records import BrokerRecord
from quorumlog.server.step.deadlines import earlier
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import admin_pb2, errors_pb2, metadata_log_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode


@dataclass(slots=True, frozen=True)
class ControllerOptions:
    """Times in microseconds, and limits.

    Arguments:
        session_timeout_us: time without a heartbeat after which a broker is fenced.
        request_changes: maximum number of leader reports or ISR changes in one request.
        brokers: maximum number of nodes in one cluster.
        topics: limits for topics.
        coordinators: configuration of the internal topic of consumer groups.
        raises_features: True if the feature level rises automatically.
        repair: automatic moves.
        authorization: authorization of clients.
    """

    session_timeout_us: int = 3_000_000
    request_changes: int = 20_000
    brokers: int = 1_000
    topics: TopicLimits = field(default_factory=TopicLimits)
    coordinators: CoordinatorPlan = field(default_factory=CoordinatorPlan)
    raises_features: bool = True
    repair: RepairOptions = field(default_factory=RepairOptions)
    authorization: AuthorizationOptions = field(default_factory=AuthorizationOptions)


class Controller:
    """Decides on requests and on brokers' liveness.

    Arguments:
        image: the node's own image, read only here; the node applies committed commands to it.
        now: microseconds on the node's clock. Every broker's session starts now.
        rng: source of topic ids.
        options: times and limits.
        members: returns the current members of the metadata group.
        is_changing: returns True if the log may have a change of the members that is not effective yet.
    """

    def __init__(
        self,
        image: MetadataImage,
        now: int,
        rng: random.Random,
        options: ControllerOptions,
        members: Callable[[], Configuration],
        is_changing: Callable[[], bool] = lambda: False,
    ) -> None:
        def voters() -> tuple[int, ...]:
            return members().electors

        self._image = image
        self._rng = rng
        self._options = options
        self._forwarded = ForwardedRequests(options.authorization, image)
        self._acls = AclDecisions(image)
        self._credentials = CredentialDecisions(image, options.authorization.super_users, rng)
        self._liveness = BrokerLiveness(image, now, options.session_timeout_us)
        self._reassignments = ReassignmentDecisions(image, options.topics)
        self._quorum = QuorumDecisions(image, voters)
        self._features = FeatureLevels(image, options.raises_features)
        self._evacuation = NodeDrain(image, voters, options.topics, options.session_timeout_us)
        #: Sizes of the logs of partitions in bytes, by group, as their leaders report them. A new controller receives
        #: them again.
        self._sizes: dict[int, int] = {}
        self._rebalance = RebalanceDecisions(image, self._sizes)
        self._repair = AutoRepair(image, self._sizes, self._evacuation, options.repair, options.session_timeout_us, now)
        self._disks = DiskReplacement(image, members, self._liveness, options.session_timeout_us)
        self._nodes = NodeDecisions(image, voters, self._evacuation, is_changing, self._sizes, self._disks)
        self._topics = TopicDecisions(
            image, rng, options.topics, options.session_timeout_us, options.coordinators, voters,
            MutationQuota(ControllersImage(image)),
        )  # fmt: skip

    @property
    def next_deadline(self) -> int:
        """Latest time at which ``on_time`` is due, in microseconds."""
        moves = earlier(self._evacuation.next_deadline, self._repair.next_deadline)
        others = earlier(moves, self._disks.next_deadline)
        return self._liveness.next_deadline if others is None else min(self._liveness.next_deadline, others)

    def on_time(self, now: int, wall_ms: int) -> list[metadata_log_pb2.MetadataCommand]:
        """Returns the commands that are due because of the time or of heartbeats. Due as soon as ``next_deadline`` is
        reached, which a request just handled may have moved to ``now``.

        Arguments:
            wall_ms: milliseconds since the epoch, for the commands.
        """
        fence, unfence = self._liveness.due(now)
        commands = []
        if fence:
            commands.append(_fence(wall_ms, fence))
        if unfence:
            body = metadata_log_pb2.UnfenceBrokers(brokers=_identities(unfence))
            commands.append(metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, unfence_brokers=body))
        if self._features.is_due():
            commands.append(self._features.raising(wall_ms))
        commands += self._evacuation.due(now, wall_ms)
        commands += self._repair.due(now, wall_ms)
        commands += self._disks.due(now, wall_ms)
        return commands

    def handle(self, now: int, wall_ms: int, request: peer_pb2.ControllerRequest) -> ControllerDecision:
        """Decides on one request; of a client's request, on the part for which the client is authorized.

        Arguments:
            now: microseconds on the node's clock.
            wall_ms: milliseconds since the epoch.
        """
        return self._forwarded.decide(request, lambda permitted: self._decide(now, wall_ms, permitted))

    def _decide(self, now: int, wall_ms: int, request: peer_pb2.ControllerRequest) -> ControllerDecision:
        number = request.request_id
        match request.WhichOneof("body"):
            case "register_broker":
                return self._register(number, wall_ms, request.register_broker)
            case "heartbeat":
                return self._heartbeat(number, now, wall_ms, request.heartbeat)
            case "report_leaders":
                return self._report_leaders(number, wall_ms, request.report_leaders)
            case "alter_isr":
                return self._alter_isr(number, wall_ms, request.alter_isr)
            case "allocate_producer_ids":
                return self._allocate(number, wall_ms, request.allocate_producer_ids)
            case "claim_producer":
                return self._claim(number, wall_ms, request.claim_producer)
            case "delete_producers":
                return self._delete_producers(number, wall_ms, request.delete_producers)
            case "restore_producer_names":
                return self._restore_producers(number, wall_ms, request.restore_producer_names)
            case "reassign_partitions":
                return self._reassignments.decide(wall_ms, number, request.reassign_partitions)
            case "rebalance_partitions":
                return self._rebalance.decide(wall_ms, number, request.rebalance_partitions)
            case "alter_node":
                return self._nodes.decide(wall_ms, number, request.alter_node)
            case "alter_quorum":
                return self._quorum.decide(wall_ms, number, request.alter_quorum)
            case "upgrade_features":
                return self._features.decide(wall_ms, number, request.upgrade_features)
            case "replicas_moved":
                return self._replicas_moved(number, wall_ms, request.replicas_moved)
            case "create_topics" | "delete_topics" | "create_partitions" | "alter_configs" | "create_coordinators":
                return self._topics.decide(now, wall_ms, request)
            case "create_acls":
                return self._acls.create(wall_ms, number, request.create_acls)
            case "delete_acls":
                return self._acls.delete(wall_ms, number, request.delete_acls)
            case "alter_user_scram_credentials":
                return self._credentials.alter_users(
                    wall_ms, number, request.principal, request.alter_user_scram_credentials
                )
            case "alter_revocations":
                return self._credentials.alter_revocations(wall_ms, number, request.alter_revocations)
            case "alter_client_quotas":
                return decide_on_quotas(self._image, wall_ms, number, request.alter_client_quotas)
            case "alter_node_settings":
                return decide_on_node_settings(self._image, wall_ms, number, request.alter_node_settings)
            case other:
                problem = error(
                    ErrorCode.INVALID_REQUEST, f"the controller does not answer {other or 'empty requests'}"
                )
                return refusal(number, problem)

    # -- brokers --------------------------------------------------------------------------------------------------

    def _register(self, number: int, wall_ms: int, registration: peer_pb2.RegisterBroker) -> ControllerDecision:
        refused = self._check_registration(registration) or self._image.check_registration(registration)
        if refused is not None:
            return refusal(number, refused)
        command = metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, register_broker=registration)
        return ControllerDecision(number, commands=(command,))

    def _check_registration(self, registration: peer_pb2.RegisterBroker) -> errors_pb2.Error | None:
        if registration.node_id < 0:
            problem = f"node id {registration.node_id} is negative"
        elif not 1 <= len(registration.directory_id) <= 64:
            problem = f"node {registration.node_id} has no data directory id of 1 to 64 characters"
        elif not 1 <= len(registration.host) <= 255 or not 1 <= registration.port <= 65535:
            problem = f"node {registration.node_id} has no address at which it can be reached"
        elif max(len(registration.rack), len(registration.machine)) > 255 or len(registration.version) > 64:
            problem = f"node {registration.node_id} has a rack, machine or version of unreasonable length"
        elif not registration.machine.isprintable():
            problem = f"the machine of node {registration.node_id} has a name that cannot be printed"
        elif registration.node_id not in self._image.brokers and len(self._image.brokers) >= self._options.brokers:
            problem = f"the cluster has {self._options.brokers} nodes, which is the limit"
        else:
            return None
        return error(ErrorCode.INVALID_REQUEST, problem)

    def _heartbeat(
        self, number: int, now: int, wall_ms: int, heartbeat: peer_pb2.BrokerHeartbeat
    ) -> ControllerDecision:
        stale = self._image.check_epoch(heartbeat.node_id, heartbeat.broker_epoch)
        if stale is not None:
            return refusal(number, stale)
        self._note_sizes(heartbeat)
        self._liveness.heard(
            now,
            heartbeat.node_id,
            applied_index=heartbeat.applied_index,
            stopping=heartbeat.stopping,
            lost_index=heartbeat.lost_index,
        )
        if heartbeat.stopping or self._features.is_due():
            commands = tuple(self.on_time(now, wall_ms))
            if commands:
                return ControllerDecision(number, commands=commands, merge=lambda _: self._heard(heartbeat))
        return answer_now(number, _heard(fenced=self._image.is_fenced(heartbeat.node_id)))

    def _note_sizes(self, heartbeat: peer_pb2.BrokerHeartbeat) -> None:
        partitions, sizes = self._image.partitions, self._sizes
        sizes.update({each.group: each.size_bytes for each in heartbeat.log_sizes if each.group in partitions})
        if len(sizes) > 2 * len(partitions):
            for group in [group for group in sizes if group not in partitions]:
                del sizes[group]

    def _heard(self, heartbeat: peer_pb2.BrokerHeartbeat) -> peer_pb2.ControllerResponse:
        return _heard(fenced=heartbeat.stopping or self._image.is_fenced(heartbeat.node_id))

    # -- partitions -----------------------------------------------------------------------------------------------

    def _report_leaders(self, number: int, wall_ms: int, body: peer_pb2.ReportLeaders) -> ControllerDecision:
        refused = self._image.check_epoch(body.node_id, body.broker_epoch) or self._check_count(len(body.reports))
        if refused is not None:
            return refusal(number, refused)
        refusals = [self._image.check_report(body.node_id, report) for report in body.reports]
        news = any(
            refused is None and not self._image.is_known_report(body.node_id, report)
            for report, refused in zip(body.reports, refusals, strict=True)
        )
        if not news:
            return self._unchanged(number, [report.group for report in body.reports], refusals)
        command = metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, report_leaders=body)
        return ControllerDecision(number, commands=(command,))

    def _alter_isr(self, number: int, wall_ms: int, body: peer_pb2.AlterIsr) -> ControllerDecision:
        refused = self._image.check_epoch(body.node_id, body.broker_epoch) or self._check_count(len(body.changes))
        if refused is not None:
            return refusal(number, refused)
        refusals = [self._image.check_isr_change(body.node_id, change) for change in body.changes]
        if all(refused is not None for refused in refusals):
            return self._unchanged(number, [change.group for change in body.changes], refusals)
        command = metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, alter_isr=body)
        return ControllerDecision(number, commands=(command,))

    def _replicas_moved(self, number: int, wall_ms: int, body: peer_pb2.ReplicasMoved) -> ControllerDecision:
        refused = self._image.check_epoch(body.node_id, body.broker_epoch) or self._image.moves.check_moved(body)
        if refused is not None:
            return refusal(number, refused)
        command = metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, replicas_moved=body)
        return ControllerDecision(number, commands=(command,))

    def _check_count(self, changes: int) -> errors_pb2.Error | None:
        limit = self._options.request_changes
        if changes <= limit:
            return None
        return error(ErrorCode.INVALID_REQUEST, f"{changes} changes in one request: at most {limit} are allowed")

    def _unchanged(self, number: int, groups: list[int], refusals: list[errors_pb2.Error | None]) -> ControllerDecision:
        """Answers immediately: the request would not change the image, so nothing needs to be written."""
        results = [self._image.change_result(group, refused) for group, refused in zip(groups, refusals, strict=True)]
        changes = peer_pb2.PartitionChangesResponse(results=results)
        return answer_now(number, peer_pb2.ControllerResponse(partition_changes=changes))

    def _allocate(self, number: int, wall_ms: int, body: peer_pb2.AllocateProducerIds) -> ControllerDecision:
        stale = self._image.check_epoch(body.node_id, body.broker_epoch)
        if stale is not None:
            return refusal(number, stale)
        command = metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, allocate_producer_ids=body)
        return ControllerDecision(number, commands=(command,))

    def _claim(self, number: int, wall_ms: int, body: peer_pb2.ClaimProducer) -> ControllerDecision:
        refused = check_claim(body)
        if refused is not None:
            return refusal(number, refused)
        known = self._image.named_producers.refusal(body)
        if known is not None:
            return answer_now(number, known)
        command = metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, claim_producer=body)
        return ControllerDecision(number, commands=(command,))

    def _delete_producers(
        self, number: int, wall_ms: int, request: admin_pb2.DeleteProducersRequest
    ) -> ControllerDecision:
        refused = check_deletion(request) or self._check_claims_known(request)
        if refused is not None:
            return refusal(number, refused)
        body = metadata_log_pb2.DeleteProducers(
            names=request.names, claimed_before_ms=request.claimed_before_ms, claims=request.claims
        )
        command = metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms)
        # A separate command: a node of a version without claims would delete the present holder of the name.
        (command.delete_producer_claims if request.claims else command.delete_producers).CopyFrom(body)
        return ControllerDecision(number, commands=(command,))

    def _restore_producers(
        self, number: int, wall_ms: int, request: admin_pb2.RestoreProducerNamesRequest
    ) -> ControllerDecision:
        refused = refuse_below_second(self._image, "producer names are restored") or check_restored_names(request)
        refused = refused or self._image.named_producers.check_restore(request.producers)
        if refused is not None:
            return refusal(number, refused)
        command = metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, restore_producer_names=request)
        return ControllerDecision(number, commands=(command,))

    def _check_claims_known(self, request: admin_pb2.DeleteProducersRequest) -> errors_pb2.Error | None:
        """Returns the error for a deletion by claims that older nodes would execute by names alone, which could take a
        name from its newer holder."""
        return refuse_below_second(self._image, "producer names are deleted") if request.claims else None


def _heard(*, fenced: bool) -> peer_pb2.ControllerResponse:
    return peer_pb2.ControllerResponse(heartbeat=peer_pb2.BrokerHeartbeatResponse(fenced=fenced))


def _identities(brokers: list[BrokerRecord]) -> list[metadata_log_pb2.BrokerIdentity]:
    return [metadata_log_pb2.BrokerIdentity(node_id=b.node_id, broker_epoch=b.epoch) for b in brokers]


def _fence(wall_ms: int, brokers: list[BrokerRecord]) -> metadata_log_pb2.MetadataCommand:
    body = metadata_log_pb2.FenceBrokers(brokers=_identities(brokers))
    return metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, fence_brokers=body)
