"""The wall clock of one of three nodes jumps, forward and back: only what goes by the time of day changes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from command_line import PATIENCE_S, until
from faked_clocks import FakedClocks, needs_faketime
from steady_load import SteadyLoad

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, Consumer, InvalidTimestampError, NewTopic, Producer, TopicPartition

pytestmark = [pytest.mark.cluster, pytest.mark.alone, needs_faketime]

#: The node whose clock jumps leads the first partition of each topic.
JUMPING = 1
REPLICAS = {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}
TOPICS = {
    "kept": {"retention.ms": "-1", "message.timestamp.type": "LogAppendTime"},
    "week": {"retention.ms": "604800000"},
    "second": {"retention.ms": "1000", "message.timestamp.type": "LogAppendTime"},
}
HOUR, DAY, YEAR = timedelta(hours=1), timedelta(days=1), timedelta(days=365)
WEEK = [TopicPartition("week", partition) for partition in REPLICAS]
RECORDS = 50
#: Where the time of the append counts, the clock that is behind must not refuse a record for its own time.
LONG_AGO_MS = 1


class Load(SteadyLoad):
    """A numbered record to each partition of ``kept`` per round."""

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__(cluster)
        self.acknowledged: list[bytes] = []

    @property
    def count(self) -> int:
        return len(self.acknowledged)

    def send_round(self, producer: Producer, number: int) -> None:
        sent = {b"%d-%d" % (each, number): each for each in REPLICAS}
        futures = {
            value: producer.send("kept", value, partition=partition, timestamp_ms=LONG_AGO_MS)
            for value, partition in sent.items()
        }
        for value, future in futures.items():
            future.result(timeout=PATIENCE_S)
            self.acknowledged.append(value)


class JumpingCluster:
    """Three nodes, a topic without retention, one that keeps a week and one that keeps a second."""

    def __init__(self, cluster: LocalCluster, clocks: FakedClocks, admin: Admin) -> None:
        self.cluster = cluster
        self._clocks = clocks
        self._admin = admin
        self._producer = Producer(bootstrap_servers=cluster.bootstrap_servers)
        self._consumer = Consumer(bootstrap_servers=cluster.bootstrap_servers)
        self._retention_ms = itertools.count(604_800_001)
        admin.create_topics([NewTopic(name, -1, -1, each, REPLICAS) for name, each in TOPICS.items()])
        until(lambda: [led for led, _ in self.leaders("kept")] == [each[0] for each in REPLICAS.values()], "leaders")

    def close(self) -> None:
        """Closes the clients."""
        self._producer.close()
        self._consumer.close()

    def leaders(self, *topics: str) -> list[tuple[int | None, int]]:
        """The leader of each partition and its epoch."""
        described = self._admin.describe_topics(topics or tuple(TOPICS), linearizable=True)
        return [(each.leader, each.leader_epoch) for topic in described for each in topic.partitions]

    def jump(self, ahead: timedelta) -> None:
        """Sets the clock of ``JUMPING``; returns after its next pass of retention with the new time."""
        self._clocks.set(JUMPING, ahead)
        # A changed retention is applied at once, an unchanged one within the hour.
        self._admin.alter_configs({"week": {"retention.ms": next(self._retention_ms)}})
        stamped = self._producer.send("second", b"", partition=0, timestamp_ms=LONG_AGO_MS).result(PATIENCE_S)
        here_ms = time.time_ns() // 1_000_000
        assert abs(stamped.timestamp - here_ms - ahead.total_seconds() * 1000) < PATIENCE_S * 1000
        partition = TopicPartition("second", 0)
        until(lambda: self._starts(partition) == [stamped.offset + 1], "a record is removed after a second")

    def _starts(self, *partitions: TopicPartition) -> list[int]:
        found = self._consumer.beginning_offsets(partitions)
        return [found[each] for each in partitions]

    def week_starts(self) -> list[int]:
        """The log start of each partition that keeps a week."""
        return self._starts(*WEEK)

    def week_starts_become(self, starts: list[int]) -> None:
        """Waits until the log starts are these."""
        until(lambda: self.week_starts() == starts, f"log starts {starts}")

    def send_to_week(self, partition: int) -> None:
        """Sends records with the time of this machine, and waits until they are acknowledged."""
        sent = [self._producer.send("week", b"%d" % number, partition=partition) for number in range(RECORDS)]
        for each in sent:
            each.result(timeout=PATIENCE_S)

    def values(self, topic: str) -> list[bytes]:
        """The values of all records of a topic."""
        partitions = [TopicPartition(topic, partition) for partition in REPLICAS]
        with Consumer(bootstrap_servers=self.cluster.bootstrap_servers) as consumer:
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            ends = consumer.end_offsets(partitions)
            found: list[bytes] = []
            while any(consumer.position(each) < ends[each] for each in partitions):
                found += consumer.poll_arrow(timeout_ms=500).column("value").to_pylist()
        return found


@pytest.fixture
def jumping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JumpingCluster]:
    # A busy machine must not cause the elections that a jump must not cause.
    with LocalCluster(nodes=3, settings={"election_timeout_ms": "10000"}) as cluster:
        clocks = FakedClocks(cluster, tmp_path, monkeypatch)
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            nodes = JumpingCluster(cluster, clocks, admin)
            try:
                yield nodes
            finally:
                nodes.close()


def test_clock_jumps_keep_leaders_and_records(jumping: JumpingCluster) -> None:
    """Jumps of an hour, a day and a year end no leadership and cost no acknowledged record; retention by time goes by
    the leader's clock."""
    for partition in REPLICAS:
        jumping.send_to_week(partition)
    before = jumping.leaders()
    with Load(jumping.cluster) as load:
        for ahead in (HOUR, -HOUR, DAY, -DAY, -YEAR):
            jumping.jump(ahead)
            load.goes_on()
            if ahead >= -HOUR:
                jumping.send_to_week(0)
            else:
                with pytest.raises(InvalidTimestampError, match="more than an hour ahead of the node's clock"):
                    jumping.send_to_week(0)
            jumping.send_to_week(1)
            assert jumping.week_starts() == [0, 0, 0]
            jumping.jump(timedelta(0))
            load.goes_on()
            jumping.send_to_week(0)
            assert jumping.week_starts() == [0, 0, 0]
        jumping.jump(YEAR)
        load.goes_on()
        # By the clock of its leader, all that the first partition holds is a year old.
        jumping.week_starts_become([8 * RECORDS + RECORDS, 0, 0])
        jumping.jump(timedelta(0))
        load.goes_on()
        jumping.send_to_week(0)
    assert load.failures == []
    assert jumping.leaders() == before
    assert sorted(jumping.values("kept")) == sorted(load.acknowledged)
    assert len(jumping.values("week")) == RECORDS + 6 * RECORDS + RECORDS
    print(f"{len(load.acknowledged)} records; longest round: {load.longest_gap_s:.3f} s")
