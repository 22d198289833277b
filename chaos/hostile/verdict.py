"""Checks that no node was restarted or has grown too large, and that the cluster works."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psutil

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, Consumer, Producer, TopicPartition
from quorumlog.sdk.errors import QuorumlogError

#: Memory limit of a node for so small a cluster (bytes).
MOST_RSS_BYTES = 1536 << 20
#: Partitions that are written to and read at the end.
MOST_PARTITIONS = 60
#: Time within which the cluster must work again (s): it has elections and rebalancing behind it.
RECOVERY_S = 30.0
#: Log lines that no client may cause.
_BROKEN = re.compile(r"Traceback|level=(error|critical)|Exception|Error:|never retrieved|never awaited|fault=failed")


@dataclass(slots=True)
class Watch:
    """The nodes' processes, observed from the start.

    Arguments:
        pids: node id -> process id.
        rss: node id -> memory at the start, now, and the maximum (bytes).
    """

    pids: dict[int, int]
    rss: dict[int, tuple[int, int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, cluster: LocalCluster) -> Watch:
        """Returns a watch of the nodes in their current state."""
        watch = cls({node: cluster.pid(node) or 0 for node in cluster.node_ids})
        watch.look(cluster)
        return watch

    def look(self, cluster: LocalCluster) -> list[str]:
        """Returns a line for each process that has exited or grown too large."""
        wrong = []
        for node, pid in self.pids.items():
            if not cluster.is_running(node) or cluster.pid(node) != pid:
                wrong.append(f"node {node} exited: {last_line(cluster, node)}")
                continue
            now = psutil.Process(pid).memory_info().rss
            first, _, most = self.rss.get(node, (now, now, now))
            self.rss[node] = (first, now, max(most, now))
            if now > MOST_RSS_BYTES:
                wrong.append(f"node {node} has grown to {now >> 20} MiB")
        return wrong


def last_line(cluster: LocalCluster, node: int) -> str:
    """Returns the last line of a node's log."""
    lines = cluster.log_path(node).read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "its log is empty"


def complaints(cluster: LocalCluster) -> list[str]:
    """Returns lines of the nodes' logs that report a failure, each kind once."""
    found: dict[str, str] = {}
    for node in cluster.node_ids:
        lines = cluster.log_path(node).read_text(errors="replace").splitlines()
        for number, line in enumerate(lines):
            if _BROKEN.search(line):
                tail = " | ".join(each.strip() for each in lines[number : number + 12]) if "Traceback" in line else line
                found.setdefault(re.sub(r"\d+", "", line), f"node {node} logged: {tail[:2000]}")
    return list(found.values())


def works(cluster: LocalCluster) -> list[str]:
    """Returns what no longer works: every existing topic must accept a record and return it.

    The topics' configurations are reset first: a client may have set extreme values.
    """
    options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, **cluster.client_tls}
    deadline = time.monotonic() + RECOVERY_S
    with Admin(**options) as admin:
        while True:
            try:
                topics = admin.describe_topics()
                cleared = {topic.name: dict.fromkeys(topic.configs) for topic in topics if topic.configs}
                if cleared:
                    admin.alter_configs(cleared)
                break
            except QuorumlogError as error:
                if time.monotonic() > deadline:
                    return [f"the topics' configurations cannot be reset: {error}"]
                time.sleep(0.5)
    partitions = [TopicPartition(topic.name, one.partition) for topic in topics for one in topic.partitions]
    step = max(1, len(partitions) // MOST_PARTITIONS)
    return list(_fail_to_carry(options, partitions[::step]))


def _fail_to_carry(options: dict[str, Any], partitions: list[TopicPartition]) -> Iterator[str]:
    # The error names the last rejection, and no record is left for which close would wait.
    limit_ms = RECOVERY_S * 1_000
    with (
        Producer(**options, delivery_timeout_ms=limit_ms) as producer,
        Consumer(**options) as consumer,
    ):
        for partition in partitions:
            name = f"{partition.topic}-{partition.partition}"
            try:
                sent = producer.send(partition.topic, b"still here", key=b"key", partition=partition.partition)
                offset = sent.result(timeout=2 * RECOVERY_S).offset
                consumer.assign([partition])
                consumer.seek(partition, offset)
                if not _returns(consumer, partition, offset):
                    yield f"{name} accepted a record at offset {offset}, but does not return it"
            except (QuorumlogError, TimeoutError) as error:
                yield f"{name} does not work: {type(error).__name__}: {error}"


def _returns(consumer: Consumer, partition: TopicPartition, offset: int) -> bool:
    deadline = time.monotonic() + RECOVERY_S
    while time.monotonic() < deadline:
        records = consumer.poll(timeout_ms=1_000).get(partition, [])
        if any(record.offset == offset for record in records):
            return True
    return False
