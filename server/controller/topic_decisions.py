"""The controller's decisions on topics: each topic of a request is checked separately and becomes a command or an
error.

The checks here keep commands out of the log that could not succeed, and give the reason; conflicts between requests are
decided again when the commands are applied (``TopicTable``).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from quorumlog.server.access.mutation_quota import MutationQuota
from quorumlog.server.controller.coordinator_creation import CoordinatorPlan, plan_coordinators
from quorumlog.server.controller.decision import ControllerDecision, answer_now, refusal
from quorumlog.server.controller.replica_assignment import Placement, TopicLimits
from quorumlog.server.controller.topic_plans import plan_partitions, plan_topic, refuse_newer_configs
from quorumlog.server.controller.witness_placement import voters_of
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import ApplyResult, Topic
from quorumlog.server.metadata.topic_config import InvalidTopicConfigError, changed_configs
from quorumlog.server.metadata.topic_table import no_such_topic
from quorumlog.server.step.request_context import ANONYMOUS
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import admin_pb2, errors_pb2, metadata_log_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.topic_names import COORDINATOR_TOPICS

_Plan = metadata_log_pb2.MetadataCommand | errors_pb2.Error


@dataclass(slots=True, frozen=True)
class _UnderWay:
    """New replicas that are proposed. They count as load until they are applied, or so old that they must be lost."""

    expires: int
    placement: Placement
    is_applied: Callable[[], bool]


class TopicDecisions:
    """Decides on requests about topics.

    Arguments:
        image: the controller's image, read only here.
        rng: source of topic ids.
        patience_us: time after which a proposal that was not applied counts as lost.
        coordinators: configuration of the internal topic of consumer groups.
        voters: returns the current voters of the metadata group.
        quota: limits how many partitions principals create and delete.
    """

    def __init__(
        self,
        image: MetadataImage,
        rng: random.Random,
        limits: TopicLimits,
        patience_us: int,
        coordinators: CoordinatorPlan,
        voters: Callable[[], tuple[int, ...]],
        quota: MutationQuota,
    ) -> None:
        self._image = image
        self._rng = rng
        self._limits = limits
        self._patience_us = patience_us
        self._coordinators = coordinators
        self._voters = voters
        self._quota = quota
        self._under_way: list[_UnderWay] = []

    def decide(self, now: int, wall_ms: int, request: peer_pb2.ControllerRequest) -> ControllerDecision:
        """Decides on a request that creates, deletes or changes topics."""
        number = request.request_id
        kind = request.WhichOneof("body")
        wanted: list[tuple[str, Callable[[], _Plan]]]
        dry = False
        match kind:
            case "create_topics":
                wanted = [(t.name, partial(self._plan_creation, now, t)) for t in request.create_topics.topics]
                dry = request.create_topics.validate_only
            case "create_coordinators":
                coordinators = self._coordinators.of(request.create_coordinators.topic)
                if coordinators.topic not in COORDINATOR_TOPICS:
                    unknown = f"topic {coordinators.topic} has no coordinators: upgrade the controllers"
                    return refusal(number, error(ErrorCode.INVALID_REQUEST, unknown))
                kind = "create_topics"
                wanted = [(coordinators.topic, partial(self._plan_coordinators, now, coordinators))]
            case "create_partitions":
                wanted = [(t.name, partial(self._plan_partitions, now, t)) for t in request.create_partitions.topics]
                dry = request.create_partitions.validate_only
            case "alter_configs":
                wanted = [(t.name, partial(self._plan_configs, t)) for t in request.alter_configs.topics]
                dry = request.alter_configs.validate_only
            case _:
                assert kind == "delete_topics"
                named = request.delete_topics.names
                ids = request.delete_topics.topic_ids or [b""] * len(named)
                if len(ids) != len(named):
                    problem = f"{len(named)} names come with {len(ids)} ids: send one for each, or none"
                    return refusal(number, error(ErrorCode.INVALID_REQUEST, problem))
                wanted = [
                    (name, partial(self._plan_deletion, name, topic_id))
                    for name, topic_id in zip(named, ids, strict=True)
                ]
        names = [name for name, _ in wanted]
        if len(names) > self._limits.request_topics:
            problem = f"{len(names)} topics in one request: at most {self._limits.request_topics} are allowed"
            return refusal(number, error(ErrorCode.INVALID_REQUEST, problem))
        self._under_way = [each for each in self._under_way if now < each.expires and not each.is_applied()]
        before = list(self._under_way)
        times = Counter(names)
        # Nodes request coordinators for themselves, and a configuration changes no partition.
        is_limited = not dry and request.WhichOneof("body") not in ("create_coordinators", "alter_configs")
        principal = (request.principal or ANONYMOUS) if is_limited else None
        plans = [_named_twice(name, times[name]) or self._within_quota(now, principal, plan) for name, plan in wanted]
        commands = tuple(each for each in plans if isinstance(each, metadata_log_pb2.MetadataCommand))
        if dry or not commands:
            self._under_way = before
            return answer_now(number, _response(kind, names, plans, ()))
        for command in commands:
            command.timestamp_ms = wall_ms
        return ControllerDecision(
            number, commands=commands, merge=lambda results: _response(kind, names, plans, results)
        )

    def _within_quota(self, now: int, principal: str | None, plan: Callable[[], _Plan]) -> _Plan:
        """Plans a change, unless its principal has changed too many partitions already.

        Arguments:
            principal: None for a request without a quota.
        """
        if principal is None:
            return plan()
        refused = self._quota.refusal(now, principal)
        if refused is not None:
            return refused
        planned = plan()
        if isinstance(planned, metadata_log_pb2.MetadataCommand):
            self._quota.charge(now, principal, self._partitions_changed(planned))
        return planned

    def _partitions_changed(self, planned: metadata_log_pb2.MetadataCommand) -> int:
        if planned.HasField("delete_topic"):
            return len(self._image.topics_by_id[planned.delete_topic.topic_id].partitions)
        return len(planned.create_topic.partitions) + len(planned.add_partitions.partitions)

    # -- plans ----------------------------------------------------------------------------------------------------

    def _plan_creation(self, now: int, wanted: admin_pb2.NewTopic) -> _Plan:
        plan = plan_topic(self._image, self._placements(), wanted, self._rng, self._limits)
        if isinstance(plan, errors_pb2.Error):
            return plan
        self._begin(now, plan.partitions, lambda: plan.name in self._image.topics)
        return metadata_log_pb2.MetadataCommand(create_topic=plan)

    def _plan_coordinators(self, now: int, coordinators: CoordinatorPlan) -> _Plan:
        placements = self._placements()
        voters = self._voters()
        plan = plan_coordinators(self._image, placements, coordinators, voters, self._rng, self._limits)
        if isinstance(plan, errors_pb2.Error):
            return plan
        self._begin(now, plan.partitions, lambda: coordinators.topic in self._image.topics)
        return metadata_log_pb2.MetadataCommand(create_topic=plan)

    def _plan_partitions(self, now: int, wanted: admin_pb2.NewPartitions) -> _Plan:
        topic = self._changeable(wanted.name, wanted.topic_id)
        if isinstance(topic, errors_pb2.Error):
            return topic
        plan = plan_partitions(self._image, self._placements(), topic, wanted, self._limits)
        if isinstance(plan, errors_pb2.Error):
            return plan
        self._begin(now, plan.partitions, lambda: len(topic.partitions) > plan.first_number)
        return metadata_log_pb2.MetadataCommand(add_partitions=plan)

    def _plan_configs(self, wanted: admin_pb2.AlterTopicConfig) -> _Plan:
        topic = self._changeable(wanted.name, wanted.topic_id)
        if isinstance(topic, errors_pb2.Error):
            return topic
        try:
            factor = min(len(partition.replicas) for partition in topic.partitions)
            values = changed_configs(topic.configs, wanted.set, wanted.clear, factor)
        except InvalidTopicConfigError as problem:
            return error(ErrorCode.INVALID_CONFIG, str(problem))
        refused = refuse_newer_configs(self._image, values)
        if refused is not None:
            return refused
        body = metadata_log_pb2.ChangeTopicConfig(topic_id=topic.topic_id, set=values, clear=wanted.clear)
        return metadata_log_pb2.MetadataCommand(change_topic_config=body)

    def _plan_deletion(self, name: str, topic_id: bytes) -> _Plan:
        topic = self._changeable(name, topic_id)
        if isinstance(topic, errors_pb2.Error):
            return topic
        return metadata_log_pb2.MetadataCommand(delete_topic=metadata_log_pb2.DeleteTopic(topic_id=topic.topic_id))

    def _changeable(self, name: str, topic_id: bytes) -> Topic | errors_pb2.Error:
        topic = self._image.topic_table.named(name, topic_id)
        if topic is None:
            return no_such_topic(name)
        if topic.is_internal:
            return error(
                ErrorCode.INVALID_TOPIC, f"topic {name} belongs to the cluster itself: it cannot be changed or deleted"
            )
        return topic

    # -- proposed load --------------------------------------------------------------------------------------------

    def _placements(self) -> list[Placement]:
        return [each.placement for each in self._under_way]

    def _begin(
        self, now: int, replica_sets: Sequence[metadata_log_pb2.ReplicaSet], is_applied: Callable[[], bool]
    ) -> None:
        self._under_way.append(_UnderWay(now + self._patience_us, voters_of(replica_sets), is_applied))


def _named_twice(name: str, times: int) -> errors_pb2.Error | None:
    if times == 1:
        return None
    return error(ErrorCode.INVALID_REQUEST, f"topic {name} is {times} times in the request: name it once")


def _response(
    kind: str, names: Sequence[str], plans: Sequence[_Plan], results: Sequence[ApplyResult]
) -> peer_pb2.ControllerResponse:
    """Returns one outcome per topic in the request's order; planned ones take theirs from ``results`` if there are any.

    Arguments:
        kind: the field of requests and responses; its results have a name and an error.
    """
    response = peer_pb2.ControllerResponse()
    body = getattr(response, kind)
    body.SetInParent()
    applied = iter(results)
    for name, plan in zip(names, plans, strict=True):
        outcome = body.results.add()
        if isinstance(plan, errors_pb2.Error):
            outcome.error.CopyFrom(plan)
        elif results:
            outcome.CopyFrom(getattr(next(applied).response, kind).results[0])
        outcome.name = name
    return response
