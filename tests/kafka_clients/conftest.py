"""Kafka's clients and their own suites against three nodes, or against Apache Kafka: which of them is at fault?

``make test-kafka-clients`` runs them; ``KAFKA_CLIENTS=apache`` against Apache Kafka. They need Go, Node.js, Java, Maven
and an hour of patience the first time, so that nothing else runs them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent / "programs" / "python"))

AGAINST = os.environ.get("KAFKA_CLIENTS", "")
collect_ignore_glob = [] if AGAINST else ["test_*.py"]
#: Where the suites expect a broker other than ``bench.peers`` does.
_APACHE = {
    "group.initial.rebalance.delay.ms": "500",
    "group.min.session.timeout.ms": "1000",
    "auto.create.topics.enable": "true",
    "num.partitions": "4",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
}


class Servers(NamedTuple):
    """Three nodes.

    Arguments:
        kafka: where they speak Kafka's protocol.
        own: where they speak ours; empty for Apache Kafka.
    """

    kafka: str
    own: str


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Three nodes that speak Kafka's protocol."""
    if AGAINST == "apache":
        from bench.peers.kafka import JARS, starter

        if JARS.missing():
            JARS.download()
        with starter(_APACHE)(tmp_path_factory.mktemp("kafka")) as brokers:
            yield Servers(brokers.addresses, "")
    else:
        from quorumlog.local import LocalCluster

        with LocalCluster(nodes=3, kafka=True, settings={"kafka_auto_create_topics_enable": "true"}) as cluster:
            yield Servers(cluster.kafka_bootstrap_servers, cluster.bootstrap_servers)
