"""Requests of every API and version with random content, as kafka-python writes them: each is answered, or its
connection ends with a reason. None meets a fault of a node."""

from __future__ import annotations

import struct
from random import Random

import pytest

from quorumlog.server.kafka.codec.apis import APIS
from quorumlog.server.kafka.codec.primitives import decode
from quorumlog.server.kafka.connection import KafkaConnectionFault
from quorumlog.server.kafka.handlers.dispatch import served_versions
from quorumlog.server.kafka.version_table import API_VERSIONS
from quorumlog.simulator.world.kafka_link import SimKafkaLink
from tests.support.kafka_oracle import random_content, their_bytes
from tests.support.quiet_cluster import Quiet

ROUNDS = 2
#: By a port that requires no authentication.
SERVED = {
    told.api_key: range(APIS[told.api_key].request.LOWEST, told.max_version + 1)
    for told in served_versions().response(version=0).api_keys
    if told.api_key != API_VERSIONS
}


@pytest.mark.parametrize("seed", range(3))
def test_no_request_whatever_it_says_meets_a_fault_of_a_node(seed: int) -> None:
    chance = Random(seed)
    cluster = Quiet(seed, kafka=(1, 2, 3))
    cluster.create("orders", 3)  # Which the random requests name.
    requests: list[tuple[str, int, SimKafkaLink]] = []
    for _ in range(ROUNDS):
        for key, versions in SERVED.items():
            api = APIS[key]
            for version in versions:
                name = f"{api.name}Request"
                body = their_bytes(name, version, random_content(name, version, chance))
                link = SimKafkaLink(
                    f"client-{len(requests)}",
                    cluster.cluster,
                    chance.choice((1, 2, 3)),
                    cluster.scheduler,
                    creates_topics=chance.random() < 0.1,
                )
                link.send(decode(api.request, body, version), version)
                requests.append((api.name, version, link))
                cluster.run(0.01)
    cluster.run(3)
    faults = [
        f"{name} {version}: {link.end.detail}"
        for name, version, link in requests
        if link.end is not None and link.end.fault is not KafkaConnectionFault.REFUSED
    ]
    assert not faults
    answered = {name for name, _, link in requests if link.answers}
    assert answered == {APIS[key].name for key in SERVED}


@pytest.mark.parametrize("cut", [1, 7, 60])
def test_a_frame_that_is_cut_waits_and_one_that_is_altered_harms_nobody(cut: int) -> None:
    cluster = Quiet(1, kafka=(1, 2, 3))
    chance = Random(cut)
    for _ in range(200):
        link = SimKafkaLink("hostile", cluster.cluster, 1, cluster.scheduler)
        body = chance.randbytes(cut)
        head = struct.pack(">hhih", chance.choice(sorted(SERVED)), chance.randrange(14), 1, -1)
        frame = struct.pack(">i", len(head) + len(body)) + head + body
        link.send_bytes(frame[: chance.randrange(len(frame) + 1)])
    cluster.run(1)
    assert all(process.node is not None for process in cluster.cluster.processes.values())
