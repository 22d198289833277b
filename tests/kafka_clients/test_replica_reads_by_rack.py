"""Kafka's clients of several languages read from the replica in their rack (KIP-392), also while its node dies."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from conftest import AGAINST
from matrix_clients import CLIENTS, MatrixClient

from tests.support.racks import TOPIC, Racks, racks_with

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.skipif(AGAINST == "apache", reason="what is shown is quorumlog's"),
]

RECORDS = 20_000


@pytest.fixture(scope="module")
def racks() -> Iterator[Racks]:
    with racks_with(RECORDS) as made:
        yield made


@pytest.mark.parametrize("client", [each for each in CLIENTS if each.has_racks], ids=lambda client: client.name)
def test_client_reads_in_its_rack(racks: Racks, client: MatrixClient) -> None:
    """All records, in order, and most of their bytes from the follower of the client's rack."""
    leader = racks.leader
    follower = next(node for node in racks.cluster.node_ids if node != leader)
    before = racks.served()
    lines = client.read(racks.cluster.kafka_bootstrap_servers, TOPIC, f"of {client.name}", RECORDS, rack=f"r{follower}")
    after = racks.served()
    assert [each.key for each in lines] == [b"%d" % number for number in range(RECORDS)]
    read = {node: after[node] - before[node] for node in after}
    print(client.name, read)
    assert read[follower] > 0.9 * sum(read.values()), read


@pytest.mark.parametrize("client", [each for each in CLIENTS if each.has_racks], ids=lambda client: client.name)
def test_client_survives_the_death_of_its_replica(racks: Racks, client: MatrixClient) -> None:
    """The node that serves a client is killed as soon as it does: the client receives every record once."""
    leader = racks.leader
    follower = next(node for node in racks.cluster.node_ids if node != leader)

    def kill() -> None:
        deadline = time.monotonic() + 60
        before = racks.served(follower)
        while racks.served(follower) == before and time.monotonic() < deadline:
            time.sleep(0.005)
        racks.cluster.kill(follower)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        lines = client.read(
            racks.cluster.kafka_bootstrap_servers, TOPIC, f"after {client.name}", RECORDS, rack=f"r{follower}"
        )
    finally:
        killer.join()
        racks.cluster.start(follower)
    assert [each.key for each in lines] == [b"%d" % number for number in range(RECORDS)]
