"""Reads from followers on real nodes: each client reads in its rack, and nothing is lost or repeated when nodes die."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer as KafkaConsumer

from quorumlog.sdk import Consumer
from tests.support.racks import TOPIC, VALUE, Racks, racks_with

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

RECORDS = 2_000
DEADLINE_S = 60.0
#: Keys that a client has received since the last call.
Poll = Callable[[], list[bytes]]


@pytest.fixture
def racks() -> Iterator[Racks]:
    with racks_with(RECORDS) as made:
        yield made


@pytest.fixture(params=["sdk", "librdkafka"])
def poll_in(request: pytest.FixtureRequest, racks: Racks) -> Iterator[Callable[[str], Poll]]:
    """Makes consumers in a rack that read from the start, and closes them."""
    made: list[Consumer | KafkaConsumer] = []

    def sdk(rack: str) -> Poll:
        consumer = Consumer(TOPIC, bootstrap_servers=racks.cluster.bootstrap_servers, client_rack=rack)
        made.append(consumer)
        return lambda: [record.key or b"" for each in consumer.poll(200).values() for record in each]

    def librdkafka(rack: str) -> Poll:
        settings = {"bootstrap.servers": racks.cluster.kafka_bootstrap_servers, "group.id": rack, "client.rack": rack}
        consumer = KafkaConsumer(settings | {"auto.offset.reset": "earliest"})
        consumer.subscribe([TOPIC])
        made.append(consumer)
        return lambda: [record.key() for record in consumer.consume(500, 0.2) if record.error() is None]

    yield sdk if request.param == "sdk" else librdkafka
    for each in made:
        each.close()


def read_to(poll: Poll, read: list[bytes], count: int) -> None:
    """Polls until so many records were read."""
    deadline = time.monotonic() + DEADLINE_S
    while len(read) < count:
        read += poll()
        assert time.monotonic() < deadline, f"{len(read)} of {count} records"


def test_each_client_reads_in_its_rack(racks: Racks, poll_in: Callable[[str], Poll]) -> None:
    """The node in a client's rack serves it, and the leader serves no more than its own rack."""
    before = racks.served()
    for node in racks.cluster.node_ids:
        read: list[bytes] = []
        read_to(poll_in(f"r{node}"), read, RECORDS)
        assert read == [b"%d" % number for number in range(RECORDS)]
    after = racks.served()
    size = RECORDS * len(VALUE)
    shares = {node: (after[node] - before[node]) / size for node in after}
    assert all(share > 0.02 for share in shares.values()), shares  # Values are compressible.
    assert max(shares.values()) < 1.5 * min(shares.values()), shares


@pytest.mark.parametrize("dies", ["replica", "leader"])
def test_nothing_is_lost_or_repeated_when_a_node_dies(racks: Racks, poll_in: Callable[[str], Poll], dies: str) -> None:
    """A client goes from its replica to the leader, or to its replica's next leader, at the record after the last."""
    leader = racks.leader
    follower = next(node for node in racks.cluster.node_ids if node != leader)
    poll, read = poll_in(f"r{follower}"), []
    read_to(poll, read, RECORDS)
    racks.produce(RECORDS, 500)
    read_to(poll, read, RECORDS + 200)
    racks.cluster.kill(follower if dies == "replica" else leader)
    racks.produce(RECORDS + 500, 500)
    read_to(poll, read, RECORDS + 1_000)
    assert read == [b"%d" % number for number in range(RECORDS + 1_000)]
