"""What is about to be copied, written down before it is: a mirror that ends at any moment goes on with nothing twice.

Records are copied in laps. A lap is one epoch of the mirror's named producer, and the plan of each partition in it says
which records of the source it has. Plans are records of a compacted topic; those of a lap are all acknowledged before
the first of its records is sent. Who goes on after a crash sends the newest lap again, as planned: what the log has of
it is recognised and not added (docs/guarantees.md#replays).

Plans are written under a name of their own, too. Whoever begins claims it and writes a first record before it reads, so
that a mirror of the same name which still runs can plan nothing more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, Unpack

from quorumlog.sdk.admin.admin import Admin
from quorumlog.sdk.consumer.consumer import Consumer
from quorumlog.sdk.errors import IllegalStateError, InvalidProducerEpochError, TopicAlreadyExistsError
from quorumlog.sdk.mirror.offset_map import OffsetRun
from quorumlog.sdk.producer.producer import Producer
from quorumlog.sdk.runtime.security import SecurityOptions
from quorumlog.sdk.types import NewTopic, TopicPartition

#: Where all mirrors into a cluster write what they plan.
TOPIC = "mirror-plans"
_PLACE = TopicPartition(TOPIC, 0)
_READ_MS = 500


@dataclass(slots=True, frozen=True)
class PartitionPlan:
    """What a lap has of one partition, and what the laps before it have copied.

    Arguments:
        lap: its number, from 1.
        start: offset in the source from which it reads.
        end: offset in the source at which the next lap begins.
        count: records in between; 0 where everything is copied.
        latest_ms: timestamps beyond it become it: nodes refuse what is far ahead. Records without one get it, too.
        runs: of what the laps before have copied.
    """

    lap: int
    start: int
    end: int
    count: int
    latest_ms: int
    runs: tuple[OffsetRun, ...]

    def text(self) -> bytes:
        """As it is written down."""
        fields = [self.lap, self.start, self.end, self.count, self.latest_ms, [list(run) for run in self.runs]]
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def read(cls, text: bytes) -> Self:
        """What ``text()`` has written.

        Raises:
            IllegalStateError: it is nothing of that kind.
        """
        try:
            lap, start, end, count, latest_ms, runs = json.loads(text)
            return cls(int(lap), int(start), int(end), int(count), int(latest_ms),
                       tuple(OffsetRun(*map(int, run)) for run in runs))  # fmt: skip
        except (ValueError, TypeError):
            raise IllegalStateError(f"topic {TOPIC} has a record that is no plan of a mirror: {text[:80]!r}") from None


class MirrorPlans:
    """The plans of one mirror. To be used in a ``with`` block, by one at a time.

    Arguments:
        name: of the mirror.
        source: id of the cluster that is copied: a name is good for one.

    Raises:
        IllegalStateError: the name is that of a mirror of another cluster.
    """

    def __init__(
        self, name: str, source: str, admin: Admin, bootstrap_servers: str, **security: Unpack[SecurityOptions]
    ) -> None:
        self._name, self._source = name, source
        with suppress(TopicAlreadyExistsError):
            admin.create_topics([NewTopic(TOPIC, 1, topic_configs={"cleanup.policy": "compact"})])
        self._servers, self._security = bootstrap_servers, security
        self._producer = Producer(
            bootstrap_servers=bootstrap_servers, producer_name=f"{producer_name(name)}-plans", **security
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._producer.close(timeout=0 if error else None)

    def load(self) -> dict[TopicPartition, PartitionPlan]:
        """The newest plan of each partition. From then on no other mirror of this name can plan."""
        begin = self._producer.send(TOPIC, self._source.encode(), key=self._key(None), partition=0)
        end = begin.result().offset
        found: dict[TopicPartition, PartitionPlan] = {}
        # What cannot be read in the topic is no plan: nothing that the mirror writes is unreadable.
        with Consumer(bootstrap_servers=self._servers, on_corrupt="skip", **self._security) as consumer:
            consumer.assign([_PLACE])
            consumer.seek_to_beginning(_PLACE)
            while consumer.position(_PLACE) <= end:
                for record in consumer.poll(_READ_MS).get(_PLACE, ()):
                    self._take(record.key, record.value, found)
        return found

    def write(self, plans: Mapping[TopicPartition, PartitionPlan]) -> None:
        """Writes plans down. They are on disk when this returns.

        Raises:
            IllegalStateError: another mirror of this name has begun.
        """
        written = [
            self._producer.send(TOPIC, plan.text(), key=self._key(partition), partition=0)
            for partition, plan in plans.items()
        ]
        try:
            for each in written:
                each.result()
        except InvalidProducerEpochError:
            raise IllegalStateError(f"another mirror named {self._name} has begun; this one ends") from None

    def _key(self, partition: TopicPartition | None) -> bytes:
        return json.dumps([self._name, *(partition or ())]).encode()

    def _take(self, key: bytes | None, value: bytes | None, found: dict[TopicPartition, PartitionPlan]) -> None:
        try:
            named: Any = json.loads(key or b"[]")
        except ValueError:
            return  # Whoever wrote that, it is no plan of ours.
        if value is None or not isinstance(named, list) or named[:1] != [self._name]:
            return
        if len(named) > 1:
            found[TopicPartition(named[1], named[2])] = PartitionPlan.read(value)
        elif value.decode() != self._source:
            raise IllegalStateError(
                f"mirror {self._name} is of cluster {value.decode()}, this is {self._source}: give another --name"
            )


def producer_name(mirror: str) -> str:
    """The producer of a mirror's records."""
    return f"mirror-{mirror}"
