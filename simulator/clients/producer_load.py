"""Producers of the SDK in virtual time, and the check of every outcome that they report."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from quorumlog.sdk.errors import QuorumlogError
from quorumlog.sdk.producer.async_producer import AsyncProducer
from quorumlog.sdk.producer.delivery import RecordFuture
from quorumlog.simulator.clients.client_host import ClientHost
from quorumlog.simulator.clients.committed_values import CommittedValues
from quorumlog.simulator.models.committed_partition import Violation


@dataclass(slots=True)
class ProducerHabits:
    """Workload of one producer.

    Arguments:
        options: the SDK's, without addresses.
        topics: topics that it sends to.
        interval_s: minimum and maximum pause between records.
        burst: maximum number of records sent without a pause.
        keys: number of keys; 0 for records without keys.
        closes: probability per record that it is closed and opened again.
        named: its name, if it claims one.
    """

    options: dict[str, Any]
    topics: list[str]
    interval_s: tuple[float, float] = (0.005, 0.1)
    burst: int = 3
    keys: int = 0
    closes: float = 0.0
    named: str = ""

    @property
    def once(self) -> bool:
        """True if each record is promised exactly once, in order, and durable."""
        return bool(self.options.get("acks", "all") == "all")


@dataclass(slots=True)
class Sent:
    """A record that was passed to a producer, and its reported outcome. ``outcome``: ok, definite, or indefinite."""

    value: str
    instance: int
    number: int
    topic: str
    outcome: str = ""
    error: str = ""


class ProducerLoad:
    """A process that sends unique values until it is stopped, with one producer after the other.

    Arguments:
        make_host: returns a new process with a name.
    """

    def __init__(
        self,
        name: str,
        habits: ProducerHabits,
        rng: random.Random,
        make_host: Callable[[str], ClientHost],
        bootstrap_servers: Callable[[], str],
        values: CommittedValues,
    ) -> None:
        self.name = name
        self.habits = habits
        self.sent: list[Sent] = []
        self.acknowledged = 0
        self.instances = 0
        self._rng = rng
        self._make_host = make_host
        self._bootstrap_servers = bootstrap_servers
        self._values = values
        self._stopping = False
        self._done = False
        self.host = self._begin()

    def _begin(self) -> ClientHost:
        host = self._make_host(f"{self.name}/{self.instances}")
        self._done = False
        host.run(self._work(host))
        return host

    def crash(self) -> None:
        """Sends SIGKILL; the outcome of records in flight stays unknown."""
        self.host.kill()
        for sent in self.sent:
            if not sent.outcome:
                sent.outcome = "indefinite"

    def restart(self) -> None:
        """Starts a new process."""
        self.host = self._begin()

    def stop(self) -> None:
        """Sends only one last record for each topic, which must be acknowledged."""
        self._stopping = True

    @property
    def missing(self) -> str:
        """Returns the records without an outcome; empty if all have one."""
        if not self._done:
            waiting = [sent.value for sent in self.sent if not sent.outcome][:5]
            refused = [f"{sent.value}: {sent.error}" for sent in self.sent[-2:]]
            return f"producer {self.name} has not come to its end: {waiting}, last {refused}"
        return ""

    # -- the process ----------------------------------------------------------------------------------------------

    async def _work(self, host: ClientHost) -> None:
        while not self._stopping:
            await self._one_producer(host)
        for topic in self.habits.topics:
            await self._until_acknowledged(host, topic)
        self._done = True

    def _open(self, host: ClientHost) -> AsyncProducer:
        self.instances += 1
        return AsyncProducer(
            runtime=host.runtime,
            bootstrap_servers=self._bootstrap_servers(),
            producer_name=self.habits.named or None,
            **self.habits.options,
        )

    async def _one_producer(self, host: ClientHost) -> None:
        producer, instance = self._open(host), self.instances
        try:
            while not self._stopping:
                for _ in range(self._rng.randint(1, self.habits.burst)):
                    sent = await self._send(producer, instance, self._rng.choice(self.habits.topics))
                    if sent.outcome == "definite" and self.habits.named:
                        return  # Another instance has claimed the name, or the name was deleted.
                if self._rng.random() < 0.1:
                    await self._flush(producer)
                if self._rng.random() < self.habits.closes:
                    return
                await asyncio.sleep(self._rng.uniform(*self.habits.interval_s))
        finally:
            if host.alive:
                await producer.close()

    async def _flush(self, producer: AsyncProducer) -> None:
        try:
            await producer.flush(timeout=self._rng.choice((None, 0.5)))
        except QuorumlogError:
            return

    async def _send(self, producer: AsyncProducer, instance: int, topic: str) -> Sent:
        prefix = "" if self.habits.once else "hope-"
        sent = Sent(f"{prefix}{self.name}.{instance}.{len(self.sent)}", instance, len(self.sent), topic)
        self.sent.append(sent)
        key = f"key-{self._rng.randrange(self.habits.keys)}".encode() if self.habits.keys else None
        try:
            handle = await producer.send(topic, sent.value.encode(), key=key)
        except QuorumlogError as error:
            # A record that was not accepted is not sent: whatever the error claims, the value must not appear.
            sent.outcome, sent.error = "definite", repr(error)
            return sent
        handle.add_done_callback(partial(self._settled, sent, self.host))
        return sent

    def _settled(self, sent: Sent, host: ClientHost, handle: RecordFuture) -> None:
        if not host.alive:
            return
        try:
            self._check_outcome(sent, handle)
        except Violation as broken:
            host.loop.fail(broken)  # A client's callbacks are guarded: an exception would only be logged.

    def _check_outcome(self, sent: Sent, handle: RecordFuture) -> None:
        if sent.outcome:
            raise Violation(f"{sent.value} was settled twice")
        error = handle.exception(0)
        if error is not None:
            sent.outcome, sent.error = "definite" if error.definite else "indefinite", repr(error)
            return
        sent.outcome = "ok"
        self.acknowledged += 1
        result = handle.result(0)
        if self.habits.once and result.offset >= 0:
            group = self._values.find(sent.value, sent.topic, result.partition, result.offset)
            self._values.check_durable(sent.value, group, result.offset)
        elif self.habits.once and not self._values.places(sent.value):
            raise Violation(f"{sent.value} is acknowledged without an offset, but stored nowhere")

    async def _until_acknowledged(self, host: ClientHost, topic: str) -> None:
        """Sends a record until it is acknowledged: a healed cluster accepts it, however often a new producer has to
        try.
        """
        while True:
            producer = self._open(host)
            try:
                sent = await self._send(producer, self.instances, topic)
                await self._flush(producer)
            finally:
                if host.alive:
                    await producer.close()
            if sent.outcome == "ok":
                return
            await asyncio.sleep(0.2)

    # -- the verdict ----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Checks the reported outcome of each record, that each is in a log once, and that the records of a partition
        are in order.

        Raises:
            Violation: a promise was broken.
        """
        for sent in self.sent:
            places = self._values.places(sent.value)
            if sent.outcome == "definite" and places:
                raise Violation(f"{sent.value} failed definitely ({sent.error}), but is at {places}")
            if not self.habits.once:
                continue
            if sent.outcome == "ok" and not places:
                raise Violation(f"{sent.value} is acknowledged, but stored nowhere")
            groups = [place.group for place in places]
            if len(set(groups)) != len(groups):
                raise Violation(f"{sent.value} is in one log more than once: {places}")
        if self.habits.once:
            self._check_order()

    def _check_order(self) -> None:
        newest: dict[tuple[int, int], tuple[int, str]] = {}
        by_value = {sent.value: sent for sent in self.sent}
        for group, name, _ in self._values.groups():
            for batch in self._values.log(group).batches_in_order:
                for value in batch.values:
                    sent = by_value.get(value)
                    if sent is None:
                        continue
                    # One instance after the other, each in the order of its sends, even across failed ones.
                    key = (group, 0 if self.habits.named else sent.instance)
                    number, before = newest.get(key, (-1, ""))
                    if sent.number <= number:
                        raise Violation(f"{name} has {value} after {before}, which was sent later")
                    newest[key] = (sent.number, value)
