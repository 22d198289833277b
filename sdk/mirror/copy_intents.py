"""Plans of what is about to be copied, stored beforehand: a mirror that crashes at any moment resumes without
duplicates.

Records are copied in laps. A lap is one epoch of the mirror's named producer, and the plan of each partition in it
states which records of the source it has. Plans are records of a compacted topic; those of a lap are all acknowledged
before the first of its records is sent. After a crash the newest lap is sent again, as planned: the log recognises the
records that it has, and does not add them again (docs/use/guarantees.md#replays).

Plans are written under a producer name of their own, too. A starting mirror claims it and writes a first record before
it reads, so that a mirror of the same name which still runs cannot plan any further lap.
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

#: The topic in which all mirrors into a cluster store their plans.
TOPIC = "mirror-plans"
_PLACE = TopicPartition(TOPIC, 0)
_READ_MS = 500


@dataclass(slots=True, frozen=True)
class PartitionPlan:
    """The part of a lap for one partition, and the result of the laps before it.

    Arguments:
        lap: its number, from 1.
        start: offset in the source from which it reads.
        end: offset in the source at which the next lap begins.
        count: number of records in between; 0 if everything is copied.
        latest_ms: upper bound of timestamps, because nodes refuse those far in the future; also the timestamp of
            records without one.
        runs: records copied by the laps before.
    """

    lap: int
    start: int
    end: int
    count: int
    latest_ms: int
    runs: tuple[OffsetRun, ...]

    def text(self) -> bytes:
        """Returns the stored form."""
        fields = [self.lap, self.start, self.end, self.count, self.latest_ms, [list(run) for run in self.runs]]
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def read(cls, text: bytes) -> Self:
        """Parses the result of ``text()``.

        Raises:
            IllegalStateError: it is not a plan.
        """
        try:
            lap, start, end, count, latest_ms, runs = json.loads(text)
            return cls(int(lap), int(start), int(end), int(count), int(latest_ms),
                       tuple(OffsetRun(*map(int, run)) for run in runs))  # fmt: skip
        except (ValueError, TypeError):
            raise IllegalStateError(f"topic {TOPIC} has a record that is no plan of a mirror: {text[:80]!r}") from None


class MirrorPlans:
    """The plans of one mirror. Used in a ``with`` block, by one caller at a time.

    Arguments:
        name: of the mirror.
        source: id of the source cluster: a name is valid for one.

    Raises:
        IllegalStateError: the name belongs to a mirror of another cluster.
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
        """Returns the newest plan of each partition. From then on no other mirror of this name can plan."""
        begin = self._producer.send(TOPIC, self._source.encode(), key=self._key(None), partition=0)
        end = begin.result().offset
        found: dict[TopicPartition, PartitionPlan] = {}
        # Unreadable records of the topic are not plans: the mirror writes none.
        with Consumer(bootstrap_servers=self._servers, on_corrupt="skip", **self._security) as consumer:
            consumer.assign([_PLACE])
            consumer.seek_to_beginning(_PLACE)
            while consumer.position(_PLACE) <= end:
                for record in consumer.poll(_READ_MS).get(_PLACE, ()):
                    self._take(record.key, record.value, found)
        return found

    def write(self, plans: Mapping[TopicPartition, PartitionPlan]) -> None:
        """Stores plans. They are on disk when this returns.

        Raises:
            IllegalStateError: another mirror of this name has started.
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
            return  # Written by another program: it is not one of our plans.
        if value is None or not isinstance(named, list) or named[:1] != [self._name]:
            return
        if len(named) > 1:
            found[TopicPartition(named[1], named[2])] = PartitionPlan.read(value)
        elif value.decode() != self._source:
            raise IllegalStateError(
                f"mirror {self._name} is of cluster {value.decode()}, this is {self._source}: give another --name"
            )


def producer_name(mirror: str) -> str:
    """Returns the producer name for a mirror's records."""
    return f"mirror-{mirror}"
