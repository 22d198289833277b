"""Plans of what is about to be copied, stored beforehand: a mirror that crashes at any moment resumes without
duplicates.

Records are copied in laps. A lap is one epoch of the mirror's named producer, and the plan of each partition in it
states which records of the source it has. Plans are records of a compacted topic; those of a lap are all acknowledged
before the first of its records is sent. After a crash the newest lap is sent again, as planned: the log recognises the
records that it has, and does not add them again (docs/use/guarantees.md#replays).

Plans are written under a producer name of their own, too. A starting mirror claims it and writes a first record before
it reads, so that a mirror of the same name which still runs cannot plan any further lap.

The topic also has a record for each mirror, which says what its name stands for, and records of the settings that were
copied last.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, Unpack

from quorumlog.sdk.admin.admin import Admin
from quorumlog.sdk.consumer.consumer import Consumer
from quorumlog.sdk.errors import IllegalStateError, InvalidProducerEpochError, TopicAlreadyExistsError
from quorumlog.sdk.mirror.offset_map import OffsetRun
from quorumlog.sdk.mirror.source import MirrorSource
from quorumlog.sdk.producer.producer import Producer
from quorumlog.sdk.runtime.security import SecurityOptions
from quorumlog.sdk.types import NewTopic, TopicPartition

#: The topic in which all mirrors into a cluster store their plans.
TOPIC = "mirror-plans"
_PLACE = TopicPartition(TOPIC, 0)
_READ_MS = 500
#: Time limit for reading the topic in the source, and records of one read.
_READ_WITHIN_S, _READ_RECORDS = 60.0, 2_000


@dataclass(slots=True, frozen=True)
class PartitionPlan:
    """The part of a lap for one partition, and the result of the laps before it.

    Arguments:
        lap: its number, from 1.
        start: offset in the source from which it reads.
        end: offset in the source at which the next lap starts.
        count: number of records in between; 0 if everything is copied.
        latest_ms: upper bound of timestamps, because nodes refuse those far in the future; also the timestamp of
            records without one.
        runs: records copied by the laps before.
        returned: records before ``start`` that came from the target cluster, if the mirror has an opposite one.
        newest_returned: offset in the target of the newest of these; -1 without any.
    """

    lap: int
    start: int
    end: int
    count: int
    latest_ms: int
    runs: tuple[OffsetRun, ...]
    returned: tuple[OffsetRun, ...] = ()
    newest_returned: int = -1

    def text(self) -> bytes:
        """Returns the stored form."""
        fields: list[Any] = [
            self.lap,
            self.start,
            self.end,
            self.count,
            self.latest_ms,
            [list(run) for run in self.runs],
        ]
        if self.newest_returned >= 0:  # Plans of other mirrors keep the form that earlier versions read.
            fields += [[list(run) for run in self.returned], self.newest_returned]
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def read(cls, text: bytes) -> Self:
        """Parses the result of ``text()``.

        Raises:
            IllegalStateError: it is not a plan.
        """
        try:
            lap, start, end, count, latest_ms, runs, *more = json.loads(text)
            returned, newest = more or ((), -1)
            return cls(int(lap), int(start), int(end), int(count), int(latest_ms),
                       tuple(OffsetRun(*map(int, run)) for run in runs),
                       tuple(OffsetRun(*map(int, run)) for run in returned), int(newest))  # fmt: skip
        except (ValueError, TypeError):
            raise IllegalStateError(
                f"topic {TOPIC} has a record that is not a plan of a mirror: {text[:80]!r}"
            ) from None


@dataclass(slots=True, frozen=True)
class MirrorIdentity:
    """The source and the options that a mirror keeps as long as its name exists.

    Arguments:
        source: id of the source cluster.
        bidirectional: True if its copies have a header with their origin.
        renames: how topics are renamed.
    """

    source: str
    bidirectional: bool = False
    renames: tuple[str, ...] = ()

    def text(self) -> bytes:
        """Returns the stored form."""
        if not self.bidirectional and not self.renames:
            return self.source.encode()  # As earlier versions wrote it.
        return json.dumps([self.source, self.bidirectional, *self.renames]).encode()

    @classmethod
    def read(cls, text: bytes) -> Self:
        """Parses the result of ``text()``.

        Raises:
            IllegalStateError: it is none.
        """
        if not text.startswith(b"["):
            return cls(text.decode(errors="replace"))
        try:
            source, bidirectional, *renames = json.loads(text)
            return cls(str(source), bool(bidirectional), tuple(map(str, renames)))
        except ValueError:
            raise IllegalStateError(f"topic {TOPIC} has a record that is not of a mirror: {text[:80]!r}") from None

    def described(self) -> str:
        """Returns a phrase for messages."""
        options = ["--bidirectional"] if self.bidirectional else []
        options += [f"--rename {each}" for each in self.renames]
        return f"cluster {self.source}" + (f" with {' '.join(options)}" if options else "")


class MirrorPlans:
    """The plans of one mirror. Used in a ``with`` block, by one caller at a time.

    Arguments:
        name: of the mirror.
        identity: what it copies, and how: a name is valid for one.
    """

    def __init__(
        self, name: str, identity: MirrorIdentity, admin: Admin, bootstrap_servers: str,
        **security: Unpack[SecurityOptions],
    ) -> None:  # fmt: skip
        self._name, self._identity = name, identity
        #: The mirrors into this cluster, by name.
        self.mirrors: dict[str, MirrorIdentity] = {}
        #: Settings of topics of the source, as they were copied last.
        self.settings: dict[str, dict[str, str]] = {}
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
        """Returns the newest plan of each partition. From then on no other mirror of this name can plan.

        Raises:
            IllegalStateError: the name belongs to a mirror of another cluster, or with other options.
        """
        claim = self._producer.send(TOPIC, b"", key=json.dumps({"claim": self._name}).encode(), partition=0)
        end = claim.result().offset
        found: dict[TopicPartition, PartitionPlan] = {}
        # Unreadable records of the topic are not plans: the mirror writes none.
        with Consumer(bootstrap_servers=self._servers, on_corrupt="skip", **self._security) as consumer:
            consumer.assign([_PLACE])
            consumer.seek_to_beginning(_PLACE)
            while consumer.position(_PLACE) <= end:
                for record in consumer.poll(_READ_MS).get(_PLACE, ()):
                    self._take(record.key, record.value, found)
        known = self.mirrors.setdefault(self._name, self._identity)
        if known != self._identity:
            raise IllegalStateError(
                f"mirror {self._name} is of {known.described()}, this is {self._identity.described()}: give another"
                " --name"
            )
        self._producer.send(TOPIC, self._identity.text(), key=self._key(None), partition=0).result()
        return found

    def write_settings(self, topic: str, configs: Mapping[str, str]) -> None:
        """Stores the settings that a topic of the source has, once they have been copied."""
        self.settings[topic] = dict(configs)
        key = json.dumps({"settings": topic, "mirror": self._name}).encode()
        self._send(((key, json.dumps(configs).encode()),))

    def write(self, plans: Mapping[TopicPartition, PartitionPlan]) -> None:
        """Stores plans. They are on disk when this returns.

        Raises:
            IllegalStateError: another mirror of this name has started.
        """
        self._send((self._key(partition), plan.text()) for partition, plan in plans.items())

    def _send(self, records: Iterable[tuple[bytes, bytes]]) -> None:
        written = [self._producer.send(TOPIC, value, key=key, partition=0) for key, value in records]
        try:
            for each in written:
                each.result()
        except InvalidProducerEpochError:
            raise IllegalStateError(f"another mirror named {self._name} has started; this one ends") from None

    def _key(self, partition: TopicPartition | None) -> bytes:
        return json.dumps([self._name, *(partition or ())]).encode()

    def _take(self, key: bytes | None, value: bytes | None, found: dict[TopicPartition, PartitionPlan]) -> None:
        named = _parsed(key)
        if value is None:
            return
        if isinstance(named, dict) and named.get("mirror") == self._name and isinstance(named.get("settings"), str):
            self.settings[named["settings"]] = dict(_parsed(value) or {})
        elif isinstance(named, list) and len(named) == 1:
            self.mirrors[str(named[0])] = MirrorIdentity.read(value)
        elif isinstance(named, list) and len(named) == 3 and named[0] == self._name:
            found[TopicPartition(named[1], named[2])] = PartitionPlan.read(value)


def mirrors_into(source: MirrorSource) -> dict[str, MirrorIdentity]:
    """Returns the mirrors into the source cluster, by name. It must have the topic of plans.

    Raises:
        IllegalStateError: the source does not return the topic's records.
    """
    start, end = source.bounds(_PLACE)
    source.assign({_PLACE: start})
    found: dict[str, MirrorIdentity] = {}
    until = time.monotonic() + _READ_WITHIN_S
    while start < end:
        if time.monotonic() > until:
            raise IllegalStateError(f"the source does not return its topic {TOPIC}: try again")
        taken = source.take(_READ_RECORDS, _READ_MS / 1000)
        for record in taken.records:
            start = record.offset + 1
            named = _parsed(record.key)
            if isinstance(named, list) and len(named) == 1 and record.value is not None:
                found[str(named[0])] = MirrorIdentity.read(record.value)
        start = max(start, taken.at_end.get(_PLACE, 0))
    return found


def _parsed(text: bytes | None) -> Any:
    """Returns what the text stands for; None if another program has written it."""
    try:
        return json.loads(text or b"null")
    except ValueError:
        return None


def producer_name(mirror: str) -> str:
    """Returns the producer name for a mirror's records."""
    return f"mirror-{mirror}"
