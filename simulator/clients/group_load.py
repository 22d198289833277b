"""Members of consumer groups in virtual time: the SDK's consumers that subscribe, process, commit, join and leave.

Their actions and results are recorded as the history that the group checkers judge.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from quorumlog.chaos.checkers.group_history import Act, Ending, GroupHistory, GroupOperation
from quorumlog.chaos.checkers.history import OperationOutcome
from quorumlog.sdk.consumer.async_consumer import AsyncConsumer
from quorumlog.sdk.consumer.commits import Commits, Committer
from quorumlog.sdk.consumer.group_membership import GroupPartition
from quorumlog.sdk.consumer.subscription import ConsumerRebalanceListener
from quorumlog.sdk.errors import QuorumlogError
from quorumlog.sdk.types import OffsetAndMetadata, TopicPartition, TransactionToken
from quorumlog.simulator.clients.client_host import ClientHost
from quorumlog.simulator.clients.committed_values import CommittedValues
from quorumlog.simulator.models.committed_partition import Violation

POLL_MS = 200


def part_name(topic: str, partition: int, topic_id: bytes) -> str:
    """Returns a name for a partition of one topic id: the next topic of that name has others."""
    return f"{topic}-{partition}@{topic_id.hex()[:8]}"


@dataclass(slots=True)
class GroupHabits:
    """Workload of the members of one group.

    Arguments:
        options: the SDK's, without addresses and group.
        topics, pattern: subscription; one of the two.
        work_s: minimum and maximum processing time of one poll.
        commits: probability per poll; for consumers without automatic commits.
        closes: probability per poll that a member leaves and joins again.
        static: members have static names.
        asynchronous: commits are not waited for.
    """

    group_id: str
    options: dict[str, Any]
    topics: list[str]
    pattern: str = ""
    work_s: tuple[float, float] = (0.0, 0.05)
    commits: float = 1.0
    closes: float = 0.0
    static: bool = False
    asynchronous: bool = False


@dataclass(slots=True)
class _Held:
    """A partition that a member owns."""

    place: GroupPartition
    name: str
    since_us: int
    given_us: int
    next_offset: int | None = None


@dataclass(slots=True)
class _Life:
    """One consumer of a member, from its creation to its end."""

    name: str
    held: dict[TopicPartition, _Held] = field(default_factory=dict)
    commits: int = 0
    #: Commits under way, by number: their start, and offsets.
    committing: dict[int, tuple[int, dict[str, int]]] = field(default_factory=dict)


class _ObservedCommits:
    """Records the commits and lookups of a consumer as the SDK makes them, whatever triggered them."""

    def __init__(self, load: MemberLoad, life: _Life, commits: Commits, names: Callable[[GroupPartition], str]) -> None:
        self._load = load
        self._life = life
        self._names = names
        self._commit, self._fetch = commits.commit, commits.fetch
        commits.commit = self.commit  # type: ignore[method-assign]
        commits.fetch = self.fetch  # type: ignore[method-assign]

    async def commit(
        self,
        offsets: Mapping[GroupPartition, OffsetAndMetadata],
        committer: Callable[[Collection[GroupPartition]], Committer],
        transaction: TransactionToken | None = None,
    ) -> None:
        """Commits, and records it. The outcome of an interrupted commit is unknown."""
        self._life.commits += 1
        number, began_us, outcome = self._life.commits, self._load.now_us, OperationOutcome.INFO
        self._life.committing[number] = (began_us, {self._names(place): o.offset for place, o in offsets.items()})
        try:
            await self._commit(offsets, committer, transaction)
            outcome = OperationOutcome.OK
        except QuorumlogError as error:
            outcome = OperationOutcome.FAIL if error.definite else OperationOutcome.INFO
            raise
        finally:
            self._load.settle_commit(self._life, number, outcome)

    async def fetch(self, partitions: Collection[GroupPartition]) -> dict[GroupPartition, OffsetAndMetadata]:
        """Looks up committed offsets, and records it."""
        began_us = self._load.now_us
        found = await self._fetch(partitions)
        for place in sorted(partitions):
            if self._load.is_gone(place):
                continue  # With a topic, its committed offsets are deleted.
            offset = found[place].offset if place in found else -1
            self._load.write(self._life, self._names(place), Act.READ_COMMITTED, began_us, offset=offset)
        return found


class _Listener(ConsumerRebalanceListener):
    """Reports rebalances to the load."""

    def __init__(self, load: MemberLoad, life: _Life) -> None:
        self._load = load
        self._life = life

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> Awaitable[None] | None:
        """Reports partitions that it owns from now on."""
        self._load.assigned(self._life, assigned)
        return None

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> Awaitable[None] | None:
        """Commits processed records, then releases the partitions."""
        return self._load.revoked(self._life, revoked)

    def on_partitions_lost(self, lost: set[TopicPartition]) -> Awaitable[None] | None:
        """Reports partitions that are lost."""
        self._load.end(self._life, lost, Ending.LOST)
        return None


class MemberLoad:
    """One member of a group, through all its processes.

    Arguments:
        number: number of the member in its group; part of a static member's name.
    """

    def __init__(
        self,
        habits: GroupHabits,
        number: int,
        rng: random.Random,
        make_host: Callable[[str], ClientHost],
        bootstrap_servers: Callable[[], str],
        values: CommittedValues,
        history: GroupHistory,
    ) -> None:
        self.name = f"{habits.group_id}.{number}"
        self.habits = habits
        self.processed = 0
        self._number = number
        self._rng = rng
        self._make_host = make_host
        self._bootstrap_servers = bootstrap_servers
        self._values = values
        self._history = history
        self._stopping = self._settling = False
        self._lives = 0
        self._life: _Life | None = None
        self._consumer: AsyncConsumer | None = None
        self.host = self._begin()

    @property
    def now_us(self) -> int:
        """The simulation's time."""
        return self.host.scheduler.now

    def _begin(self) -> ClientHost:
        host = self._make_host(f"{self.name}/{self._lives}")
        host.run(self._work(host))
        return host

    def crash(self) -> None:
        """Sends SIGKILL. Its ownership counts until its last received records: it may have been removed since."""
        self.host.kill()
        if self._life is not None:
            self.end(self._life, list(self._life.held), Ending.LOST)
            for number in list(self._life.committing):
                self.settle_commit(self._life, number, OperationOutcome.INFO)

    def restart(self) -> None:
        """Starts a new process, which joins."""
        self.host = self._begin()

    def settle(self) -> None:
        """From now on it stays."""
        self._settling = True

    def stop(self) -> None:
        """Leaves the group."""
        self._stopping = True

    def settle_commit(self, life: _Life, number: int, outcome: OperationOutcome) -> None:
        """Records the end of a commit, or of its process."""
        began_us, offsets = life.committing.pop(number, (0, {}))
        for partition, offset in offsets.items():
            self.write(life, partition, Act.COMMIT, began_us, outcome=outcome, offset=offset, number=number)

    def close_history(self) -> None:
        """Adds what it still owns to the history at the end of the run."""
        if self._life is not None:
            self.end(self._life, list(self._life.held), Ending.OPEN)

    # -- the process ----------------------------------------------------------------------------------------------

    async def _work(self, host: ClientHost) -> None:
        while not self._stopping:
            self._lives += 1
            life = self._life = _Life(f"{self.name}.{self._lives}")
            consumer = self._consumer = AsyncConsumer(
                runtime=host.runtime,
                bootstrap_servers=self._bootstrap_servers(),
                group_id=self.habits.group_id,
                auto_offset_reset="earliest",
                group_instance_id=self.name if self.habits.static else None,
                **self.habits.options,
            )
            group = consumer._core.group
            assert group is not None
            _ObservedCommits(self, life, group.commits, partial(self._part, consumer))
            try:
                await self._subscribe(consumer, life)
                await self._one_consumer(consumer, life)
            finally:
                if host.alive:
                    await consumer.close()
                    self.end(life, list(life.held), Ending.LOST)

    async def _subscribe(self, consumer: AsyncConsumer, life: _Life) -> None:
        listener = _Listener(self, life)
        if self.habits.pattern:
            await consumer.subscribe(pattern=self.habits.pattern, listener=listener)
        else:
            await consumer.subscribe(self.habits.topics, listener=listener)

    async def _one_consumer(self, consumer: AsyncConsumer, life: _Life) -> None:
        automatic = bool(self.habits.options.get("enable_auto_commit", True))
        while not self._stopping:
            try:
                polled = await consumer.poll(POLL_MS, max_records=self._rng.choice((1, 5, 500)))
                for partition, records in polled.items():
                    for record in records:
                        assert record.value is not None
                        self._given(life, partition, record.value.decode(), record.offset)
                if polled:
                    await asyncio.sleep(self._rng.uniform(*self.habits.work_s))
                if not automatic and (self._settling or self._rng.random() < self.habits.commits):
                    if self.habits.asynchronous:
                        consumer.commit_async()
                    else:
                        await consumer.commit()
            except Violation as finding:
                self.host.loop.fail(finding)  # Immediately, and not once it has closed, which commits.
                raise
            except QuorumlogError as error:
                if not error.retriable and not self._settling and self._rng.random() < 0.3:
                    return
                await asyncio.sleep(0.05)
            if not self._settling and self._rng.random() < self.habits.closes:
                return

    # -- rebalances -----------------------------------------------------------------------------------------------

    def _part(self, consumer: AsyncConsumer, place: GroupPartition) -> str:
        group = consumer._core.group
        assert group is not None
        known = group.membership.topics.get(place.topic_id)
        names = {topic_id: name.topic for _, name, topic_id in self._values.groups()}
        topic = known.topic if known is not None else names.get(place.topic_id, "?")
        return part_name(topic, place.partition, place.topic_id)

    def is_gone(self, place: GroupPartition) -> bool:
        """True if the topic has been deleted according to any node."""
        return self._values.is_gone(place.topic_id)

    def assigned(self, life: _Life, partitions: Collection[TopicPartition]) -> None:
        """Starts the ownership of partitions."""
        assert self._consumer is not None
        group = self._consumer._core.group
        assert group is not None
        for tp in sorted(partitions):
            if tp in life.held:
                raise Violation(f"{life.name} is assigned {tp}, which it owns already")
            place = group._active[tp]
            life.held[tp] = _Held(place, self._part(self._consumer, place), self.now_us, self.now_us)

    async def revoked(self, life: _Life, partitions: Collection[TopicPartition]) -> None:
        """Commits processed records, like applications do, then releases the partitions."""
        assert self._consumer is not None and self._consumer._core.group is not None
        group = self._consumer._core.group
        losses = group._losses
        if not self.habits.options.get("enable_auto_commit", True) and self._rng.random() < self.habits.commits:
            with suppress(QuorumlogError):  # The next owner repeats the work.
                await self._consumer.commit()
        # A commit may take longer than the group waits: then the member was removed while it revoked.
        self.end(life, partitions, Ending.REVOKED if group._losses == losses else Ending.LOST)

    def end(self, life: _Life, partitions: Collection[TopicPartition], ending: Ending) -> None:
        """Ends the ownership of partitions."""
        for tp in sorted(partitions):
            held = life.held.pop(tp, None)
            if held is None:
                raise Violation(f"{life.name} is notified to release {tp}, which it does not own")
            # A lost partition had another owner before the notification; until its last records it certainly owned it.
            until_us = self.now_us if ending in (Ending.REVOKED, Ending.OPEN) else held.given_us
            self._write(life, held.name, Act.OWN, held.since_us, until_us, ending=ending)

    def _given(self, life: _Life, tp: TopicPartition, value: str, offset: int) -> None:
        held = life.held.get(tp)
        if held is None:
            raise Violation(f"{life.name} received offset {offset} of {tp}, which it does not own")
        wanted = self._values.group_of(held.place.topic_id, tp.partition)
        group = self._values.find(value, *tp, offset, wanted)
        name, topic_id = self._values.partition(group)
        if topic_id != held.place.topic_id:
            raise Violation(f"{life.name} received a record of another topic {name} than the assigned one")
        log = self._values.log(group)
        expected = held.next_offset
        if expected is not None and offset != expected and not expected < offset <= log.log_start:
            raise Violation(f"{life.name} received offset {offset} of {held.name} instead of {expected}")
        if expected is not None and offset > expected:
            self.write(life, held.name, Act.PASS, self.now_us, offset=expected, end=offset)
        held.next_offset = offset + 1
        held.given_us = self.now_us
        self.processed += 1
        self.write(life, held.name, Act.PROCESS, self.now_us, offset=offset, end=offset + 1)

    def write(
        self,
        life: _Life,
        partition: str,
        act: Act,
        began_us: int,
        *,
        outcome: OperationOutcome = OperationOutcome.OK,
        offset: int = -1,
        end: int = -1,
        number: int = 0,
    ) -> None:
        """Records an operation that ends now."""
        self._write(life, partition, act, began_us, self.now_us, outcome, offset, end, Ending.OPEN, number)

    def _write(
        self,
        life: _Life,
        partition: str,
        act: Act,
        began_us: int,
        ended_us: int,
        outcome: OperationOutcome = OperationOutcome.OK,
        offset: int = -1,
        end: int = -1,
        ending: Ending = Ending.OPEN,
        number: int = 0,
    ) -> None:
        self._history.add(
            GroupOperation(
                self.habits.group_id,
                partition,
                life.name,
                act,
                began_us,
                ended_us,
                outcome,
                offset,
                end,
                ending,
                number,
            )
        )
