"""What a node makes of the metadata while a replica of its is set aside because it is damaged."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from quorumlog.raft.types import NO_NODE
from quorumlog.server.broker.former_replicas import FormerReplicas
from quorumlog.server.broker.replica_factory import ReplicaFactory
from quorumlog.server.broker.replicas import Replicas
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.metadata.image import CurrentImage, MetadataImage
from quorumlog.server.metadata.records import PartitionRecord, Topic
from quorumlog.storage.interface import SetAside

NODE, GROUP = 2, 1000


def restarted(*replicas: int, witness: int = NO_NODE) -> Replicas:
    """The replicas of node 2 after it has found its only one broken, of a partition that is where it is said."""
    image = MetadataImage()
    image.partitions[GROUP] = PartitionRecord(
        Topic("orders", bytes(16), {}), 0, GROUP, replicas, replicas, witness=witness
    )
    host = RaftHost(lambda group, message: None)
    metadata = cast(CurrentImage, SimpleNamespace(image=image))
    former = FormerReplicas(NODE, host, {})
    found = Replicas(NODE, "directory", host, former, cast(ReplicaFactory, None), metadata)
    found.found({}, {GROUP: SetAside(7, 120, "it is broken")})
    return found


@pytest.mark.parametrize(
    "replicas", [restarted(1, 2, 3), restarted(1, 2, witness=3), restarted(1, 3, witness=2)],
    ids=["of three", "of two", "the witness"],
)  # fmt: skip
def test_one_that_belongs_here_stays_until_it_begins_anew(replicas: Replicas) -> None:
    assert replicas.moved_away(GROUP) is None
    assert replicas.holds(GROUP)


def test_one_that_was_moved_away_is_known_with_the_term_in_which_it_ended() -> None:
    replicas = restarted(1, 3, 4)
    record = replicas.moved_away(GROUP)
    assert record is not None and record.group == GROUP
    assert replicas.term_of(GROUP) == 7
