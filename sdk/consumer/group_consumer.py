"""A consumer's part in its group: reading follows the group's assignment, and processed records are committed.

Heartbeats and look-ups continue in the background, on the event loop. Everything that concerns the application happens
inside ``poll``: its listener is called with lost, revoked and assigned partitions, one :class:`RebalanceStep` after the
other. A revoked partition returns no records from the moment the coordinator revokes it; it is released at the next
poll, when its last records are processed and committed.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import Any

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.coordinators import CoordinatorCache
from quorumlog.sdk.consumer.assignment import Assignment, PartitionState, ReadOffsets, Start
from quorumlog.sdk.consumer.commits import Commits, Committer
from quorumlog.sdk.consumer.config import ConsumerConfig
from quorumlog.sdk.consumer.group_membership import (
    AssignmentChange,
    GroupMembership,
    GroupPartition,
    MembershipConfig,
    MembershipState,
)
from quorumlog.sdk.consumer.group_session import GroupSession
from quorumlog.sdk.consumer.subscription import Rebalance, RebalanceStep, Subscription
from quorumlog.sdk.errors import CommitFailedError, IllegalStateError, QuorumlogError, UnknownServerError
from quorumlog.sdk.metrics.consumer_metrics import ConsumerMetrics
from quorumlog.sdk.runtime.client_runtime import ClientRuntime
from quorumlog.sdk.types import OffsetAndMetadata, TopicPartition, TransactionToken

#: Time limit for leaving the group when a consumer closes.
LEAVE_TIMEOUT_S = 1.0

_log = logging.getLogger("quorumlog.sdk")


class GroupConsumer:
    """One consumer's membership of its group, its partitions, and its commits.

    Except for :attr:`pending` and :meth:`came_back` it belongs to the event loop.

    Arguments:
        runtime: source of time and member ids.
        metrics: counts events of the group.
        wake: wakes the fetcher.

    Attributes:
        subscription: the subscription of the membership; None with partitions assigned by hand, which needs no
            membership.
        pending: the next poll has a step or an error for the application.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        assignment: Assignment,
        runtime: ClientRuntime,
        metrics: ConsumerMetrics,
        wake: Callable[[], None],
    ) -> None:
        assert config.group_id is not None
        self._config = config
        self._cluster = cluster
        self._assignment = assignment
        self._clock = clock = runtime.monotonic_s
        self._metrics = metrics
        self._wake = wake
        coordinators = CoordinatorCache(cluster)
        self.membership = GroupMembership(
            MembershipConfig(
                config.group_id,
                instance_id=config.group_instance_id or "",
                rack=config.client_rack or "",
                assignor=config.group_assignor or "",
                session_timeout_ms=int(config.session_timeout_ms),
                rebalance_timeout_ms=int(config.max_poll_interval_ms),
                heartbeat_interval_ms=int(config.heartbeat_interval_ms),
            ),
            lambda: uuid.UUID(int=runtime.rng.getrandbits(128), version=4).hex,
            cluster.backoff.delay_s,
        )
        self._session = GroupSession(
            self.membership, cluster, coordinators, clock, metrics, self._changed, self._failed
        )
        self.commits = Commits(cluster, coordinators, config.group_id, config.request_timeout_ms / 1000)
        self.subscription: Subscription | None = None
        self.pending = False
        #: The partitions that the application works on, and those lost before the application was notified.
        self._active: dict[TopicPartition, GroupPartition] = {}
        self._lost: set[TopicPartition] = set()
        #: Partitions to announce to the application; partitions whose start is being looked up, and by which look-up.
        self._ready: dict[GroupPartition, tuple[TopicPartition, Start]] = {}
        self._preparing: dict[GroupPartition, object] = {}
        #: The id under which each topic was read last.
        self._topic_ids: dict[str, bytes] = {}
        self._step: RebalanceStep | None = None
        self._committed_before_release: set[TopicPartition] = set()
        self._losses = 0
        self._error: QuorumlogError | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._auto_commit: asyncio.Task[None] | None = None
        self._next_commit_s = clock() + config.auto_commit_interval_ms / 1000
        self._last_poll_s = clock()
        #: The current poll of the application.
        self._polling: object | None = None
        #: Partitions in a running revocation callback of the listener.
        self._being_told: set[TopicPartition] = set()
        self._committing: set[asyncio.Future[None]] = set()
        self._poll_timer: asyncio.TimerHandle | None = None

    # --- the application comes and goes --------------------------------------------------------------------------

    def came_back(self) -> bool:
        """Notes that the application called again, so that all returned records are processed. On the application's
        thread.

        Returns:
            True if it is time to commit them.
        """
        now = self._last_poll_s = self._clock()
        if not self._config.enable_auto_commit or now < self._next_commit_s:
            return False
        self._next_commit_s = now + self._config.auto_commit_interval_ms / 1000
        return True

    def begin_poll(self, poll: object) -> None:
        """Notes that the application waits in a poll, so that it counts as active. On the application's thread.

        Arguments:
            poll: identifies this poll.

        Raises:
            IllegalStateError: a poll is already in progress; its records would count as processed when this one starts.
        """
        if self._polling is not None:
            raise IllegalStateError(
                "another poll is under way: a rebalance listener may commit and seek, but not poll, and a consumer"
                " belongs to one thread or task at a time"
            )
        self._polling = poll

    def end_poll(self, poll: object) -> None:
        """Ends a poll, if it has started. On the application's thread."""
        if self._polling is poll:
            self._last_poll_s = self._clock()
            self._polling = None

    def out_of_date(self) -> bool:
        """True if rows taken for the application must no longer be returned to it. On the application's thread."""
        return self.pending or self._clock() >= self._assignment.valid_until_s

    def subscribe(self, subscription: Subscription) -> None:
        """Joins the group with a subscription, or changes the subscription."""
        self.subscription = subscription
        self._error = None
        self.membership.subscribe(subscription.topics, subscription.pattern)
        self._join()

    def _join(self) -> None:
        self.membership.join(self._clock())
        self._last_poll_s = self._clock()
        self._watch_polls()
        self._session.pump()

    def _watch_polls(self) -> None:
        """Leaves the group if the application does not poll for too long, so that others receive its partitions."""
        if self._poll_timer is not None:
            self._poll_timer.cancel()
            self._poll_timer = None
        if self.membership.state is MembershipState.OUT:
            return
        limit_s = self._config.max_poll_interval_ms / 1000
        now = self._clock()
        left_s = limit_s if self._polling is not None else self._last_poll_s + limit_s - now
        if left_s > 0:
            self._poll_timer = asyncio.get_running_loop().call_later(left_s, self._watch_polls)
            return
        _log.warning(
            "consumer group %s: poll was not called for max_poll_interval_ms (%g ms): this member leaves, and joins"
            " again at the next poll", self._config.group_id, self._config.max_poll_interval_ms,
        )  # fmt: skip
        lost = self.membership.owned
        self._run(self._session.leave(self._config.session_timeout_ms / 1000))
        self._changed(AssignmentChange(lost=lost))
        self.pending = True

    # --- answers of the coordinator -------------------------------------------------------------------------------

    def _changed(self, change: AssignmentChange) -> None:
        membership = self.membership
        if change.lost:
            self._losses += 1
            self._ready.clear()
            self._preparing.clear()
            self._committed_before_release.clear()
            self._lost.update(self._active)
        if membership.state is MembershipState.REFUSED and membership.error is not None:
            self._error = membership.error
        self._mark_revoked()
        unannounced = [place for place in change.revoked if place in self._ready or place in self._preparing]
        for place in unannounced:
            self._ready.pop(place, None)
            self._preparing.pop(place, None)
        if change.gained:
            self._prepare(change.gained)
        member = membership.state is MembershipState.MEMBER
        self._assignment.valid_until_s = membership.session_ends_s if member else float("inf")
        self._committed_before_release &= self._revoked()
        if unannounced:  # The application was never notified of them.
            self._release(unannounced)
        if self._to_tell():
            self.pending = True
            self._assignment.notify()

    def _mark_revoked(self) -> None:
        """Stops returning records of lost and revoked partitions."""
        with self._assignment.lock:
            for tp, place in self._active.items():
                state = self._assignment.states[tp]
                revoked = tp in self._lost or place not in self.membership.assigned
                if revoked and not state.revoked:
                    state.revoke()
                state.revoked = revoked

    def _to_tell(self) -> bool:
        return bool(self._lost or self._ready or self._error is not None or self._revoked())

    def _revoked(self) -> set[TopicPartition]:
        return {tp for tp, place in self._active.items() if place not in self.membership.assigned} - self._lost

    def _release(self, places: Iterable[GroupPartition]) -> None:
        again = self.membership.release(places)
        if again.gained:
            self._prepare(again.gained)
        self._session.pump()

    def _prepare(self, gained: Iterable[GroupPartition]) -> None:
        """Looks up the start of new partitions, in the background."""
        look_up = object()
        topics = self.membership.topics
        wanted = {place: TopicPartition(topics[place.topic_id].topic, place.partition) for place in sorted(gained)}
        self._preparing.update(dict.fromkeys(wanted, look_up))
        self._cluster.watch_topics({tp.topic for tp in wanted.values()})
        if any(self._cluster.metadata.partition(*tp) is None for tp in wanted.values()):
            self._cluster.request_refresh()
        firsts = {place: topics[place.topic_id].first_partitions for place in wanted}
        self._run(self._look_up(wanted, firsts, look_up))

    async def _look_up(
        self, wanted: Mapping[GroupPartition, TopicPartition], firsts: Mapping[GroupPartition, int], look_up: object
    ) -> None:
        failures = 0
        while True:
            try:
                committed = await self.commits.fetch([place for place in wanted if self._awaits(place, look_up)])
                break
            except QuorumlogError as error:
                if not error.retriable:
                    self._error = error
                    self._changed(AssignmentChange())
                failures += 1
                await asyncio.sleep(self._cluster.backoff.delay_s(failures))
        for place, tp in wanted.items():
            if self._awaits(place, look_up):
                del self._preparing[place]
                self._ready[place] = (tp, self._start(place, tp, firsts[place], committed.get(place)))
        self._changed(AssignmentChange())

    def _awaits(self, place: GroupPartition, look_up: object) -> bool:
        return self._preparing.get(place) is look_up

    def _start(
        self, place: GroupPartition, tp: TopicPartition, first: int, committed: OffsetAndMetadata | None
    ) -> Start:
        """Returns the start of a partition. One that the topic gained since the group started is read from its first
        record.

        Otherwise records written before this member noticed the partition would be skipped silently.
        """
        reset = self._config.auto_offset_reset
        if committed is not None:
            return Start(reset, committed.offset, -1 if committed.leader_epoch is None else committed.leader_epoch)
        made_anew = self._topic_ids.get(tp.topic, place.topic_id) != place.topic_id
        return Start("earliest" if place.partition >= first or made_anew else reset)

    # --- reports to the application ----------------------------------------------------------------------------

    async def next_step(self, done: ReadOffsets) -> RebalanceStep | None:
        """Returns the next step for the application, or None; call :meth:`finished` after it.

        Arguments:
            done: offsets of the processed records, now that the application called again.

        Raises:
            QuorumlogError: the group cannot be read; raised once, then joining is tried again.
        """
        if self._step is not None:
            return self._step  # Ctrl-C interrupted the previous call of the listener, or its completion.
        self.pending = False
        if self._error is not None:
            error, self._error = self._error, None
            self._join_again()
            raise error
        if self._lost:
            return self._begin(Rebalance.LOST, self._lost)
        if self.membership.state is MembershipState.OUT:
            self._join_again()
        revoked = self._revoked()
        if revoked:
            if not self._config.enable_auto_commit:
                return self._begin(Rebalance.REVOKED, revoked)
            committed = revoked & self._committed_before_release
            if committed:
                return self._begin(Rebalance.REVOKED, committed)
            self._commit_before_release(revoked, done)
        placed = self._place_ready()
        return self._begin(Rebalance.ASSIGNED, placed) if placed else None

    def _begin(self, kind: Rebalance, partitions: Collection[TopicPartition]) -> RebalanceStep:
        self._step = RebalanceStep(kind, frozenset(partitions))
        self.pending = True  # Until it is finished.
        return self._step

    def _join_again(self) -> None:
        if self.subscription is not None:
            self._join()

    def _commit_before_release(self, revoked: set[TopicPartition], done: ReadOffsets) -> None:
        """Commits processed records of revoked partitions; the poll continues with the others in the meantime."""
        losses = self._losses
        if self._auto_commit is not None and not self._auto_commit.done():
            self._auto_commit.add_done_callback(lambda _: self._changed(AssignmentChange()))
            return  # A commit is in flight; this is called again after it.
        offsets = done.of(revoked)

        async def commit() -> None:
            await self._commit_quietly(offsets)
            if losses == self._losses:
                self._committed_before_release |= revoked

        self._auto_commit = self._run(commit())
        self._auto_commit.add_done_callback(lambda _: self._changed(AssignmentChange()))

    def _place_ready(self) -> set[TopicPartition]:
        """Starts reading new partitions. No record is returned before the application was notified."""
        states: dict[TopicPartition, PartitionState] = {}
        for place, (tp, start) in self._ready.items():
            if tp in self._active:
                continue  # Of a recreated topic; the partition of the old one must be given up first.
            state = states[tp] = PartitionState.at(tp, place.topic_id, start)
            state.pinned = True
            self._active[tp] = place
            self._topic_ids[tp.topic] = place.topic_id
        for tp in states:
            del self._ready[self._active[tp]]
        self._assignment.place(states)
        return set(states)

    def begins(self, step: RebalanceStep) -> None:
        """Notes that the listener is about to be called. On the application's thread."""
        if step.kind is not Rebalance.ASSIGNED:
            self._being_told |= step.partitions

    async def finished(self, step: RebalanceStep) -> None:
        """Completes a step after the listener returned."""
        self._step = None
        self._metrics.rebalanced(self._clock())
        if step.kind is Rebalance.ASSIGNED:
            self._wake()
        else:
            # Empty if the listener itself has unsubscribed.
            places = [self._active.pop(tp) for tp in step.partitions if tp in self._active]
            self._being_told -= step.partitions
            self._lost -= step.partitions
            self._committed_before_release -= step.partitions
            self._assignment.remove(step.partitions)
            if step.kind is Rebalance.REVOKED:
                self._release(places)
        self.pending = self._to_tell() or self.membership.state is MembershipState.OUT

    # --- committing ----------------------------------------------------------------------------------------------

    async def commit(self, offsets: ReadOffsets, transaction: TransactionToken | None = None) -> None:
        """Commits offsets.

        Arguments:
            transaction: of a producer: the offsets take effect with it.

        Raises:
            CommitFailedError: this consumer does not have one of the partitions, or has lost it.
        """
        done = asyncio.get_running_loop().create_future()
        self._committing.add(done)
        began_s, stored = self._clock(), False
        try:
            await self._commit(offsets, transaction)
            stored = True
        finally:
            self._metrics.committed(began_s, self._clock(), stored=stored)
            self._committing.discard(done)
            done.set_result(None)

    async def _commit(self, offsets: ReadOffsets, transaction: TransactionToken | None = None) -> None:
        losses, as_member = self._losses, self.subscription is not None
        places = await self._places(offsets)

        def committer(left: Collection[GroupPartition]) -> Committer:
            member = self.membership
            if not as_member:
                return Committer()
            if (
                losses != self._losses
                or member.state is not MembershipState.MEMBER
                or not member.owned.issuperset(left)
            ):
                raise self._commit_failed("the partitions were taken away in the meantime")
            return Committer(member.member_id, member.member_epoch)

        await self.commits.commit({places[tp]: offset for tp, offset in offsets.items()}, committer, transaction)
        if transaction is not None:
            return
        with self._assignment.lock:
            for tp, offset in offsets.items():
                state = self._assignment.states.get(tp)
                if state is not None and state.topic_id in (None, places[tp].topic_id):
                    state.commits(offset.offset)

    async def _places(self, partitions: ReadOffsets) -> dict[TopicPartition, GroupPartition]:
        if self.subscription is None:
            # Offsets of records that were read are committed under the topic id at that time. By name, offsets of a
            # deleted topic would be stored for the next one, and the group would skip records of that.
            ids = partitions.topic_ids
            others = [tp for tp in partitions if tp not in ids]
            await self._cluster.require_partitions(others, self._config.request_timeout_ms / 1000)
            topics = self._cluster.metadata.topics
            return {
                tp: GroupPartition(ids[tp] if tp in ids else topics[tp.topic].topic_id, tp.partition)
                for tp in partitions
            }
        if self._lost:
            raise self._commit_failed("this member was out of the group, and others may have its partitions")
        for tp in partitions:
            if tp not in self._active:
                raise self._commit_failed(f"{tp.topic}-{tp.partition} is not assigned to this member")
        return {tp: self._active[tp] for tp in partitions}

    def _commit_failed(self, why: str) -> CommitFailedError:
        return CommitFailedError(
            f"this consumer may not commit for group {self._config.group_id!r}: {why}; poll continues at the group's"
            " committed offsets, and max_poll_interval_ms limits the processing time of one poll"
        )

    def commit_done(self, done: ReadOffsets) -> None:
        """Commits processed records in the background."""
        if self._auto_commit is None or self._auto_commit.done():
            self._auto_commit = self._run(self._commit_quietly(done))

    async def commit_finally(self, done: ReadOffsets, limit_s: float) -> None:
        """Commits processed records within a time limit, after pending commits (``commit_async``), before giving
        everything up."""
        try:
            async with asyncio.timeout(limit_s):
                await asyncio.sleep(0)  # Commits requested last have started by now.
                under_way = self._committing | ({self._auto_commit} if self._auto_commit is not None else set())
                if under_way:
                    await asyncio.wait(under_way)
                await self._commit_quietly(done)
        except TimeoutError:
            _log.warning("consumer group %s: the last commit did not complete in time", self._config.group_id)

    async def _commit_quietly(self, done: ReadOffsets) -> None:
        """Commits changed offsets. If it fails, the next reader processes the records again: nothing is lost."""
        states = self._assignment.states
        news = done.of(
            tp
            for tp, offset in done.items()
            if tp in states and states[tp].committed != offset.offset and tp not in self._lost
        )
        if not news:
            return
        subscription = self.subscription
        try:
            await self.commit(news)
        except QuorumlogError as error:
            if subscription is not None and self.subscription is None:
                return  # Closed by another task, which has committed the processed records.
            _log.warning("consumer group %s: an automatic commit failed: %s", self._config.group_id, error.message)

    # --- the end -------------------------------------------------------------------------------------------------

    async def farewell(self) -> RebalanceStep | None:
        """Returns the listener's last step before all partitions are given up, if any."""
        # A loss affects all partitions, and none is added before the listener was called: either all are lost, or none.
        assert not self._lost or self._lost == self._active.keys(), f"{self._lost} of {self._active.keys()} lost"
        going = frozenset(self._active.keys() - self._being_told)  # The listener itself may be unsubscribing.
        return RebalanceStep(Rebalance.LOST if self._lost else Rebalance.REVOKED, going) if going else None

    async def leave(self, limit_s: float) -> None:
        """Leaves the group and stops reading."""
        self._assignment.remove(list(self._active))
        self._active.clear()
        self._lost.clear()
        self._ready.clear()
        self._preparing.clear()
        self._committed_before_release.clear()
        self._step = self._error = None
        self._losses += 1
        self.subscription = None
        self.pending = False
        await self._session.leave(limit_s)

    async def close(self, limit_s: float = LEAVE_TIMEOUT_S) -> None:
        """Leaves the group and stops all background work."""
        try:
            await self.leave(limit_s)
        finally:
            self._session.close()
            if self._poll_timer is not None:
                self._poll_timer.cancel()
            for task in list(self._tasks):
                task.cancel()

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._cluster.in_background(work)
        self._tasks[task] = None
        task.add_done_callback(self._look_at)
        return task

    def _look_at(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Reports a defect to the caller of a poll, which would otherwise wait indefinitely."""
        _log.error("consumer group %s: the consumer has failed", self._config.group_id, exc_info=error)
        self._assignment.valid_until_s = float("-inf")
        self._error = UnknownServerError(f"the consumer has failed, create a new one: {error!r}")
        self.pending = True
        self._assignment.notify()
