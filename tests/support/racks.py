"""Real nodes in racks of their own, and what each of them serves."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from quorumlog.local import LocalCluster
from quorumlog.local.ports import ReservedPorts
from quorumlog.sdk import Admin, NewTopic, Producer

TOPIC = "events"
VALUE = b"x" * 1_000


class Racks:
    """Three nodes in the racks r1 to r3, with a topic of one partition.

    Arguments:
        metrics: where each node serves its metrics, node 1 first.
    """

    def __init__(self, cluster: LocalCluster, metrics: list[str]) -> None:
        self.cluster = cluster
        self._metrics = metrics

    @property
    def leader(self) -> int:
        """The node that leads the partition."""
        with Admin(bootstrap_servers=self.cluster.bootstrap_servers) as admin:
            return admin.describe_topics([TOPIC])[0].partitions[0].leader

    def served(self, *nodes: int) -> dict[int, int]:
        """Bytes that nodes have read for clients since they started."""
        name = f'quorumlog_topic_read_bytes_total{{topic="{TOPIC}"}} '
        counts = {}
        for node in nodes or self.cluster.node_ids:
            with urllib.request.urlopen(f"http://{self._metrics[node - 1]}/metrics", timeout=30) as page:
                lines = page.read().decode().splitlines()
            counts[node] = int(sum(float(line[len(name) :]) for line in lines if line.startswith(name)))
        return counts

    def produce(self, first: int, count: int) -> None:
        """Produces records whose keys are their numbers, each acknowledged."""
        with Producer(bootstrap_servers=self.cluster.bootstrap_servers) as producer:
            sent = [producer.send(TOPIC, key=b"%d" % number, value=VALUE) for number in range(first, first + count)]
            for each in sent:
                each.result(timeout=60)


@contextmanager
def racks_with(records: int) -> Iterator[Racks]:
    """Starts nodes in racks, and produces records."""
    reserved = ReservedPorts(3)
    metrics = [f"127.0.0.1:{port}" for port in reserved.ports]
    settings = {node: {"rack": f"r{node}", "metrics_listen": metrics[node - 1]} for node in (1, 2, 3)}
    with LocalCluster(3, kafka=True, node_settings=settings) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(TOPIC, 1, 3)])
        made = Racks(cluster, metrics)
        made.produce(0, records)
        yield made
    reserved.close()
