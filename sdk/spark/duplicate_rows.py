"""Rows of a task that equal rows written by other tasks of an earlier run; the end of the run decides whose they are.

A task cannot tell how many tasks its run has: only the driver does, when all are done. If there are fewer than in the
run before, rows written by the missing tasks are among the rows of the remaining ones, and must not be written again.
If there are as many, such rows are merely equal, and must be written. So a task sets them aside, and the driver writes
those that are not the missing tasks'.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quorumlog.sdk.spark.errors import DeliveryError
from quorumlog.sdk.spark.rows_to_records import Record, TargetPartition, as_tuples

Placed = tuple[TargetPartition, pa.Table]


def set_aside(
    rows: Sequence[Placed], others: Iterable[tuple[TargetPartition, pa.RecordBatch]]
) -> tuple[list[Placed], list[Placed]]:
    """Splits rows by whether other tasks have written equal ones.

    The partition does not count: the partition of a row without a key depends on the task.

    Arguments:
        others: rows stored by other tasks.

    Returns:
        the rows that no other task has, and the others.
    """
    values: dict[str, Any] = {}
    for topic in {target.topic for target, _ in rows}:
        chunks = [chunk for target, mine in rows if target.topic == topic for chunk in mine.column("value").chunks]
        values[topic] = pc.unique(pa.chunked_array(chunks, pa.binary()))
    found: set[tuple[str, Record]] = set()
    for target, batch in others:
        if target.topic in values:
            # Most rows are unique: Arrow detects that without creating Python objects for them.
            like = batch.filter(pc.is_in(batch.column("value"), value_set=values[target.topic]))
            found.update((target.topic, record) for record in as_tuples(pa.Table.from_batches([like])))
    if not found:
        return list(rows), []
    own: list[Placed] = []
    shared: list[Placed] = []
    for target, records in rows:
        is_found = pa.array([(target.topic, record) in found for record in as_tuples(records)], pa.bool_())
        own.append((target, records.filter(pc.invert(is_found))))
        shared.append((target, records.filter(is_found)))
    return [each for each in own if each[1].num_rows], [each for each in shared if each[1].num_rows]


def without_lost(
    held: Sequence[Placed], lost: Iterable[tuple[TargetPartition, pa.RecordBatch]], tasks: int
) -> list[Placed]:
    """Returns the rows set aside that lost tasks have not written, counting duplicates.

    Arguments:
        held: rows that all tasks of the run have set aside.
        lost: rows stored by tasks that the run does not have.
        tasks: number of tasks of the run.

    Returns:
        as many tables as ``held`` has, in the same order; some may have no rows.

    Raises:
        DeliveryError: lost tasks have written rows that were not set aside.
    """
    left = Counter((target, record) for target, records in held for record in as_tuples(records))
    gone: Counter[tuple[TargetPartition, Record]] = Counter()
    elsewhere: Counter[tuple[str, Record]] = Counter()
    for target, batch in lost:
        for record in as_tuples(pa.Table.from_batches([batch])):
            if left[target, record] > 0:
                left[target, record] -= 1
                gone[target, record] += 1
            else:
                elsewhere[target.topic, record] += 1
    kept: list[Placed] = []
    for target, records in held:
        places: list[int] = []
        for place, record in enumerate(as_tuples(records)):
            if gone[target, record] > 0:
                gone[target, record] -= 1
            elif elsewhere[target.topic, record] > 0:
                elsewhere[target.topic, record] -= 1
            else:
                places.append(place)
        kept.append((target, records.take(pa.array(places, pa.int64()))))
    if surplus := elsewhere.total():
        raise DeliveryError(
            f"an earlier run of this batch was divided into more than {tasks} tasks, and {surplus} records that the"
            " others of them wrote are not those that this run has left out: they may be in the log twice now. The"
            " query does not give the same rows each time, or two instances of it run. Start it again with another"
            " checkpoint, or another transactionId"
        )
    return kept
