"""The streaming source: entry points of Spark's micro-batch engine.

Spark keeps one reader in a Python process of the driver as long as a query runs, and asks it for the start, the end of
the next micro-batch, and its tasks. Tasks get a pickled copy, which only reads. State that must survive a restart is in
the offsets, which Spark writes into the checkpoint before a batch is run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from quorumlog.sdk.errors import QuorumlogError
from quorumlog.sdk.spark import long_poll, task_reading
from quorumlog.sdk.spark.cluster_catalog import ClusterCatalog
from quorumlog.sdk.spark.errors import OptionError, plain_errors
from quorumlog.sdk.spark.group_mirror import GroupMirror
from quorumlog.sdk.spark.nodes import Patience, lagging_is_retriable
from quorumlog.sdk.spark.options import StreamOptions, parse_stream_options
from quorumlog.sdk.spark.rate_limits import RateLimits, TriggerDelay
from quorumlog.sdk.spark.schema import check_projection
from quorumlog.sdk.spark.stream_offsets import StreamOffset, ranges_between
from quorumlog.sdk.spark.stream_planning import LogView, Standing, initial_offset, seems_changed, standing
from quorumlog.sdk.spark.tasks import tasks_of

#: How long an idle query waits at the leaders. During that time it does not check other sources of the query or new
#: partitions, and does not notice that a timer of its state is due.
LONG_POLL_S = 1.0
#: Interval of counting records that are too few for a micro-batch.
_COUNT_EVERY_S = 0.1
#: How long an ending query waits until its progress is shown.
_LAST_COMMIT_S = 5.0

Json = dict[str, Any]


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read.

    The constructor never fails: Spark would report that it has no reader to stop, instead of the problem. Options and
    columns are checked by the first call.

    Arguments:
        given: the user's options.
        columns: columns to read of each record.
    """

    def __init__(self, given: Mapping[str, str], columns: StructType) -> None:
        self._given = dict(given)
        self._columns = columns
        self._mirror: GroupMirror | None = None
        self._initial: StreamOffset | None = None
        #: Why a new query cannot start.
        self._refusal: QuorumlogError | None = None
        self._target: LogView | None = None
        self._seen: LogView | None = None
        #: No micro-batch has run since the last check: the query waits for records.
        self._idle = False

    @cached_property
    def _options(self) -> StreamOptions:
        with plain_errors():
            options = parse_stream_options(self._given)
            check_projection(self._columns, options.read.include_headers)
        return options

    @cached_property
    def _delay(self) -> TriggerDelay:
        return TriggerDelay(self._options)

    # --- where to start, how far to go ---------------------------------------------------------------------------

    def prepareForTriggerAvailableNow(self) -> None:
        """Fixes the ends once: the query reads up to them and no further."""
        with plain_errors():
            self._target = LogView.of(self._catalog(newest=True), self._options.read)

    def initialOffset(self) -> Json:
        """Returns the start of a new query; the same however often Spark asks.

        Spark also asks a query whose first micro-batch is repeated after a restart, and does not use the answer: the
        micro-batch's end contains its start. Options that no longer fit the topics must not stop it, so their errors
        are left to ``latestOffset``, which Spark calls next if the query is new.
        """
        if self._initial is None:
            try:
                self._initial = initial_offset(self._catalog(newest=True), self._options.read, self._target)
            except QuorumlogError as error:
                self._refusal = error
                self._initial = StreamOffset({}, {}, initial=True)
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Returns the limit from the options; Spark passes it back to ``latestOffset``."""
        options = self._options
        if options.max_offsets is not None:
            return ReadMaxRows(options.max_offsets)
        if options.min_offsets is not None:
            return ReadMinRows(options.min_offsets)
        return ReadAllAvailable()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """Returns the end of the next micro-batch, or ``start`` without one."""
        with plain_errors():
            place = StreamOffset.from_json(start)
            if self._refusal is not None and place == self._initial:
                raise self._refusal
            # Earlier batches are done. Spark commits a batch only with the next micro-batch, and the last one never.
            self._show(place)
            end = self._advance(place, self._limits(limit))
        if end is None and self._target is not None and self._mirror is not None:
            self._mirror.flush(_LAST_COMMIT_S)
        return start if end is None else end.to_json()

    def _limits(self, limit: ReadLimit) -> RateLimits:
        if isinstance(limit, ReadAllAvailable):
            return RateLimits()
        # Spark has single limits only: the other one of a pair comes from the options.
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_offsets
        least = limit.min_rows if isinstance(limit, ReadMinRows) else self._options.min_offsets
        # A query that reads the present records and ends must not wait for more: it would wait permanently.
        return RateLimits(most, least if self._target is None else None)

    def _advance(self, start: StreamOffset, limits: RateLimits) -> StreamOffset | None:
        """Returns the end of a micro-batch, or None; an idle query waits for one."""
        may_wait = self._idle and self._target is None
        deadline_s = time.monotonic() + LONG_POLL_S
        self._idle = True
        while True:
            stand = self._stand(start)
            waiting = sum(stand.backlog.values())
            now_s = time.monotonic()
            due_in_s = self._delay.due_in_s(waiting, limits.least, now_s)
            # The micro-batch records losses at once. Otherwise they would be reported again at every check.
            if due_in_s == 0 or stand.lost:
                end = stand.after(limits.most)
                if (end.positions, end.topic_ids) != (start.positions, start.topic_ids):
                    self._delay.triggered(now_s)
                    return end
            left_s = deadline_s - now_s
            if not may_wait or left_s <= 0:
                return None
            if waiting:
                # Too few so far. Further records are rare enough to be counted at intervals.
                time.sleep(min(left_s, due_in_s, _COUNT_EVERY_S))
            else:
                self._wait(stand.view, left_s)

    def _stand(self, start: StreamOffset) -> Standing:
        """Compares a position with the present log, or with Trigger.AvailableNow with the fixed one."""
        view = self._target
        if view is None:
            view = self._look_at_cluster(newest=False)
            if seems_changed(start, view):
                view = self._look_at_cluster(newest=True)
        self._seen = view
        return standing(start, view, self._options.read)

    def _look_at_cluster(self, *, newest: bool) -> LogView:
        """Returns the present cluster. A running query survives nodes that do not answer for some time."""
        patience = Patience()
        while True:
            try:
                return LogView.of(self._catalog(newest=newest), self._options.read)
            except OptionError:
                # A node that lags behind does not have new partitions of a topic yet.
                if newest:
                    raise
                newest = True
            except QuorumlogError as error:
                # A topic that was deleted between two requests is judged by the next check.
                patience.pause(lagging_is_retriable(error))

    def _wait(self, view: LogView, limit_s: float) -> None:
        ends = {partition: bounds.end for partition, bounds in view.bounds.items()}
        long_poll.wait_beyond(self._options.read.bootstrap_servers, ends, view.topic_ids(), limit_s)

    def _catalog(self, *, newest: bool) -> ClusterCatalog:
        return ClusterCatalog(self._options.read.bootstrap_servers, newest=newest)

    def reportLatestOffset(self) -> Json | None:
        """Returns the last known ends of the log, for the query's progress."""
        if self._seen is None:
            return None
        ends = {partition: bounds.end for partition, bounds in self._seen.bounds.items()}
        return StreamOffset(ends, self._seen.topic_ids()).to_json()

    # --- a micro-batch -------------------------------------------------------------------------------------------

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """Returns the tasks of the micro-batch from ``start`` to ``end``: the same ones when it is repeated."""
        self._idle = False
        with plain_errors():
            ranges = ranges_between(StreamOffset.from_json(start), StreamOffset.from_json(end))
            return [task_reading.LogTask(task) for task in tasks_of(ranges, self._options.read)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields the rows of one task, as Arrow batches of exactly the requested columns."""
        return task_reading.read_task(self._options.read, self._columns, partition)

    def commit(self, end: Json) -> None:
        """Notes that Spark will not ask for anything before ``end`` again."""
        self._idle = False
        self._show(StreamOffset.from_json(end))

    def _show(self, place: StreamOffset) -> None:
        """Shows the query's progress in the consumer group, if there is one."""
        group_id = self._options.group_id
        if group_id is None or place.initial:
            return
        if self._mirror is None:
            self._mirror = GroupMirror(self._options.read.bootstrap_servers, group_id)
        self._mirror.show(place)
