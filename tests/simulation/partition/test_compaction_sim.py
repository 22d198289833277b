"""Compaction in whole nodes in virtual time: nothing lost, nothing resurrected, replicas equal, come what may."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from compacting_cluster import Compacting

from quorumlog.server.partition.retention import LogRetention
from quorumlog.server.partition.time_lookup import find_time
from quorumlog.v1.errors_pb2 import ErrorCode
from tests.support.compaction_samples import Sample, records_in

SEEDS = (1, 2)


@pytest.mark.parametrize("seed", SEEDS)
def test_replicas_compact_to_the_same_and_readers_find_every_last_value(seed: int) -> None:
    cluster = Compacting(seed)
    for _ in range(4):
        cluster.write(60)
        cluster.run(1)
    cluster.settle()
    assert cluster.reached(1) > 300
    content, compacted = cluster.content(1)
    assert sum(placed.offset < compacted for placed in content) <= 12
    assert cluster.read() == {placed.offset: placed.record for placed in content}


@pytest.mark.parametrize("seed", SEEDS)
def test_times_are_found_among_compacted_batches(seed: int) -> None:
    cluster = Compacting(seed)
    cluster.write(150, keys=60)
    cluster.settle()
    leader = cluster.led_by(cluster.group)
    assert leader is not None
    content, _ = cluster.content(leader)
    times = [placed.record.timestamp_ms for placed in content]
    for time in range(min(times) - 1, max(times) + 2, 7):
        found = find_time(cluster.partition(leader), cluster.process(leader).disk, time, 0)
        wanted = next((placed for placed in content if placed.record.timestamp_ms >= time), None)
        assert (found is None) == (wanted is None)
        if found is not None:
            assert next(r for r in records_in([found.entry]) if r.record.timestamp_ms >= time) == wanted


def test_a_deleted_key_is_forgotten_and_never_comes_back() -> None:
    cluster = Compacting(1, delete_retention_ms="0")
    cluster.send([Sample(b"gone", b"value", cluster.now_ms())])
    cluster.send([Sample(b"gone", None, cluster.now_ms())])
    for _ in range(4):
        cluster.write(30)
        cluster.run(1)
    cluster.settle()
    for _ in range(2):
        for node in cluster.cluster.node_ids:
            content, compacted = cluster.content(node)
            assert compacted > 2 and not [placed for placed in content if placed.record.key == b"gone"]
        for node in cluster.cluster.node_ids:
            cluster.process(node).die(silent=True)
            cluster.cluster.start(node)
        cluster.until(lambda: cluster.led_by(cluster.group) is not None, 10)
    assert not [record for record in cluster.read().values() if record.key == b"gone"]


@pytest.mark.parametrize("seed", range(6))
def test_power_losses_at_any_moment_leave_the_old_log_or_the_new(seed: int) -> None:
    cluster = Compacting(seed)
    for _ in range(10):
        cluster.write(20)
        cluster.run(cluster.rng.uniform(0.0, 0.6))
        node = cluster.rng.choice(cluster.cluster.node_ids)
        cluster.process(node).die(silent=cluster.rng.random() < 0.5)
        cluster.check(node)
        cluster.run(cluster.rng.uniform(0.0, 0.3))
        cluster.cluster.start(node)
    cluster.write(20)
    cluster.settle()
    assert cluster.reached(1) > 200
    content, _ = cluster.content(1)
    assert cluster.read() == {placed.offset: placed.record for placed in content}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_replica_that_was_away_gets_the_compacted_log_as_a_snapshot(seed: int) -> None:
    cluster = Compacting(seed)
    leader = cluster.led_by(cluster.group)
    away = next(node for node in cluster.cluster.node_ids if node != leader)
    cluster.process(away).die(silent=False)
    last = cluster.durable(away).last.index
    cluster.write(100, keys=100)
    others = [node for node in cluster.cluster.node_ids if node != away]
    cluster.until(lambda: all(cluster.durable(node).anchor.index > last for node in others), 20)
    cluster.cluster.start(away)
    cluster.until(lambda: cluster.reached(away) > 0, 20)
    cluster.write(30)
    cluster.settle()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_log_start_that_moves_leaves_nothing_of_the_compacted_log_before_it(seed: int) -> None:
    cluster = Compacting(seed)
    cluster.write(100, keys=50)
    cluster.settle()
    for part in (0.5, 0.9, 1.0):
        leader = cluster.led_by(cluster.group)
        assert leader is not None
        before = int(cluster.partition(leader).high_watermark * part)
        cluster.trim(before)
        cluster.write(40, keys=50)
        cluster.run(1)
        cluster.write(40, keys=50)
        cluster.settle_after_trim(before)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_disk_that_is_full_or_stalls_only_delays_compaction(seed: int) -> None:
    cluster = Compacting(seed)
    cluster.write(60)
    follower = next(node for node in cluster.cluster.node_ids if node != cluster.led_by(cluster.group))
    disk = cluster.process(follower).disk
    for full in (True, False):
        disk.full = full
        disk.stalled_until = 0 if full else cluster.scheduler.now + 3_000_000
        cluster.write(60)
        cluster.run(2)
        disk.recover()
        cluster.run(1)
    cluster.settle()
    assert cluster.reached(follower) > 200


def test_a_topic_may_change_its_policy_there_and_back() -> None:
    cluster = Compacting(1, cleanup_policy="delete")
    cluster.send([Sample(None, b"hope-without-key", cluster.now_ms())])
    cluster.write(60)
    cluster.run(1)
    assert {cluster.reached(node) for node in cluster.cluster.node_ids} == {0}
    cluster.alter(cleanup_policy="compact")
    cluster.write(60)
    cluster.settle()
    content, compacted = cluster.content(1)
    assert compacted > 200 and content[0].record == Sample(None, b"hope-without-key", content[0].record.timestamp_ms)
    refused = cluster.refusal([Sample(None, b"hope", cluster.now_ms())])
    assert refused.code == ErrorCode.INVALID_RECORD and "give every record a key" in refused.message
    cluster.alter(cleanup_policy="delete", retention_bytes="100000", retention_ms="36000000")
    cluster.write(20)
    # Looked at, as it is once an hour: what was compacted is neither too large nor too old.
    retention = LogRetention(SimpleNamespace(), cluster.process(1).disk, {})  # type: ignore[arg-type]
    assert retention._log_start(cluster.now_ms(), cluster.partition(1)) == 0
    cluster.alter(retention_bytes="3000")
    cluster.write(70)
    nodes = cluster.cluster.node_ids
    cluster.until(lambda: min(cluster.partition(node).log_start_offset for node in nodes) > compacted, 20)
    cluster.until(lambda: all(cluster.durable(node).snapshot.data.slices == 1 for node in nodes), 20)  # type: ignore[union-attr]
    start = cluster.partition(1).log_start_offset
    cluster.alter(cleanup_policy="compact", retention_bytes="-1")
    cluster.write(70)
    cluster.rest()
    for node in nodes:
        assert cluster.reached(node) > start
    leader = cluster.led_by(cluster.group)
    assert leader is not None
    start = cluster.partition(leader).log_start_offset
    for offset in [offset for offset in cluster.written if offset < start]:
        del cluster.written[offset]
    cluster.judge(cluster.read_from(start), cluster.reached(1), cluster.partition(leader).high_watermark)
