"""cleanup.policy=compact,delete and compaction lags in whole nodes in virtual time: what is old goes, nothing else."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from compacting_cluster import Compacting

from quorumlog.server.config.options import NodeOptions
from quorumlog.server.metadata.records import SECOND_FEATURE_LEVEL, THIRD_FEATURE_LEVEL
from quorumlog.server.partition.compaction_proposals import CompactionProposals
from quorumlog.server.partition.retention import LogRetention
from quorumlog.storage.batch_row import BatchRow, any_batch
from quorumlog.wire.entry import parse_header
from tests.support.compaction_samples import Sample

SEEDS = (1, 2)
RETENTION_MS = 4_000


def both(seed: int, **configs: str) -> Compacting:
    """A cluster whose topic is compacted and has a retention."""
    defaults = {"cleanup_policy": "compact,delete", "retention_ms": str(RETENTION_MS), "delete_retention_ms": "60000"}
    return Compacting(seed, **(defaults | configs))


def leader_of(cluster: Compacting) -> int:
    cluster.until(lambda: cluster.led_by(cluster.group) is not None, 20)
    leader = cluster.led_by(cluster.group)
    assert leader is not None
    return leader


def log_start(cluster: Compacting) -> int:
    return cluster.partition(leader_of(cluster)).log_start_offset


def check_reading(cluster: Compacting) -> None:
    """Reads everything: young last values are present, and compaction has not touched what follows its point."""
    content = cluster.read_from(log_start(cluster))
    compacted = max(cluster.reached(node) for node in cluster.cluster.node_ids)
    cluster.judge_with_retention(content, compacted, RETENTION_MS)


@pytest.mark.parametrize("seed", SEEDS)
def test_old_records_go_and_young_last_values_stay(seed: int) -> None:
    """While nodes lose power, every young last value is served, and all replicas drop the same records for their age,
    also records between younger ones."""
    cluster = both(seed)
    old = Sample(b"dated", b"ahead", cluster.now_ms() + 3 * RETENTION_MS)
    cluster.send([old, Sample(b"once", b"old", cluster.now_ms())])
    for _ in range(12):
        cluster.write(20, keys=40)
        node = cluster.rng.choice(cluster.cluster.node_ids)
        cluster.process(node).die(silent=cluster.rng.random() < 0.5)
        cluster.run(cluster.rng.uniform(0.2, 1.2))
        check_reading(cluster)
        cluster.cluster.start(node)
    cluster.write(20, keys=40)
    cluster.rest()
    contents = [cluster.content(node) for node in cluster.cluster.node_ids]
    assert contents.count(contents[0]) == len(contents), "replicas differ"
    left = {placed.record.key: placed.record for placed in contents[0][0]}
    assert b"once" not in left, "the batch before it is dated ahead"


def test_an_idle_log_is_emptied() -> None:
    """Retention removes compacted records too if nothing is written any longer: no compaction is needed for that."""
    cluster = both(1)
    cluster.write(60)
    cluster.rest()
    assert cluster.reached(1) > 0
    nodes = cluster.cluster.node_ids
    end = cluster.partition(1).high_watermark
    cluster.run(RETENTION_MS / 1_000 * 1.1)
    cluster.until(lambda: all(cluster.partition(node).log_start_offset == end for node in nodes), 5)
    cluster.until(lambda: all(not cluster.content(node)[0] for node in nodes), 5)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_log_start_moves_through_compacted_batches(seed: int) -> None:
    """Old compacted batches are no longer served, young ones are; the next compaction drops the old ones from the
    disk."""
    cluster = both(seed)
    for _ in range(6):
        cluster.write(15, keys=500)
        cluster.run(0.4)
    cluster.rest()
    compacted = cluster.reached(1)
    cluster.until(lambda: 0 < log_start(cluster) < compacted, 10)
    start = log_start(cluster)
    check_reading(cluster)
    young = [each for each in cluster.written.values() if each.timestamp_ms >= cluster.now_ms() - RETENTION_MS]
    assert young, "some records are still young"
    cluster.write(60, keys=500)
    cluster.until(lambda: cluster.reached(1) > compacted, 10)
    assert all(placed.offset >= start for placed in cluster.content(leader_of(cluster))[0])


def test_a_size_limit_counts_compacted_batches() -> None:
    """retention.bytes removes the oldest compacted batches, the fewest that leave the limit."""
    cluster = both(1, retention_ms="-1")
    cluster.write(150, keys=500)
    cluster.rest()
    leader = leader_of(cluster)
    partition, disk = cluster.partition(leader), cluster.process(leader).disk

    def kept_bytes(start: int) -> int:
        compacted = partition.compacted_log
        last, first = (
            disk.last_batch(cluster.group),
            disk.find_batch(cluster.group, partition.compacted_offset, any_batch),
        )
        assert compacted is not None and last is not None and first is not None
        return compacted.bytes_from(start) + last.end_position - first.end_position

    limit = kept_bytes(0) // 2
    retention = LogRetention(SimpleNamespace(), disk, {})  # type: ignore[arg-type]
    partition.configure({"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": str(limit)})
    start = retention._log_start(cluster.now_ms(), partition)
    assert 0 < start < partition.compacted_offset
    assert kept_bytes(start) >= limit, "at least the limit is kept"
    first_end = next(end for end in partition.compacted_log._index.ends if end > start)  # type: ignore[union-attr]
    assert kept_bytes(first_end) < limit, "and no batch more"
    cluster.alter(retention_bytes=str(limit))
    cluster.until(lambda: log_start(cluster) >= start, 10)
    assert min(cluster.read_from(log_start(cluster))) >= start


def test_min_lag_delays_compaction() -> None:
    """No record is compacted before min.compaction.lag.ms has passed since its append, however much is new."""
    cluster = Compacting(1, min_compaction_lag_ms="5000", min_cleanable_dirty_ratio="0")
    cluster.write(40)
    written = cluster.now_ms()
    cluster.run(4)
    cluster.write(5)
    assert {cluster.reached(node) for node in cluster.cluster.node_ids} == {0}
    cluster.until(lambda: cluster.reached(1) > 0, 10)
    assert cluster.now_ms() >= written + 4_000
    young = [offset for offset, record in cluster.written.items() if record.timestamp_ms >= cluster.now_ms() - 5_000]
    assert young and cluster.reached(1) <= min(young), "a young record is compacted"
    cluster.settle()


def test_max_lag_hastens_compaction() -> None:
    """A record is compacted once max.compaction.lag.ms has passed since its append, however little is new."""
    cluster = Compacting(1, min_cleanable_dirty_ratio="1")
    cluster.write(60)
    cluster.rest()
    reached = cluster.reached(1)
    assert reached > 0
    cluster.write(4)
    cluster.run(10)
    assert cluster.reached(1) == reached, "the ratio is not reached"
    cluster.alter(max_compaction_lag_ms="3000")
    cluster.until(lambda: cluster.reached(1) > reached, 2)
    cluster.write(4)
    cluster.rest()
    reached = cluster.reached(1)
    cluster.write(4)  # The last batch before these is younger than a second, and was not compacted for being the last.
    written = cluster.now_ms()
    cluster.until(lambda: cluster.reached(1) > reached, 4)
    assert cluster.now_ms() >= written + 1_000, "too early"
    cluster.settle()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rising_feature_level_keeps_replicas_equal(seed: int) -> None:
    """Below feature level 3 nothing is dropped for its age. Later, what was compacted before counts as appended then,
    on replicas that had carried out the older points and on those that had not."""
    cluster = both(seed)
    nodes = cluster.cluster.node_ids

    def level(value: int) -> None:
        for node in nodes:
            if cluster.cluster.is_up(node):
                cluster.partition(node)._feature_level = lambda: value

    level(SECOND_FEATURE_LEVEL)
    cluster.write(60, keys=300)
    cluster.until(lambda: cluster.reached(1) > 0, 10)
    away = next(node for node in nodes if node != leader_of(cluster))
    cluster.write(60, keys=300)
    cluster.process(away).die(silent=True)
    cluster.run(RETENTION_MS / 1_000 * 0.5)
    compacted = cluster.partition(leader_of(cluster)).compacted_log
    assert compacted is not None and not compacted.has_append_times
    level(THIRD_FEATURE_LEVEL)
    cluster.cluster.start(away)
    cluster.write(60, keys=300)

    def keeps_append_times() -> bool:
        compacted = cluster.partition(leader_of(cluster)).compacted_log
        return compacted is not None and compacted.has_append_times

    cluster.until(keeps_append_times, 10)
    for _ in range(8):
        cluster.write(20, keys=300)
        check_reading(cluster)
        cluster.run(0.5)
    cluster.rest()
    contents = [cluster.content(node) for node in nodes]
    assert contents.count(contents[0]) == len(contents), "replicas differ"


def test_reads_continue_after_an_emptied_part() -> None:
    """A read from before the point continues at it if compaction left nothing, though the index on disk still has the
    entries that the log has given up: the switch is in memory before it is durable."""
    cluster = both(1)
    cluster.write(60)
    cluster.rest()
    leader = leader_of(cluster)
    partition, disk = cluster.partition(leader), cluster.process(leader).disk
    point, gone = partition.compacted_offset, 1
    assert point > 0 and partition.compaction is not None and partition.raft.anchor.index > gone
    partition.compaction.log = partition.snapshot = None
    stale = SimpleNamespace(
        find_offset=lambda group, offset: disk.find_offset(group, offset) if offset >= point else gone
    )
    partition._reader = stale  # type: ignore[assignment]
    (batch,) = partition.read(0, 1)
    assert parse_header(batch).base_offset == point


def test_ages_below_the_log_start_are_not_sought(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention has passed the last compaction point, and the index still has batches that the log no longer has."""
    cluster = both(1, min_compaction_lag_ms="60000", retention_ms="-1")
    cluster.write(60)
    leader = leader_of(cluster)
    partition, disk, group = cluster.partition(leader), cluster.process(leader).disk, cluster.group
    row = disk.last_batch(group)
    assert row is not None
    cluster.alter(retention_ms=str(RETENTION_MS))
    cluster.until(lambda: log_start(cluster) > row.last_offset, 20)
    assert partition.compacted_offset == 0
    find_batch, find_offset = disk.find_batch, disk.find_offset

    def find_also_removed(of_group: int, first: int, reached: Callable[[BatchRow], bool]) -> BatchRow | None:
        return row if first <= row.last_offset and reached(row) else find_batch(of_group, first, reached)

    monkeypatch.setattr(disk, "find_batch", find_also_removed)
    monkeypatch.setattr(
        disk, "find_offset", lambda of_group, offset: 1 if offset <= row.last_offset else find_offset(of_group, offset)
    )
    partition.configure({"cleanup.policy": "compact,delete", "min.compaction.lag.ms": "1000"})
    cluster.write(5)
    limits = NodeOptions(1, "", {}).limits
    proposals = CompactionProposals(0, limits, 1, SimpleNamespace(), disk, {})  # type: ignore[arg-type]
    end = proposals._end(cluster.now_ms(), partition)
    assert end is None or end > partition.log_start_offset
