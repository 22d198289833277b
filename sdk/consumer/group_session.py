"""Sends a member's heartbeats in the background, on the event loop.

One heartbeat always waits at the coordinator, which responds when it has changes, so that a partition changes owners
within a few round trips. Like the fetcher this is one object whose every event ends in :meth:`GroupSession.pump`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.connection import NodeConnection
from quorumlog.sdk.cluster.coordinators import STALE_COORDINATOR_ERRORS, CoordinatorCache
from quorumlog.sdk.cluster.outage_log import Outage
from quorumlog.sdk.consumer.group_membership import AssignmentChange, GroupMembership, MemberHeartbeat, MembershipState
from quorumlog.sdk.errors import QuorumlogError, UnknownServerError, UnreleasedInstanceIdError
from quorumlog.sdk.metrics.consumer_metrics import ConsumerMetrics
from quorumlog.v1 import groups_pb2

_log = logging.getLogger("quorumlog.sdk")


class GroupSession:
    """The connection between a membership and its coordinator.

    Arguments:
        clock: monotonic seconds.
        metrics: counts heartbeats.
        on_change: called after each event with the changes of the assignment, which may be empty.
        on_defect: called with an unexpected exception, which ends the session.
    """

    def __init__(
        self,
        membership: GroupMembership,
        cluster: Cluster,
        coordinators: CoordinatorCache,
        clock: Callable[[], float],
        metrics: ConsumerMetrics,
        on_change: Callable[[AssignmentChange], None],
        on_defect: Callable[[Exception], None],
    ) -> None:
        self.membership = membership
        self._group_id = membership.config.group_id
        self._cluster = cluster
        self._coordinators = coordinators
        self._clock = clock
        self._metrics = metrics
        self._on_change = on_change
        self._on_defect = on_defect
        self._stream: tuple[NodeConnection, int] | None = None
        self._finding: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._warned_of_twin = False
        self._outage = Outage(f"reaching the coordinator of consumer group {self._group_id}")
        self._closed = False

    def pump(self) -> None:
        """Does what is due. Called on the loop's thread, whenever something may have changed."""
        if not self._closed:
            self._guarded(self._pump)

    def _guarded(self, step: Callable[[], None]) -> None:
        """Runs a step. The caller of a poll receives its exception, so that it does not wait indefinitely."""
        try:
            step()
        except Exception as error:  # any exception is a defect
            self.close()
            self._on_defect(error)

    def _pump(self) -> None:
        now = self._clock()
        membership = self.membership
        change = membership.check_session(now)
        if change.lost:
            _log.warning(
                "consumer group %s: no answer of the coordinator within session_timeout_ms (%d ms): this member was"
                " removed and joins again", self._group_id, membership.config.session_timeout_ms,
            )  # fmt: skip
        late = membership.overdue(now)
        if late is not None:
            membership.unanswered(late, now)
            self._coordinators.forget(self._group_id)
        if membership.is_due(now):
            node = self._coordinators.known(self._group_id)
            if node is not None:
                self._send(node, now)
            elif self._finding is None:
                self._finding = self._cluster.in_background(self._find())
        self._arm_timer(now)
        self._on_change(change)

    def _send(self, node: NodeConnection, now: float) -> None:
        heartbeat = self.membership.heartbeat(now)
        assert heartbeat is not None, "it is due"
        self._metrics.beat(now)
        stream = (node, node.heartbeats.open())
        if stream != self._stream:
            self._stream = stream
            self.membership.coordinator_changed()
            heartbeat.request.full = True
        node.heartbeats.submit(heartbeat.request).add_done_callback(partial(self._answered, heartbeat))

    async def _find(self) -> None:
        try:
            await self._coordinators.require(self._group_id)
        except QuorumlogError as error:
            self._unreachable(error)
        finally:
            self._finding = None
        self.pump()

    def _unreachable(self, error: QuorumlogError) -> None:
        now = self._clock()
        if error.retriable:
            self._outage.failed(error, now)
            self.membership.unreachable(now)
        else:
            self._on_change(self.membership.refused(error, now))

    def _answered(self, heartbeat: MemberHeartbeat, future: asyncio.Future[groups_pb2.GroupHeartbeatResponse]) -> None:
        error = None if future.cancelled() else future.exception()
        if not self._closed and not future.cancelled():
            self._guarded(lambda: self._take_answer(heartbeat, future, error))

    def _take_answer(
        self,
        heartbeat: MemberHeartbeat,
        future: asyncio.Future[groups_pb2.GroupHeartbeatResponse],
        error: BaseException | None,
    ) -> None:
        now = self._clock()
        change = AssignmentChange()
        if error is not None:
            if not isinstance(error, QuorumlogError):
                error = UnknownServerError(f"the client failed: {error!r}")
            if isinstance(error, STALE_COORDINATOR_ERRORS):
                self._coordinators.forget(self._group_id)
            self._outage.failed(error, now)
            self.membership.unanswered(heartbeat, now)
        else:
            response = future.result()
            self._metrics.heard(now)
            refused = (
                self._coordinators.learn_from(self._group_id, response.error) if response.HasField("error") else None
            )
            if isinstance(refused, STALE_COORDINATOR_ERRORS):
                self._outage.failed(refused, now)
            else:
                self._outage.succeeded(now)
            if refused is not None:
                self._warn_of_twin(refused)
            was = self.membership.state
            change = self.membership.heard(heartbeat, response, now)
            if change.lost and self.membership.state is not MembershipState.REFUSED:
                _log.warning(
                    "consumer group %s: this member was thrown out and joins again: %s",
                    self._group_id,
                    response.error.message,
                )
            elif was is MembershipState.JOINING and self.membership.state is MembershipState.MEMBER:
                _log.info("consumer group %s: joined as %s", self._group_id, self.membership.member_id)
        self._on_change(change)
        self.pump()

    def _warn_of_twin(self, error: QuorumlogError) -> None:
        if isinstance(error, UnreleasedInstanceIdError) and not self._warned_of_twin:
            self._warned_of_twin = True
            _log.warning(
                "consumer group %s: this member waits, at most for about session_timeout_ms (%d ms): %s",
                self._group_id, self.membership.config.session_timeout_ms, error.message,
            )  # fmt: skip

    def _arm_timer(self, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.membership.next_at_s()
        if self._finding is not None:  # It pumps when it is done; until then only the session can end.
            due = self.membership.session_ends_s if self.membership.state is MembershipState.MEMBER else None
        if due is None:
            return
        self._timer = asyncio.get_running_loop().call_later(max(0.0, due - now), self.pump)

    def leave(self, limit_s: float) -> Coroutine[object, object, None]:
        """Ends the membership at once. The returned coroutine notifies the coordinator within a time limit; otherwise
        the group detects it by the session timeout."""
        leaving = self.membership.leave(self._clock())
        self.pump()
        return self._tell_of_leaving(leaving, limit_s)

    async def _tell_of_leaving(self, leaving: MemberHeartbeat | None, limit_s: float) -> None:
        if leaving is None:
            return

        async def attempt() -> None:
            node = await self._coordinators.require(self._group_id)
            response = await node.heartbeats.submit(leaving.request)
            if response.HasField("error"):
                raise self._coordinators.learn_from(self._group_id, response.error)

        with suppress(QuorumlogError):  # No longer known, or not reached: it is out of the group, or will be.
            await self._cluster.retrying(attempt, limit_s, "leaving the group")

    def close(self) -> None:
        """Stops the heartbeats."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._finding is not None:
            self._finding.cancel()
