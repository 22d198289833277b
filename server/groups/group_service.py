"""Consumer-group service: routes group requests to the coordinators led by this node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import get_args

from quorumlog.server.access.authorizer import TopicAccess
from quorumlog.server.deciding.dependencies import CoordinatorDependencies
from quorumlog.server.deciding.finder import CoordinatorFinder, unknown_type
from quorumlog.server.deciding.pending_answers import PendingAnswers
from quorumlog.server.groups.group_requests import GroupCalls, UnaryRequest
from quorumlog.server.groups.group_shard import GROUP_COORDINATORS, GroupShard
from quorumlog.server.groups.group_shards import GroupShards
from quorumlog.server.groups.group_transactions import GroupTransactions
from quorumlog.server.groups.member import JOIN_EPOCH
from quorumlog.server.groups.parked_heartbeats import HeartbeatCall, refused_heartbeat
from quorumlog.server.observability.metric_catalogue import MOST_OFFSETS, Readings
from quorumlog.server.step.deadlines import MAX_WAIT_US
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import ServiceHooks, StepTime
from quorumlog.server.step.request_context import RequestContext
from quorumlog.v1 import errors_pb2, groups_pb2
from quorumlog.v1.acls_pb2 import ACL_OPERATION_READ, ACL_RESOURCE_TOPIC


class GroupService:
    """The coordinators of a node, and the requests that they serve to members of consumer groups.

    Arguments:
        finders: find the coordinators of other kinds.

    Attributes:
        transactions: the consumer groups that this node leads, as participants of transactions.
    """

    def __init__(
        self,
        now: int,
        services: CoordinatorDependencies[GroupShard],
        finders: Mapping[groups_pb2.CoordinatorType.ValueType, CoordinatorFinder] | None = None,
    ) -> None:
        self._services = services
        self._answers = PendingAnswers(services.reply)
        self._shards = GroupShards(now, services)
        self._led = self._shards.led
        self._finder = CoordinatorFinder(
            GROUP_COORDINATORS,
            services.metadata,
            services.leaders,
            services.controller,
            self._answers,
            services.refusals,
        )
        self._finders = {groups_pb2.COORDINATOR_TYPE_GROUP: self._finder, **(finders or {})}
        options = services.options
        self._deadline_moved: Callable[[], None] = lambda: None
        self.transactions = GroupTransactions(self._led, services.metadata, self._has_to_decide)
        self._calls = GroupCalls(
            options.node_id,
            options.groups.limits,
            self._led,
            self._answers,
            services.refusals,
            self.transactions,
        )

    def _has_to_decide(self) -> None:
        """Announces that a coordinator has something to decide outside of its own events."""
        self._deadline_moved()

    def begin_step(self, now: int, wall_ms: int) -> None:
        """Starts a step of the node: sets the clocks."""
        self._led.clock.step(now, wall_ms)

    def register(self, hooks: ServiceHooks) -> None:
        hooks.serve(groups_pb2.GroupHeartbeatRequest, self._heartbeat)
        hooks.serve(groups_pb2.FindCoordinatorsRequest, self._find)
        for kind in get_args(UnaryRequest):
            hooks.serve(kind, self._call)
        hooks.after_events(self.after_events)
        self._deadline_moved = hooks.deadline(self)
        hooks.client_gone(self.client_gone)
        hooks.raft_group_gone(self.raft_group_gone)
        hooks.calls(self._answers.pending)

    def _find(self, time: StepTime, asked: ClientRequest, request: groups_pb2.FindCoordinatorsRequest) -> None:
        finder = self._finders.get(request.type)
        if finder is None:
            self._services.reply(asked.request_id, unknown_type(request.type))
        else:
            finder.find(time.now, asked, request)

    def _call(self, time: StepTime, asked: ClientRequest, request: UnaryRequest) -> None:
        self._calls.serve(time.now, asked, request)

    def _heartbeat(self, time: StepTime, asked: ClientRequest, request: groups_pb2.GroupHeartbeatRequest) -> None:
        request_id, client = asked.request_id, asked.client
        refused = self._refuse_topics(client, request)
        if refused is not None:
            self._services.reply(request_id, refused_heartbeat(request, refused))
            return
        keeper = self._led.keeper_of(request.group_id)
        if isinstance(keeper, errors_pb2.Error):
            self._services.reply(request_id, refused_heartbeat(request, keeper))
            return
        came = self._led.clock.awake_us
        wait = min(request.max_wait_ms * 1000, MAX_WAIT_US)
        keeper.heartbeat(HeartbeatCall(request_id, request, client, came, came + wait, self._services.reply))

    def _refuse_topics(
        self, client: RequestContext, request: groups_pb2.GroupHeartbeatRequest
    ) -> errors_pb2.Error | None:
        """Returns the error if a member names a topic that it may not subscribe to; None otherwise.

        A topic hidden from the member is not an error: the member waits for it to be created, as for any other. Names
        in a request to leave are not checked.
        """
        refusals = self._services.refusals
        if not refusals.authorizer.enforced or request.member_epoch < JOIN_EPOCH:
            return None
        for name in request.topics:
            if refusals.authorizer.topic_access(client.principal, ACL_OPERATION_READ, name) is TopicAccess.REFUSED:
                return refusals.refuse(client, ACL_OPERATION_READ, ACL_RESOURCE_TOPIC, name)
        return None

    def client_gone(self, request_id: int) -> None:
        """Forgets a request whose client is gone."""
        self._answers.forget(request_id)
        self._finder.client_gone(request_id)
        for leadership in self._led:
            leadership.client_gone(request_id)

    def after_round(self, coordinator: GroupShard) -> None:
        """Continues after a step of a coordinator's Raft group, and takes a snapshot if one is due."""
        self._led.after_round(coordinator)
        self._deadline_moved()
        options = self._services.options.groups
        coordinator.take_due_checkpoint(self._services.snapshots, options.checkpoint_entries, options.checkpoint_bytes)

    def metadata_changed(self) -> None:
        """Notifies the finder and the coordinators of a new metadata image."""
        self._finder.on_applied()
        self._shards.metadata_changed()

    def rights_changed(self) -> None:
        """Notifies the coordinators of changed ACLs."""
        self._shards.rights_changed()

    def keep_offsets_for(self, retention_ms: int) -> None:
        """Changes how long unused committed offsets are kept."""
        self._shards.keep_offsets_for(retention_ms)

    def raft_group_gone(self, now: int, group: int) -> None:
        """Ends the leadership of a coordinator whose replica was removed from this node."""
        self._led.end(group)
        self._services.rounds.forget(group)

    def after_events(self, now: int, wall_ms: int) -> None:
        """Answers expired requests and decides the calls of this step."""
        if self._answers.pending.deadlines:
            self._answers.on_time(now)
        self._led.on_time()
        if self._led.clock.stood_still:
            self._deadline_moved()

    @property
    def next_deadline(self) -> int | None:
        """Time at which the node must be stepped next."""
        return self._led.next_deadline

    def readings(self) -> Readings:
        """Returns figures for metrics, by name."""
        led = list(self._led)
        topics = self._services.metadata.image.topics_by_id
        offsets = (
            ((group.group_id, topics[topic_id].name, str(number)), float(stored.offset))
            for each in led
            for group in each.table.groups.values()
            for (topic_id, number), stored in group.offsets.items()
            if topic_id in topics
        )
        return {
            "consumer_group_committed_offset": dict(islice(offsets, MOST_OFFSETS)),
            "coordinators_led": len(led),
            "consumer_groups": sum(len(each.table.groups) for each in led),
            "consumer_group_members": sum(each.members for each in led),
            "parked_heartbeats": sum(each.parked for each in led),
        }
