"""What earlier runs of a piece of work have written, read back from the log."""

from __future__ import annotations

import pyarrow as pa

from quorumlog.sdk.spark.cluster_catalog import ClusterCatalog
from quorumlog.sdk.spark.log_access import stored_rows
from quorumlog.sdk.spark.outgoing import Target
from quorumlog.sdk.spark.planning import OffsetRange
from quorumlog.sdk.spark.runs import Name, Run


def written_before(bootstrap_servers: str, name: Name, run: Run) -> dict[Target, list[pa.RecordBatch]]:
    """The batches that the log has under a name's epoch, by partition, as they were stored.

    They are looked for from where each partition ended when the first run began.

    Raises:
        QuorumlogError: a partition stayed without a leader, or failed for good.
    """
    catalog = ClusterCatalog(bootstrap_servers, newest=False)
    shapes = catalog.describe(list(run.note.partition_counts))
    targets = [
        Target(topic, number)
        for topic, count in run.note.partition_counts.items()
        if topic in shapes
        for number in range(min(count, shapes[topic].partition_count))
    ]
    bounds = catalog.bounds(shapes, targets)
    found: dict[Target, list[pa.RecordBatch]] = {}
    for target in targets:
        start = max(run.note.ends.get(target, 0), bounds[target].log_start)
        topic_id, end = shapes[target.topic].topic_id, bounds[target].high_watermark
        wanted = OffsetRange(target.topic, topic_id, target.partition, start, end)
        mine = [
            rows.columns
            for rows in stored_rows(bootstrap_servers, wanted, fail_on_data_loss=False)
            if (rows.producer_id, rows.producer_epoch) == (run.producer_id, name.epoch)
        ]
        if mine:
            found[target] = mine
    return found
