"""Copies lap by lap, and resumes where it stopped."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from quorumlog.sdk.errors import DuplicateSequenceMismatchError, IllegalStateError
from quorumlog.sdk.mirror.copy_intents import PartitionPlan
from quorumlog.sdk.mirror.offset_map import OffsetRun, joined, runs_of
from quorumlog.sdk.mirror.source import MirrorSource, SourceRecord
from quorumlog.sdk.types import TopicPartition

#: Limits of one lap in records, bytes and seconds of gathering.
LAP_RECORDS, LAP_BYTES, LAP_S = 20_000, 32 << 20, 0.5
_TAKE_RECORDS, _TAKE_S = 2_000, 0.1
#: If a source returns nothing for this long before the end of a partition, it is considered unreadable.
STALLED_S = 120.0
#: Time limit for reading the records of a repeated lap again.
AGAIN_WITHIN_S = 60.0

_log = logging.getLogger(__name__)


class Plans(Protocol):
    """Storage of plans."""

    def load(self) -> dict[TopicPartition, PartitionPlan]: ...
    def write(self, plans: Mapping[TopicPartition, PartitionPlan]) -> None: ...


class LapSender(Protocol):
    """Sends the records of a lap, each of which is added once however often the lap is sent.

    Returns:
        The offset here of the last record of each partition.

    Raises:
        DuplicateSequenceMismatchError: the lap was sent before with other records.
    """

    def __call__(self, lap: int, records: Iterable[SourceRecord], latest_ms: int) -> dict[TopicPartition, int]: ...


@dataclass(slots=True)
class _Copied:
    """Progress of a partition."""

    next_source: int
    runs: list[OffsetRun]


class Mirror:
    """Copies the partitions of a source.

    Arguments:
        partitions: those to copy.
        compacted: topics in which a duplicate record has no effect.
        wall_ms: milliseconds since the epoch.
    """

    def __init__(
        self,
        source: MirrorSource,
        plans: Plans,
        send: LapSender,
        partitions: Iterable[TopicPartition],
        compacted: Iterable[str] = (),
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._plans = plans
        self._send = send
        self._partitions = tuple(partitions)
        self._compacted = frozenset(compacted)
        self._wall_ms, self._clock = wall_ms, clock
        self._copied: dict[TopicPartition, _Copied] = {}
        self._written: dict[TopicPartition, PartitionPlan] = {}
        #: Partitions whose end was reached at some moment.
        self._ended: set[TopicPartition] = set()
        self._lap = 0
        self._moved_s = clock()
        self.records = 0

    def runs(self, partition: TopicPartition) -> Sequence[OffsetRun]:
        """Returns the copied records of a partition."""
        copied = self._copied.get(partition)
        return copied.runs if copied is not None else ()

    @property
    def is_at_end(self) -> bool:
        """True if the end of every partition has been reached once."""
        return len(self._ended) == len(self._copied)

    def resume(self, plans: Mapping[TopicPartition, PartitionPlan]) -> None:
        """Resumes from stored plans, and completes the newest lap."""
        self._lap = max((plan.lap for plan in plans.values()), default=0)
        self._written = dict(plans)
        for tp in self._partitions:
            plan = plans.get(tp)
            if plan is None:
                self._copied[tp] = _Copied(self._source.start(tp), [])
            else:
                self._copied[tp] = _Copied(plan.end, list(plan.runs))
        # A topic that is no longer copied is not completed: its log has a prefix of the lap.
        unfinished = {
            tp: plan for tp, plan in plans.items() if plan.lap == self._lap and plan.count and tp in self._copied
        }
        if unfinished:
            self._again(unfinished)
        self._read_on()
        self._moved_s = self._clock()

    def lap(self) -> int:
        """Copies new records; returns their number."""
        before = self.records
        gathered = self._gather()
        self._check_progress(bool(gathered))
        # Separately, since only the compacted ones may be sent twice if the source changes during a lap (``_again``).
        for compacted in (False, True):
            records = {tp: its for tp, its in gathered.items() if (tp.topic in self._compacted) is compacted}
            if records:
                self._lap += 1
                self._copy(records)
        return self.records - before

    def finish(self) -> None:
        """Notes that no lap is incomplete, so that the next run reads nothing again."""
        self._note_copied(())

    def _note_copied(self, planned_next: Collection[TopicPartition]) -> None:
        """Stores the progress of the previous lap's partitions, unless the next plan of a partition contains it."""
        plans = {
            tp: replace(plan, start=copied.next_source, end=copied.next_source, count=0, runs=tuple(copied.runs))
            for tp, plan in self._written.items()
            if plan.count and tp not in planned_next and (copied := self._copied.get(tp)) is not None
        }
        self._write(plans)

    def _write(self, plans: Mapping[TopicPartition, PartitionPlan]) -> None:
        if plans:
            self._plans.write(plans)
            self._written.update(plans)

    # -- a lap --------------------------------------------------------------------------------------------------------

    def _check_progress(self, moved: bool) -> None:
        """Raises if no records arrive for partitions whose end was never reached.

        Kafka's client library does not report a batch whose records it cannot decode: the mirror would wait
        indefinitely.
        """
        now_s = self._clock()
        if moved or self.is_at_end:
            self._moved_s = now_s
        elif now_s - self._moved_s >= STALLED_S:
            tp, copied = min((tp, copied) for tp, copied in self._copied.items() if tp not in self._ended)
            raise IllegalStateError(
                f"the source returns nothing of {tp.topic}-{tp.partition} from offset {copied.next_source} on, and the"
                " partition does not end there: look whether a consumer of the source can read that batch; leave the"
                " topic out with --topic otherwise"
            )

    def _gather(self) -> dict[TopicPartition, list[SourceRecord]]:
        found: dict[TopicPartition, list[SourceRecord]] = {}
        count = size = 0
        until = self._clock() + LAP_S
        while count < LAP_RECORDS and size < LAP_BYTES and self._clock() < until:
            taken = self._source.take(_TAKE_RECORDS, _TAKE_S)
            for record in taken.records:
                found.setdefault(record.partition, []).append(record)
                size += len(record.key or b"") + len(record.value or b"")
            count += len(taken.records)
            self._ended.update(taken.at_end)
            if taken.removed:
                self._skip_removed(taken.removed, found)
            if not taken.records and (count or self.is_at_end):
                break
        return found

    def _skip_removed(
        self, partitions: Iterable[TopicPartition], found: Mapping[TopicPartition, Sequence[SourceRecord]]
    ) -> None:
        for tp in partitions:
            at = found[tp][-1].offset + 1 if tp in found else self._copied[tp].next_source
            start = self._source.start(tp)
            if start <= at:
                continue
            _log.warning(
                "the source has removed offsets %d to %d of %s-%d before they were copied; going on behind them",
                at, start - 1, tp.topic, tp.partition,
            )  # fmt: skip
            if tp not in found:
                self._copied[tp].next_source = start
        self._read_on({tp: records[-1].offset + 1 for tp, records in found.items()})

    def _read_on(self, beyond: Mapping[TopicPartition, int] | None = None) -> None:
        positions = {tp: copied.next_source for tp, copied in self._copied.items()}
        self._source.assign({**positions, **(beyond or {})})

    def _copy(self, records: Mapping[TopicPartition, Sequence[SourceRecord]]) -> None:
        self._note_copied(records.keys())
        at_ms = self._wall_ms()
        plans = {
            tp: PartitionPlan(
                self._lap, self._copied[tp].next_source, its[-1].offset + 1, len(its), at_ms,
                tuple(self._copied[tp].runs),
            )
            for tp, its in records.items()
        }  # fmt: skip
        self._write(plans)
        self._send_lap(plans, records)

    def _send_lap(
        self, plans: Mapping[TopicPartition, PartitionPlan], records: Mapping[TopicPartition, Sequence[SourceRecord]]
    ) -> None:
        latest_ms = max(plan.latest_ms for plan in plans.values())
        last = self._send(self._lap, [each for its in records.values() for each in its], latest_ms)
        for tp, its in records.items():
            runs = runs_of([record.offset for record in its], last[tp] - len(its) + 1)
            self._copied[tp] = _Copied(plans[tp].end, joined([*plans[tp].runs, *runs]))
            self.records += len(its)

    # -- again --------------------------------------------------------------------------------------------------------

    def _again(self, plans: Mapping[TopicPartition, PartitionPlan]) -> None:
        """Sends a lap again that may be incomplete."""
        records = self._read_again(plans)
        for tp, plan in plans.items():
            if len(records[tp]) != plan.count:
                self._is_another(tp, f"{plan.count} records from {plan.start} to {plan.end - 1}, and has"
                                     f" {len(records[tp])} of them now")  # fmt: skip
        same = {tp: its for tp, its in records.items() if its}
        try:
            self._send_lap(plans, same)
        except DuplicateSequenceMismatchError:
            for tp in same:
                self._is_another(tp, "other records")
            self._lap += 1
            anew = {tp: replace(plans[tp], lap=self._lap, count=len(its)) for tp, its in same.items()}
            self._write(anew)
            self._send_lap(anew, same)

    def _is_another(self, tp: TopicPartition, had: str) -> None:
        """Handles changed records of an incomplete lap. A compacted topic may have them twice; elsewhere the missing
        ones are unknown."""
        if tp.topic not in self._compacted:
            raise IllegalStateError(
                f"{tp.topic}-{tp.partition} was half copied, and the source has changed since: it had {had}. Delete the"
                " topic here and mirror it under another --name"
            )

    def _read_again(self, plans: Mapping[TopicPartition, PartitionPlan]) -> dict[TopicPartition, list[SourceRecord]]:
        records: dict[TopicPartition, list[SourceRecord]] = {tp: [] for tp in plans}
        self._source.assign({tp: plan.start for tp, plan in plans.items()})
        left = set(plans)
        until = self._clock() + AGAIN_WITHIN_S
        while left:
            if self._clock() > until:
                tp = min(left)
                raise IllegalStateError(f"the source no longer returns {tp.topic}-{tp.partition}: try again")
            taken = self._source.take(_TAKE_RECORDS, _TAKE_S)
            for record in taken.records:
                tp = record.partition
                if record.offset < plans[tp].end:
                    records[tp].append(record)
                if record.offset >= plans[tp].end - 1:
                    left.discard(tp)
            left -= {tp for tp in taken.removed if tp in left}
            left -= {tp for tp, end in taken.at_end.items() if end >= plans[tp].end}
        return records
