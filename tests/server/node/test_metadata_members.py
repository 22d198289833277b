"""The members of the metadata group follow the nodes that there are, and cost nothing while those stay."""

from __future__ import annotations

from typing import cast

from quorumlog.raft.types import Configuration
from quorumlog.server.controller.metadata_replica import MetadataReplica
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import BrokerRecord
from quorumlog.server.node.metadata_quorum import MetadataQuorum
from quorumlog.v1 import metadata_log_pb2 as log
from quorumlog.v1 import peer_pb2


class CountedNodes(dict[int, BrokerRecord]):
    """Nodes by id, of which it is counted how often all of them are looked at."""

    looks = 0

    def __iter__(self):  # type: ignore[no-untyped-def]
        self.looks += 1
        return super().__iter__()

    def items(self):  # type: ignore[no-untyped-def]
        self.looks += 1
        return super().items()


class Led:
    """A metadata group led here, whose proposals take effect at once, as far as the members are concerned."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.image.brokers = CountedNodes()
        self.configuration = Configuration((1,))
        self.raft = self

    def propose_configuration(self, now: int, configuration: Configuration) -> None:
        self.configuration = configuration

    def touch(self, group: int) -> None:
        pass

    def register(self, node: int) -> None:
        registration = peer_pb2.RegisterBroker(node_id=node, directory_id=f"dir-{node}", feature_level=1)
        command = log.MetadataCommand(register_broker=registration)
        self.image.apply(self.image.applied_index + 1, command)


def test_all_nodes_are_looked_at_only_after_some_came_or_went() -> None:
    led = Led()
    quorum = MetadataQuorum(cast("MetadataReplica", led), cast("RaftHost", led), lambda *_, **__: None)
    for node in (1, 2, 3):
        led.register(node)
        quorum.admit_learners(0)
    assert led.configuration.learners == (2, 3)
    quorum.admit_learners(0)
    nodes = cast("CountedNodes", led.image.brokers)
    nodes.looks = 0
    for _ in range(100):
        quorum.admit_learners(0)
    assert nodes.looks == 0
    led.register(4)
    quorum.admit_learners(0)
    assert led.configuration.learners == (2, 3, 4)
