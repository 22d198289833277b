"""A consumer-group membership like that of Kafka's clients (KIP-848), in place of the SDK's in a simulated member.

It reports only changes, has one heartbeat under way, gets news with its next one, and applies a new assignment in two
steps: first it revokes, then it takes the additional partitions. Newer assignments are applied after that. It does not
learn the duration of its session: it stops when it is notified of its removal. Its requests go through the shipped
mapping.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from quorumlog.sdk.consumer.group_membership import (
    ANSWER_PATIENCE_S,
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    AssignedTopic,
    AssignmentChange,
    GroupPartition,
    MemberHeartbeat,
    MembershipConfig,
    MembershipState,
    as_topic_partitions,
)
from quorumlog.server.kafka.codec.groups.consumer_group_requests import (
    ConsumerGroupHeartbeatRequest,
    OwnedTopicPartitions,
)
from quorumlog.server.kafka.codec.groups.consumer_group_responses import ConsumerGroupHeartbeatResponse
from quorumlog.server.kafka.handlers import consumer_groups
from quorumlog.server.kafka.handlers.error_codes import KafkaError
from quorumlog.server.kafka.handlers.handler import KafkaCall, Questions, Steps
from quorumlog.v1 import groups_pb2

_NOTHING = AssignmentChange()
_VERSION = 1
_OUT = (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.FENCED_MEMBER_EPOCH)
_RETRIED = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.REQUEST_TIMED_OUT,
)
#: Delay before a process that was permanently rejected is restarted (s).
_RESTART_S = 0.2


@dataclass(slots=True, eq=False)
class KafkaHeartbeat(MemberHeartbeat):
    """One heartbeat, and the steps in which it is served."""

    steps: Steps[ConsumerGroupHeartbeatResponse]


class KafkaMembership:
    """One member. Its attributes are those of ``GroupMembership``.

    Arguments:
        config: the session timeout is the nodes', which the member does not report.
    """

    def __init__(
        self, config: MembershipConfig, new_member_id: Callable[[], str], retry_delay_s: Callable[[int], float]
    ) -> None:
        self.config = config
        self.state = MembershipState.OUT
        self.member_id = ""
        self.member_epoch = JOIN_EPOCH
        self.owned: frozenset[GroupPartition] = frozenset()
        self.assigned: frozenset[GroupPartition] = frozenset()
        self.topics: Mapping[bytes, AssignedTopic] = {}
        self.session_ends_s = float("-inf")
        self._new_member_id = new_member_id
        self._retry_delay_s = retry_delay_s
        self._subscribed: tuple[str, ...] = ()
        self._pattern = ""
        self._said: dict[str, object] = {}
        self._saying: dict[str, object] = {}
        #: The assignment that is being applied; None if none exists.
        self._taking_up: frozenset[GroupPartition] | None = None
        self._in_flight: KafkaHeartbeat | None = None
        self._is_full = True
        self._is_known = False
        self._due_at_s = 0.0
        self._failures = 0

    # -- interface for the application --------------------------------------------------------------------------------

    def subscribe(self, topics: Collection[str], pattern: str = "") -> None:
        """Changes the subscription; reported immediately, or after the pending answer."""
        self._subscribed, self._pattern = tuple(sorted(topics)), pattern
        self._say_soon()

    def join(self, now_s: float) -> None:
        """Becomes a member."""
        if self.state is MembershipState.OUT:
            self.member_id = self._new_member_id()
            self._begin_anew(now_s)
        elif self.state is MembershipState.REFUSED:
            self._begin_anew(now_s + _RESTART_S)

    def release(self, partitions: Iterable[GroupPartition]) -> AssignmentChange:
        """Completes the revocation of partitions; after all revocations, it takes the additional partitions."""
        if self._taking_up is None:
            return _NOTHING
        self.owned -= self.owned.intersection(partitions) - self._taking_up
        return self._take_up()

    def leave(self, now_s: float) -> MemberHeartbeat | None:
        """Leaves the group; a static member will return."""
        known, self._is_known = self._is_known, False
        self.state = MembershipState.OUT
        epoch = LEAVE_STATIC_EPOCH if self.config.instance_id else LEAVE_EPOCH
        return (
            self._sent(ConsumerGroupHeartbeatRequest(self.config.group_id, self.member_id, epoch), now_s)
            if known
            else None
        )

    # -- requests to the coordinator ----------------------------------------------------------------------------------

    def heartbeat(self, now_s: float) -> MemberHeartbeat | None:
        """Returns the next heartbeat, if it is due."""
        is_in = self.state in (MembershipState.JOINING, MembershipState.MEMBER)
        if not is_in or self._in_flight is not None or now_s < self._due_at_s:
            return None
        joins = self.state is MembershipState.JOINING
        is_full = self._is_full or joins
        wishes: dict[str, object] = {
            "instance_id": self.config.instance_id or None,
            "rack_id": self.config.rack or None,
            "rebalance_timeout_ms": self.config.rebalance_timeout_ms,
            "subscribed_topic_names": list(self._subscribed),
            "subscribed_topic_regex": self._pattern,
            "server_assignor": self.config.assignor or None,
            "topic_partitions": sorted(self.owned),
        }
        changed = {name: value for name, value in wishes.items() if is_full or self._said.get(name) != value}
        said: dict[str, Any] = dict(changed)
        if "topic_partitions" in said:
            said["topic_partitions"] = [
                OwnedTopicPartitions(each.topic_id, each.partitions) for each in as_topic_partitions(self.owned)
            ]
        epoch = JOIN_EPOCH if joins else self.member_epoch
        self._saying = wishes
        self._is_full, self._is_known = False, True
        request = ConsumerGroupHeartbeatRequest(self.config.group_id, self.member_id, epoch, **said)
        self._in_flight = self._sent(request, now_s)
        return self._in_flight

    def _sent(self, request: ConsumerGroupHeartbeatRequest, now_s: float) -> KafkaHeartbeat:
        steps = consumer_groups.heartbeat(KafkaCall(request, _VERSION, cast("Any", None)))
        sent = next(steps)
        assert isinstance(sent, Questions)
        (question,) = sent.messages
        assert isinstance(question, groups_pb2.GroupHeartbeatRequest)
        return KafkaHeartbeat(question, now_s, now_s + ANSWER_PATIENCE_S, steps)

    def unreachable(self, now_s: float) -> None:
        """Abandons the pending request: the next heartbeat is a full one."""
        self._in_flight = None
        self._retry(now_s)

    def overdue(self, now_s: float) -> MemberHeartbeat | None:
        """Returns the heartbeat whose answer is late, if it is."""
        late = self._in_flight
        return late if late is not None and now_s >= late.answer_by_s else None

    def next_at_s(self) -> float | None:
        """Returns when to check again if nothing happens before."""
        if self.state not in (MembershipState.JOINING, MembershipState.MEMBER):
            return None
        return self._due_at_s if self._in_flight is None else self._in_flight.answer_by_s

    def check_session(self, now_s: float) -> AssignmentChange:
        """Returns no change: it has no session."""
        return _NOTHING

    # -- answers -------------------------------------------------------------------------------------------------------

    def heard(
        self, heartbeat: MemberHeartbeat, response: groups_pb2.GroupHeartbeatResponse, now_s: float
    ) -> AssignmentChange:
        """Handles an answer."""
        if heartbeat is not self._in_flight:
            return _NOTHING
        answer = _answer_to(self._in_flight, response)
        self._in_flight = None
        if answer.error_code != KafkaError.NONE:
            return self._refused(answer.error_code, now_s)
        self._said, self._failures = self._saying, 0
        self.state = MembershipState.MEMBER
        self.member_epoch = answer.member_epoch
        self.session_ends_s = heartbeat.sent_at_s + self.config.session_timeout_ms / 1000
        self._due_at_s = heartbeat.sent_at_s + answer.heartbeat_interval_ms / 1000
        if self._wants() != (self._said["subscribed_topic_names"], self._said["subscribed_topic_regex"]):
            self._say_soon()
        if answer.assignment is None:
            return _NOTHING
        # The names come from the metadata.
        named = {each.topic_id: AssignedTopic(each.topic, each.first_partitions) for each in response.assignment.topics}
        self.topics = {**self.topics, **named}
        self.assigned = frozenset(
            GroupPartition(each.topic_id, number)
            for each in answer.assignment.topic_partitions
            for number in each.partitions
        )
        return self._follow()

    def _follow(self) -> AssignmentChange:
        """Starts to apply the last received assignment, unless it is still applying an earlier one."""
        if self._taking_up is not None or self.owned == self.assigned:
            return _NOTHING
        self._taking_up = self.assigned
        revoked = self.owned - self._taking_up
        return AssignmentChange(revoked=revoked) if revoked else self._take_up()

    def _take_up(self) -> AssignmentChange:
        """Takes the additional partitions, once it has revoked all it must, and reports that."""
        wanted = self._taking_up
        assert wanted is not None
        if self.owned - wanted:
            return _NOTHING
        gained, self.owned, self._taking_up = wanted - self.owned, wanted, None
        self._say_soon()
        return AssignmentChange(gained, self._follow().revoked)

    def _refused(self, code: int, now_s: float) -> AssignmentChange:
        if code in _RETRIED:
            self._retry(now_s)
            return _NOTHING
        lost = self.owned
        if code in _OUT:
            failures = self._failures + 1
            self._begin_anew(now_s + self._retry_delay_s(failures))
            self._failures = failures
        else:
            self._begin_anew(now_s)
            self.state = MembershipState.REFUSED
        return AssignmentChange(lost=lost)

    def _wants(self) -> tuple[list[str], str]:
        return list(self._subscribed), self._pattern

    def _say_soon(self) -> None:
        self._due_at_s = 0.0

    def _retry(self, now_s: float) -> None:
        self._failures += 1
        self._due_at_s = now_s + self._retry_delay_s(self._failures)
        self._is_full = True

    def _begin_anew(self, due_at_s: float) -> None:
        self.state = MembershipState.JOINING
        self.member_epoch = JOIN_EPOCH
        self.owned = self.assigned = frozenset()
        self._in_flight = self._taking_up = None
        self._is_full = True
        self._failures = 0
        self._due_at_s = due_at_s


def _answer_to(
    heartbeat: KafkaHeartbeat, response: groups_pb2.GroupHeartbeatResponse
) -> ConsumerGroupHeartbeatResponse:
    """Returns the node's answer as translated by the mapping."""
    try:
        heartbeat.steps.send([response])
    except StopIteration as done:
        reported: ConsumerGroupHeartbeatResponse = done.value
        return reported
    raise AssertionError("a heartbeat is one question")
