"""The Java client reads, in a session of fetches, while the leader is killed: it looks where its epoch ends, and reads
on. Each of the last and the first of the versions that are tried."""

from __future__ import annotations

import json
import subprocess

import pytest
from command_line import leader_of
from confluent_kafka import Producer
from matrix_clients import JAVA_3_JARS, SERVER_JARS, _java

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewTopic

_WAIT_S = 60.0


@pytest.mark.parametrize("jars", [JAVA_3_JARS, SERVER_JARS], ids=["3.9", "4.3"])
def test_javas_consumer_reads_on_after_its_leader_was_killed(jars) -> None:  # type: ignore[no-untyped-def]
    with LocalCluster(nodes=3, kafka=True) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("orders", 1, 3)])
        command = [*_java(jars), "read", cluster.kafka_bootstrap_servers, "orders", "readers", "1500"]
        reading = subprocess.Popen([str(each) for each in command], stdout=subprocess.PIPE, text=True)
        try:
            for turn in range(3):
                producer = Producer({"bootstrap.servers": cluster.kafka_bootstrap_servers, "enable.idempotence": True})
                for number in range(500):
                    producer.produce("orders", value=b"%d" % (500 * turn + number))
                assert producer.flush(_WAIT_S) == 0
                if turn < 2:
                    leader = leader_of(cluster, "orders")
                    cluster.kill(leader)
                    cluster.start(leader)
                    cluster.wait_ready()
            reported, _ = reading.communicate(timeout=_WAIT_S)
        finally:
            reading.kill()
        assert reading.returncode == 0
        lines = [json.loads(line) for line in reported.splitlines() if line.startswith("{")]
        assert [line["offset"] for line in lines] == [*range(1_500)]
