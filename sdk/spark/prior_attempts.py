"""Records that earlier runs of a piece of work have written, read back from the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import NamedTuple

import pyarrow as pa

from quorumlog.sdk.spark.cluster_catalog import ClusterCatalog
from quorumlog.sdk.spark.log_access import stored_rows
from quorumlog.sdk.spark.planning import OffsetRange, TopicShape
from quorumlog.sdk.spark.rows_to_records import TargetPartition
from quorumlog.sdk.spark.write_attempt import Claim, Name, WriteRun, first_ends, says_all


class StoredBatch(NamedTuple):
    """One stored batch.

    Attributes:
        producer_id: of its producer.
        follows: True if it directly follows the previous one of its producer, or is the first.
    """

    target: TargetPartition
    producer_id: int
    batch: pa.RecordBatch
    follows: bool


class Stored(NamedTuple):
    """The records in the log under a name's epoch.

    Attributes:
        batches: by partition, as they were stored.
        records: number in each partition, without those of claims that were taken away.
        is_whole: True if no record is missing in these partitions, from the first one on. A partition whose records are
            all missing is not detected.
    """

    batches: Mapping[TargetPartition, list[pa.RecordBatch]]
    records: Mapping[tuple[str, int], int]
    is_whole: bool


def written_before(
    bootstrap_servers: str, name: Name, run: WriteRun, taken: Sequence[Claim], shapes: Mapping[str, TopicShape]
) -> Stored:
    """Returns the batches in the log under a name's epoch.

    They are searched from the end that each partition had when the first run started.

    Arguments:
        taken: claims of the name that were taken away: records written under them are the task's own, too.
        shapes: the present topics that the runs write to.

    Raises:
        QuorumlogError: a partition stayed without a leader, or failed permanently.
    """
    starts = {
        target: run.note.ends.get(target, 0)
        for topic, shape in shapes.items()
        for target in (TargetPartition(topic, number) for number in range(shape.partition_count))
    }
    found: dict[TargetPartition, list[pa.RecordBatch]] = {}
    records: Counter[tuple[str, int]] = Counter()
    is_whole = True
    under_it = _stored(bootstrap_servers, {run.producer_id}, name.epoch, starts, shapes)
    for rows in chain(written_by(bootstrap_servers, taken, name.epoch, shapes), under_it):
        is_whole = is_whole and rows.follows
        found.setdefault(rows.target, []).append(rows.batch)
        if rows.producer_id == run.producer_id:
            records[(*rows.target,)] += rows.batch.num_rows
    return Stored(found, records, is_whole)


def written_by(
    bootstrap_servers: str, claims: Sequence[Claim], epoch: int, shapes: Mapping[str, TopicShape]
) -> Iterator[StoredBatch]:
    """Yields the batches in the log from several tasks' runs of a piece of work.

    Arguments:
        shapes: the present topics to search.

    Raises:
        QuorumlogError: a partition stayed without a leader, or failed permanently.
    """
    starts: dict[TargetPartition, int] = {}
    topic_ids = _topic_ids(bootstrap_servers, claims, shapes)
    for claim in claims:
        for target, end in first_ends(claim.note, shapes, topic_ids).items():
            starts[target] = min(end, starts.get(target, end))
    return _stored(bootstrap_servers, {claim.producer_id for claim in claims}, epoch, starts, shapes)


def _topic_ids(bootstrap_servers: str, claims: Sequence[Claim], shapes: Mapping[str, TopicShape]) -> set[bytes]:
    """Returns the ids of the topics; of all existing topics if a task's note names other ones."""
    topic_ids = {shape.topic_id for shape in shapes.values()}
    if all(says_all(claim.note, topic_ids) for claim in claims):
        return topic_ids
    catalog = ClusterCatalog(bootstrap_servers, newest=True)
    return {shape.topic_id for shape in catalog.describe(catalog.topic_names()).values()}


def _stored(
    bootstrap_servers: str,
    producer_ids: Set[int],
    epoch: int,
    starts: Mapping[TargetPartition, int],
    shapes: Mapping[str, TopicShape],
) -> Iterator[StoredBatch]:
    # All records: those behind another producer's open transaction are this work's own, too.
    catalog = ClusterCatalog(bootstrap_servers, newest=False, isolation_level="read_uncommitted")
    bounds = catalog.bounds(shapes, list(starts))
    for target, first in starts.items():
        start, end = max(first, bounds[target].log_start), bounds[target].end
        wanted = OffsetRange(target.topic, shapes[target.topic].topic_id, target.partition, start, end)
        next_sequences = dict.fromkeys(producer_ids, 0)
        # A batch that cannot be decoded was not written by this sink: another producer's must not stop it.
        stored = stored_rows(
            bootstrap_servers, wanted, fail_on_data_loss=False, skip_unreadable=True, isolation_level="read_uncommitted"
        )
        for rows in stored:
            if rows.producer_epoch != epoch or rows.producer_id not in producer_ids:
                continue
            yield StoredBatch(target, rows.producer_id, rows.columns, rows.sequence == next_sequences[rows.producer_id])
            next_sequences[rows.producer_id] = rows.sequence + rows.columns.num_rows
