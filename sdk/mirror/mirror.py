"""Copies lap by lap, and resumes where it stopped."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from quorumlog.sdk.errors import DuplicateSequenceMismatchError, IllegalStateError, NetworkError
from quorumlog.sdk.metrics.figures import MIRROR, ClientFigures
from quorumlog.sdk.mirror.copy_intents import PartitionPlan
from quorumlog.sdk.mirror.offset_map import OffsetRun, joined, runs_of
from quorumlog.sdk.mirror.origins import origin_of
from quorumlog.sdk.mirror.source import MirrorSource, SourceRecord, Taken
from quorumlog.sdk.types import TopicPartition

#: Limits of one lap in records, bytes and seconds of gathering.
LAP_RECORDS, LAP_BYTES, LAP_S = 20_000, 32 << 20, 0.5
_TAKE_RECORDS, _TAKE_S = 2_000, 0.1
#: If a source returns nothing for this long before the end of a partition, it is considered unreadable.
STALLED_S = 120.0
#: Time limit for reading the records of a repeated lap again.
AGAIN_WITHIN_S = 60.0
#: A partition that ends before its position for this long was created again; a new leader may say so for a moment.
SHORTER_S = 30.0

_log = logging.getLogger(__name__)


class Plans(Protocol):
    """Storage of plans."""

    def write(self, plans: Mapping[TopicPartition, PartitionPlan]) -> None: ...


class LapSender(Protocol):
    """Sends the records of a lap, each of which is added once however often the lap is sent.

    Returns:
        The offsets here of the records of each partition, in order; -1 for one that is no longer known.

    Raises:
        DuplicateSequenceMismatchError: the lap was sent before with other records.
    """

    def __call__(
        self, lap: int, records: Iterable[SourceRecord], latest_ms: int
    ) -> Mapping[TopicPartition, Sequence[int]]: ...


@dataclass(slots=True)
class _Copied:
    """Progress of a partition.

    Arguments:
        next_source: offset in the source at which the next lap starts.
        runs: the copied records.
        returned: records that came from the target cluster: their offsets in the source, and in the target.
        newest_returned: offset in the target of the newest of these; -1 without any.
        end: offset at which the source said that the partition ends; the last places may have no records.
        stalled_s: since when nothing of it arrives although something is left; None if that is not so.
    """

    next_source: int
    runs: list[OffsetRun]
    returned: list[OffsetRun] = field(default_factory=list)
    newest_returned: int = -1
    end: int = 0
    stalled_s: float | None = None

    def lag(self, end: int) -> int:
        """Returns the number of offsets up to the end that were not read."""
        return max(end - max(self.next_source, self.end), 0)


@dataclass(slots=True)
class _Gathered:
    """Records of a partition that the next lap copies.

    Arguments:
        end: offset behind everything that was read.
        returned: records in between that came from the target cluster.
    """

    end: int
    records: list[SourceRecord] = field(default_factory=list)
    returned: list[OffsetRun] = field(default_factory=list)
    newest_returned: int = -1


@dataclass(slots=True, frozen=True)
class LapOptions:
    """Options of copying.

    Arguments:
        target: id of the target cluster, if another mirror copies it to the source: records that came from there are
            not sent back. Otherwise None.
        skip_to: offset at which a partition continues behind a batch that cannot be read.
    """

    target: str | None = None
    skip_to: Mapping[TopicPartition, int] = field(default_factory=dict)


class Mirror:
    """Copies the partitions of a source.

    Arguments:
        wall_ms: milliseconds since the epoch.
    """

    def __init__(
        self,
        source: MirrorSource,
        plans: Plans,
        send: LapSender,
        options: LapOptions = LapOptions(),
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._plans = plans
        self._send = send
        self._target, self._skip_to = options.target, options.skip_to
        self._wall_ms, self._clock = wall_ms, clock
        self._compacted: set[str] = set()
        self._copied: dict[TopicPartition, _Copied] = {}
        self._written: dict[TopicPartition, PartitionPlan] = {}
        #: Partitions whose end was reached at some moment.
        self._ended: set[TopicPartition] = set()
        self._paused: frozenset[str] = frozenset()
        #: Since when a partition has ended before its position.
        self._shorter_since: dict[TopicPartition, float] = {}
        #: Topics that are no longer copied because of a problem, with a line that says why.
        self.set_aside: dict[str, str] = {}
        self._lap = 0
        self.records = 0

    def runs(self, partition: TopicPartition) -> Sequence[OffsetRun]:
        """Returns the copied records of a partition."""
        copied = self._copied.get(partition)
        return copied.runs if copied is not None else ()

    def returned(self, partition: TopicPartition) -> Sequence[OffsetRun]:
        """Returns the records of a partition that came from the target cluster."""
        copied = self._copied.get(partition)
        return copied.returned if copied is not None else ()

    @property
    def partitions(self) -> Collection[TopicPartition]:
        """The partitions that are copied, or paused."""
        return self._copied.keys()

    @property
    def is_at_end(self) -> bool:
        """True if the end of every partition that is not paused has been reached once."""
        return all(tp in self._ended or tp.topic in self._paused for tp in self._copied)

    def metrics(self) -> ClientFigures:
        """Returns the lag of each partition, and the number of copied records. Called by any thread."""
        figures: ClientFigures = {MIRROR: {"records-copied-total": float(self.records)}}
        most = 0
        for tp, copied in list(self._copied.items()):
            end = self._source.known_end(tp)
            if end is not None:
                lag = copied.lag(end)
                most = max(most, lag)
                figures[f"{MIRROR}.{tp.topic}-{tp.partition}"] = {"records-lag": float(lag)}
        figures[MIRROR] |= {
            "records-lag-max": float(most),
            "assigned-partitions": float(len(self._copied)),
            "topics-set-aside": float(len(self.set_aside)),
        }
        return figures

    # -- what is copied -----------------------------------------------------------------------------------------------

    def load(self, plans: Mapping[TopicPartition, PartitionPlan]) -> None:
        """Takes stored plans over. The first call."""
        self._lap = max((plan.lap for plan in plans.values()), default=0)
        self._written = dict(plans)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Resumes partitions from their plans, and completes the newest lap. The second call."""
        self._begin(partitions)
        # A topic that is no longer copied is not completed: its log has a prefix of the lap.
        unfinished = {
            tp: plan
            for tp, plan in self._written.items()
            if plan.lap == self._lap and plan.count and tp in self._copied
        }
        if unfinished:
            self._again(unfinished)
        self._read_on()

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Copies further partitions from now on; those that were copied before, from where they were."""
        new = [tp for tp in partitions if tp not in self._copied]
        if new:
            self._begin(new)
            self._read_on()

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Starts partitions from their beginning the next time that they are added. For topics that do not exist here:
        call it before they are created, otherwise a crash in between would leave records out."""
        known = {tp: plan for tp in partitions if (plan := self._written.get(tp)) is not None}
        self.drop({tp.topic for tp in known})
        starts = {tp: self._source.bounds(tp)[0] for tp in known}
        # The lap keeps its number, because an epoch of the producer has one meaning.
        self._write({tp: PartitionPlan(plan.lap, starts[tp], starts[tp], 0, 0, ()) for tp, plan in known.items()})
        for topic in sorted({tp.topic for tp in known}):
            _log.warning("topic %s no longer exists here: it is copied from its start", topic)

    def drop(self, topics: Collection[str]) -> None:
        """Copies topics no longer. Their progress is kept."""
        gone = [tp for tp in self._copied if tp.topic in topics]
        if gone:
            self._note_copied(())
        for tp in gone:
            del self._copied[tp]
            self._ended.discard(tp)
            self._shorter_since.pop(tp, None)
        for topic in topics:
            self.set_aside.pop(topic, None)
        if gone:
            self._read_on()

    def declare_compacted(self, topics: Iterable[str]) -> None:
        """Names the compacted topics: in these a duplicate record has no effect."""
        self._compacted = set(topics)

    def pause(self, topics: Collection[str]) -> None:
        """Pauses exactly these topics."""
        if self._paused != frozenset(topics):
            self._paused = frozenset(topics)
            self._read_on()

    def _begin(self, partitions: Iterable[TopicPartition]) -> None:
        begun: dict[TopicPartition, _Copied] = {}
        for tp in partitions:
            plan = self._written.get(tp)
            if plan is None:
                begun[tp] = _Copied(self._source.bounds(tp)[0], [])
            else:
                begun[tp] = _Copied(plan.end, list(plan.runs), list(plan.returned), plan.newest_returned)
        self._copied.update(begun)

    # -- progress -----------------------------------------------------------------------------------------------------

    def lap(self) -> int:
        """Copies new records; returns their number.

        Raises:
            IllegalStateError: the source has a batch that cannot be read, or has changed records of an incomplete lap.
        """
        before = self.records
        gathered = self._gather()
        sent = {tp: its for tp, its in gathered.items() if its.records}
        for tp, its in gathered.items():
            if tp not in sent:
                self._pass_over(tp, its)
        # Separately, since only the compacted ones may be sent twice if the source changes during a lap (``_again``).
        for compacted in (False, True):
            records = {tp: its for tp, its in sent.items() if (tp.topic in self._compacted) is compacted}
            if records:
                self._lap += 1
                self._copy(records)
        return self.records - before

    def finish(self) -> None:
        """Notes that no lap is incomplete, so that the next run reads nothing again."""
        self._note_copied(())

    def _note_copied(self, planned_next: Collection[TopicPartition]) -> None:
        """Stores the progress of partitions since their plans, unless the next plan of a partition contains it."""
        plans = {
            tp: PartitionPlan(
                plan.lap if (plan := self._written.get(tp)) is not None else self._lap,
                copied.next_source, copied.next_source, 0, plan.latest_ms if plan is not None else 0,
                tuple(copied.runs), tuple(copied.returned), copied.newest_returned,
            )
            for tp, copied in self._copied.items()
            if tp not in planned_next and self._is_beyond_its_plan(tp, copied)
        }  # fmt: skip
        self._write(plans)

    def _is_beyond_its_plan(self, tp: TopicPartition, copied: _Copied) -> bool:
        plan = self._written.get(tp)
        return bool(copied.returned) if plan is None else bool(plan.count) or plan.end != copied.next_source

    def _write(self, plans: Mapping[TopicPartition, PartitionPlan]) -> None:
        if plans:
            self._plans.write(plans)
            self._written.update(plans)

    def _pass_over(self, tp: TopicPartition, its: _Gathered) -> None:
        """Continues behind records of which none has to be copied."""
        copied = self._copied[tp]
        copied.next_source = its.end
        copied.returned = joined([*copied.returned, *its.returned])
        copied.newest_returned = max(copied.newest_returned, its.newest_returned)

    # -- a lap --------------------------------------------------------------------------------------------------------

    def _check_progress(self, found: dict[TopicPartition, _Gathered], *, is_quiet: bool) -> None:
        """Handles partitions of which nothing arrives before their end.

        Kafka's client library does not report a batch whose records it cannot decode: the mirror would wait
        indefinitely.

        Arguments:
            is_quiet: nothing of any partition was waiting. Otherwise others may only have been faster.
        """
        now_s = self._clock()
        out = self._paused | self.set_aside.keys()
        for tp, copied in self._copied.items():
            end = self._source.known_end(tp)
            if tp in found or tp.topic in out or (tp in self._ended and (end is None or not copied.lag(end))):
                copied.stalled_s = None
            elif copied.stalled_s is None:
                copied.stalled_s = now_s if is_quiet else None
            elif now_s - copied.stalled_s >= STALLED_S:
                copied.stalled_s = None
                if self._has_more(tp):
                    self._skip_unreadable(tp, copied.next_source, "the source returns nothing from there on", found)
                    self._read_on({place: its.end for place, its in found.items()})

    def _has_more(self, tp: TopicPartition) -> bool:
        """True if the partition has a leader that responds, and records that can be read now. A batch of any other one
        may be readable later, and what follows the start of an open transaction, once that has ended."""
        copied = self._copied[tp]
        try:
            _, end = self._source.bounds(tp)
        except NetworkError as problem:
            _log.warning("%s-%d is not available in the source: %s", tp.topic, tp.partition, problem.message)
            return False
        return end > max(copied.next_source, copied.end)

    def _skip_unreadable(self, tp: TopicPartition, at: int, why: str, found: dict[TopicPartition, _Gathered]) -> None:
        end = self._skip_to.get(tp, 0)
        if end <= at:
            raise IllegalStateError(
                f"{tp.topic}, partition {tp.partition}: the batch at offset {at} of the source cannot be read ({why})."
                f" To continue behind it, give --skip-to {tp.topic}-{tp.partition}:OFFSET, with the first offset behind"
                " that batch"
            )
        _log.warning("skipped offsets %d to %d of %s-%d: %s", at, end - 1, tp.topic, tp.partition, why)
        its = found.setdefault(tp, _Gathered(0, newest_returned=self._copied[tp].newest_returned))
        its.end = end

    def _gather(self) -> dict[TopicPartition, _Gathered]:
        found: dict[TopicPartition, _Gathered] = {}
        count = size = 0
        is_quiet = False
        until = self._clock() + LAP_S
        while count < LAP_RECORDS and size < LAP_BYTES and self._clock() < until:
            taken = self._source.take(_TAKE_RECORDS, _TAKE_S)
            for record in taken.records:
                copied = self._copied.get(record.partition)
                if copied is not None:
                    self._add(found, record, copied.newest_returned)
                    size += len(record.key or b"") + len(record.value or b"")
            count += len(taken.records)
            is_quiet = is_quiet or not taken.records
            # The lap ends behind a batch that was skipped: sent again, it would meet that batch.
            if self._handle_problems(taken, found) or (not taken.records and (count or self.is_at_end)):
                break
        self._check_progress(found, is_quiet=is_quiet)
        return found

    def _add(self, found: dict[TopicPartition, _Gathered], record: SourceRecord, newest_returned: int) -> None:
        """Adds a record to what the next lap copies, unless it came from the target cluster.

        A record with an origin that is not beyond the newest one did not come by the mirror, which copies in order: a
        program has written it again, with the headers of the one that it read.
        """
        its = found.setdefault(record.partition, _Gathered(0, newest_returned=newest_returned))
        its.end = record.offset + 1
        origin = origin_of(record, self._target) if self._target is not None else None
        if origin is not None and origin > its.newest_returned:
            its.newest_returned = origin
            its.returned.append(OffsetRun(record.offset, origin, 1))
        else:
            its.records.append(record)

    def _handle_problems(self, taken: Taken, found: dict[TopicPartition, _Gathered]) -> bool:
        """Handles everything else that a read has returned; returns True if it has skipped a batch."""
        for tp, end in taken.at_end.items():
            if tp in self._copied:
                self._ended.add(tp)
                self._copied[tp].end = end
        for tp in self._shorter_since.keys() & found.keys():
            del self._shorter_since[tp]
        if removed := [tp for tp in taken.removed if tp in self._copied]:
            self._skip_removed(removed, found)
        unreadable = {tp: problem for tp, problem in taken.unreadable.items() if tp in self._copied}
        for tp, (offset, why) in unreadable.items():
            self._skip_unreadable(tp, max(offset, self._copied[tp].next_source), why, found)
        if unreadable:
            self._read_on({tp: its.end for tp, its in found.items()})
        return bool(unreadable)

    def _skip_removed(self, partitions: Iterable[TopicPartition], found: Mapping[TopicPartition, _Gathered]) -> None:
        for tp in partitions:
            at = found[tp].end if tp in found else self._copied[tp].next_source
            try:
                start, end = self._source.bounds(tp)
            except NetworkError as problem:  # The topic was deleted, or no node answers: it is asked again.
                _log.debug("the bounds of %s-%d are not known: %s", tp.topic, tp.partition, problem.message)
                continue
            if end < at:
                self._check_shorter(tp, at, end)
            if start <= at:
                continue
            _log.warning(
                "the source has removed offsets %d to %d of %s-%d before they were copied; going on behind them",
                at, start - 1, tp.topic, tp.partition,
            )  # fmt: skip
            if tp not in found:
                self._copied[tp].next_source = start
        self._read_on({tp: its.end for tp, its in found.items()})

    def _check_shorter(self, tp: TopicPartition, at: int, end: int) -> None:
        """Sets a topic aside that was created again: what follows is not what the copied records had before them."""
        since = self._shorter_since.setdefault(tp, self._clock())
        if self._clock() - since >= SHORTER_S and tp.topic not in self.set_aside:
            self.set_aside[tp.topic] = (
                f"{tp.topic}-{tp.partition} ends at offset {end} in the source, and {at} offsets have been copied: it"
                " was deleted and created again there, or has lost records. It is no longer copied. To copy the new"
                f" topic from its start, stop the mirror, delete {tp.topic} here, and start the mirror"
            )
            _log.error("%s", self.set_aside[tp.topic])

    def _read_on(self, beyond: Mapping[TopicPartition, int] | None = None) -> None:
        positions = {tp: copied.next_source for tp, copied in self._copied.items()} | dict(beyond or {})
        out = self._paused | self.set_aside.keys()
        self._source.assign({tp: at for tp, at in positions.items() if tp.topic not in out})

    def _copy(self, gathered: Mapping[TopicPartition, _Gathered]) -> None:
        self._note_copied(gathered.keys())
        at_ms = self._wall_ms()
        plans = {
            tp: PartitionPlan(
                self._lap, self._copied[tp].next_source, its.end, len(its.records), at_ms,
                tuple(self._copied[tp].runs), tuple(self._copied[tp].returned), self._copied[tp].newest_returned,
            )
            for tp, its in gathered.items()
        }  # fmt: skip
        self._write(plans)
        self._send_lap(plans, gathered)

    def _send_lap(
        self, plans: Mapping[TopicPartition, PartitionPlan], gathered: Mapping[TopicPartition, _Gathered]
    ) -> None:
        latest_ms = max(plan.latest_ms for plan in plans.values())
        targets = self._send(self._lap, [each for its in gathered.values() for each in its.records], latest_ms)
        for tp, its in gathered.items():
            copied = self._copied[tp]
            runs = runs_of([record.offset for record in its.records], targets.get(tp, ()), plans[tp].runs)
            copied.runs = joined([*plans[tp].runs, *runs])
            copied.returned = list(plans[tp].returned)
            copied.newest_returned = plans[tp].newest_returned
            self._pass_over(tp, replace(its, end=plans[tp].end))
            self.records += len(its.records)

    # -- again --------------------------------------------------------------------------------------------------------

    def _again(self, plans: Mapping[TopicPartition, PartitionPlan]) -> None:
        """Sends a lap again that may be incomplete."""
        gathered = self._read_again(plans)
        for tp, plan in plans.items():
            if len(gathered[tp].records) != plan.count:
                self._is_another(tp, f"{plan.count} records from {plan.start} to {plan.end - 1}, and has"
                                     f" {len(gathered[tp].records)} of them now")  # fmt: skip
        same = {tp: its for tp, its in gathered.items() if its.records}
        try:
            self._send_lap(plans, same)
        except DuplicateSequenceMismatchError:
            for tp in same:
                self._is_another(tp, "other records")
            self._lap += 1
            anew = {tp: replace(plans[tp], lap=self._lap, count=len(its.records)) for tp, its in same.items()}
            self._write(anew)
            self._send_lap(anew, same)

    def _is_another(self, tp: TopicPartition, had: str) -> None:
        """Handles changed records of an incomplete lap. A compacted topic may have them twice; elsewhere the missing
        ones are unknown."""
        if tp.topic not in self._compacted:
            raise IllegalStateError(
                f"{tp.topic}-{tp.partition} was half copied, and the source has changed since: it had {had}. Delete the"
                " topic here and start the mirror again: it then copies the topic from its start"
            )

    def _read_again(self, plans: Mapping[TopicPartition, PartitionPlan]) -> dict[TopicPartition, _Gathered]:
        found = {tp: _Gathered(plan.start, newest_returned=plan.newest_returned) for tp, plan in plans.items()}
        self._source.assign({tp: plan.start for tp, plan in plans.items()})
        left = set(plans)
        until = self._clock() + AGAIN_WITHIN_S
        while left:
            if self._clock() > until:
                left = {tp for tp in left if len(found[tp].records) < plans[tp].count}
                if not left:  # What follows in the lap was skipped.
                    break
                tp = min(left)
                raise IllegalStateError(f"the source no longer returns {tp.topic}-{tp.partition}: try again")
            taken = self._source.take(_TAKE_RECORDS, _TAKE_S)
            for record in taken.records:
                tp = record.partition
                if tp in plans and record.offset < plans[tp].end:
                    self._add(found, record, plans[tp].newest_returned)
                if tp in plans and record.offset >= plans[tp].end - 1:
                    left.discard(tp)
            left -= {tp for tp in taken.removed if tp in left} | taken.unreadable.keys()
            left -= {tp for tp, end in taken.at_end.items() if end >= plans[tp].end}
        return found
