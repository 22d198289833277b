"""A replica that is set aside as damaged, as the registry of replicas sees it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from quorumlog.raft.types import NO_NODE
from quorumlog.server.broker.damaged_replicas import DamagedReplicas
from quorumlog.server.broker.former_replicas import FormerReplicas
from quorumlog.server.broker.replicas import Replicas
from quorumlog.server.events import Job
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.metadata.records import PartitionRecord, Topic
from quorumlog.storage.interface import SetAside

GROUP = 1000
TOPIC = Topic("orders", bytes(16), {})


def replicas_of(node_id: int, record: PartitionRecord) -> Replicas:
    host = RaftHost(lambda group, message: None)
    metadata = SimpleNamespace(image=SimpleNamespace(partitions={GROUP: record}))
    replicas = Replicas(node_id, "d", host, FormerReplicas(node_id, host, {}), cast("Any", None), cast("Any", metadata))
    replicas.found({}, {GROUP: SetAside(3, 120, "a row is damaged")})
    return replicas


@pytest.mark.parametrize("witness", [NO_NODE, 3])
@pytest.mark.parametrize("node_id", [1, 3])
def test_a_replica_that_is_set_aside_stays_where_it_belongs_whichever_kind_it_was(node_id: int, witness: int) -> None:
    """Its rows are damaged: nobody can tell a witness from a replica any more."""
    nodes = (1, 2, 3) if witness == NO_NODE else (1, 2)
    record = PartitionRecord(TOPIC, 0, GROUP, nodes, (1,), 1, 3, witness=witness)
    assert replicas_of(node_id, record).moved_away(GROUP) is None


def test_a_replica_that_is_set_aside_leaves_with_its_partition() -> None:
    record = PartitionRecord(TOPIC, 0, GROUP, (1, 2, 3), (1,), 1, 3)
    assert replicas_of(4, record).moved_away(GROUP) is record


@pytest.mark.parametrize(("up", "begins"), [((1, 3), True), ((1,), False)])
def test_a_replica_beside_one_other_and_a_witness_begins_anew_while_both_are_there(
    up: tuple[int, ...], begins: bool
) -> None:
    """Node 1 leads by the witness's vote: it has all that was ever committed."""
    record = PartitionRecord(TOPIC, 0, GROUP, (1, 2), (1,), 1, 3, witness=3)
    image = SimpleNamespace(
        partitions={GROUP: record},
        available_leader=lambda each: each.leader,
        is_fenced=lambda node: node not in up,
    )
    aside = {GROUP: SetAside(3, 120, "a row is damaged")}
    jobs: list[Job] = []
    damaged = DamagedReplicas(
        2, cast("Any", None), cast("Any", SimpleNamespace(set_aside=aside)), cast("Any", None),
        cast("Any", SimpleNamespace(image=image)), cast("Any", SimpleNamespace(pass_replica=lambda group: None)), jobs.append,
        lambda *_, **__: None,
    )  # fmt: skip
    damaged.on_time(0, 0)
    assert bool(jobs) is begins
