"""What earlier runs of a piece of work have written, read back from the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa

from quorumlog.sdk.spark.cluster_catalog import ClusterCatalog
from quorumlog.sdk.spark.log_access import stored_rows
from quorumlog.sdk.spark.planning import OffsetRange, TopicShape
from quorumlog.sdk.spark.rows_to_records import TargetPartition
from quorumlog.sdk.spark.runs import Name, WriteRun


class Stored(NamedTuple):
    """What is in the log under a name's epoch.

    Attributes:
        batches: by partition, as they were stored.
        is_whole: whether nothing of it, from the first record on, is missing in any of these partitions. Where all
            that was written to a partition is missing, this does not tell.
    """

    batches: Mapping[TargetPartition, list[pa.RecordBatch]]
    is_whole: bool

    @property
    def records(self) -> Mapping[tuple[str, int], int]:
        """How many there are in each partition."""
        return {(*target,): sum(batch.num_rows for batch in batches) for target, batches in self.batches.items()}


def written_before(bootstrap_servers: str, name: Name, run: WriteRun, shapes: Mapping[str, TopicShape]) -> Stored:
    """The batches that the log has under a name's epoch.

    They are looked for from where each partition ended when the first run began.

    Arguments:
        shapes: the topics that the runs write to, as they are now.

    Raises:
        QuorumlogError: a partition stayed without a leader, or failed for good.
    """
    targets = [
        TargetPartition(topic, number) for topic, shape in shapes.items() for number in range(shape.partition_count)
    ]
    bounds = ClusterCatalog(bootstrap_servers, newest=False).bounds(shapes, targets)
    found: dict[TargetPartition, list[pa.RecordBatch]] = {}
    is_whole = True
    for target in targets:
        start = max(run.note.ends.get(target, 0), bounds[target].log_start)
        topic_id, end = shapes[target.topic].topic_id, bounds[target].high_watermark
        wanted = OffsetRange(target.topic, topic_id, target.partition, start, end)
        next_sequence = 0
        for rows in stored_rows(bootstrap_servers, wanted, fail_on_data_loss=False):
            if (rows.producer_id, rows.producer_epoch) != (run.producer_id, name.epoch):
                continue
            is_whole = is_whole and rows.sequence == next_sequence
            next_sequence = rows.sequence + rows.columns.num_rows
            found.setdefault(target, []).append(rows.columns)
    return Stored(found, is_whole)
