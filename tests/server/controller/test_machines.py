"""No two replicas of a partition, nor a replica and the witness, are on one machine, whatever places them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_absent_nodes import assigned, created, down, grown
from test_controller import new_topic, registration
from test_coordinator_creation import Planned
from test_node_decisions import DRAIN, Leaving
from test_quorum_decisions import alter
from test_rebalancing import Balanced

from quorumlog.raft.types import NO_NODE, Configuration
from quorumlog.server.controller.controller import ControllerOptions
from quorumlog.server.controller.coordinator_creation import CoordinatorPlan
from quorumlog.server.controller.placement import Candidate, place
from quorumlog.server.controller.replacement_placement import ReplacementPlacement
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.v1 import admin_pb2
from quorumlog.v1 import metadata_log_pb2 as log
from quorumlog.v1.errors_pb2 import ErrorCode


def machines(image: MetadataImage, nodes: Iterable[int]) -> list[str]:
    return [image.brokers[node].machine for node in nodes]


def are_apart(image: MetadataImage) -> bool:
    """True if the nodes that each partition should have are on distinct machines."""
    return all(
        len(set(machines(image, each.wanted_voters))) == len(each.wanted_voters) for each in image.partitions.values()
    )


def moved_to(cluster: Leaving, *replicas: int) -> str:
    """Requests to move the first partition; returns the error, or nothing."""
    request = admin_pb2.ReassignPartitionsRequest()
    request.reassignments.add(topic="orders", partition=0, replicas=replicas)
    return cluster.ask(reassign_partitions=request).reassign_partitions.results[0].error.message


# -- placement --------------------------------------------------------------------------------------------------------


@st.composite
def shared_machines(draw: st.DrawFn, *, even: bool) -> tuple[int, int, list[Candidate]]:
    """Partitions, replication factor of at most the number of machines, and nodes of machines, some in racks."""
    count, size = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    racks = draw(st.sampled_from(("", "r", "rs")))
    candidates = []
    for machine in range(count):
        rack = racks[machine % len(racks)] if racks else ""
        for _ in range(size if even else draw(st.integers(1, 4))):
            load = draw(st.integers(0, 50))
            candidates.append(Candidate(len(candidates) + 1, rack, load, load // 2, machine=f"m{machine}"))
    return draw(st.integers(1, 40)), draw(st.integers(1, count)), candidates


@given(shared_machines(even=False))
@settings(max_examples=200, deadline=None)
def test_replicas_are_on_distinct_machines(cluster: tuple[int, int, list[Candidate]]) -> None:
    partitions, factor, candidates = cluster
    machine_of = {candidate.node_id: candidate.machine for candidate in candidates}
    for replicas in place(partitions, factor, candidates):
        assert len({machine_of[node] for node in replicas}) == factor


@given(shared_machines(even=True))
@settings(max_examples=150, deadline=None)
def test_machines_of_one_size_have_even_nodes(cluster: tuple[int, int, list[Candidate]]) -> None:
    """Nodes of machines of one size differ by at most one replica and one leader, unless their racks forbid it."""
    partitions, factor, candidates = cluster
    if len({candidate.rack for candidate in candidates}) > 1:
        return
    placed = place(partitions, factor, candidates)
    for counted in (Counter(node for each in placed for node in each), Counter(each[0] for each in placed)):
        counts = [counted[candidate.node_id] for candidate in candidates]
        assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize(("count", "workers", "sets"), [(3, 16, 16), (4, 8, 32), (5, 4, 20)])
def test_few_replica_sets_are_used(count: int, workers: int, sets: int) -> None:
    """New topics repeat the replica sets of earlier ones, so that each node replicates with few others."""
    nodes = [64 * machine + worker for machine in range(count) for worker in range(workers)]
    replicas: Counter[int] = Counter()
    leaders: Counter[int] = Counter()
    used: set[frozenset[int]] = set()
    rng = random.Random(7)
    for _ in range(40):
        known = [Candidate(each, "", replicas[each], leaders[each], machine=f"m{each // 64}") for each in nodes]
        for placed in place(rng.choice((1, 3, 7, 12, 24, 50)), 3, known):
            used.add(frozenset(placed))
            replicas.update(placed)
            leaders[placed[0]] += 1
    assert len(used) == sets
    assert max(replicas.values()) - min(replicas.values()) <= 1


def test_too_few_machines_are_named() -> None:
    """A topic is refused if its replicas would have to share a machine, and the reason names the machines."""
    cluster = Leaving(nodes=4, partitions=0, machines="aabb")
    problem = created(cluster, new_topic())
    assert problem.code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "needs 3 nodes on distinct machines, and 4 are registered, on 2 machines" in problem.message
    problem = created(cluster, new_topic(factor=2))
    assert "needs 3 nodes on distinct machines, 2 for the copies and one for a witness" in problem.message
    assert "\n" not in problem.message
    assert created(cluster, new_topic(factor=1)).code == ErrorCode.NONE


def test_topics_are_created_while_a_machine_is_down() -> None:
    """The replica on the absent machine is not in the ISR and never the preferred leader; none is doubled up."""
    cluster = Leaving(nodes=6, partitions=0, machines="aabbcc")
    down(cluster, 5, 6)
    assert created(cluster, new_topic(partitions=8)).code == ErrorCode.NONE
    assert are_apart(cluster.image)
    for partition in cluster.image.partitions.values():
        assert partition.replicas[-1] in (5, 6)
        assert sorted(partition.isr) == sorted(partition.replicas[:-1])
    assert grown(cluster, 10).code == ErrorCode.NONE
    assert are_apart(cluster.image)


def test_a_minority_of_machines_creates_nothing() -> None:
    cluster = down(Leaving(nodes=6, partitions=0, machines="aabbcc"), 3, 4, 5, 6)
    assert "needs 2 of them alive to elect a leader, and 1 are" in created(cluster, new_topic()).message


def test_a_node_of_a_machine_stands_in_for_another() -> None:
    """While one node of a machine is down, the other one of it gets new replicas."""
    cluster = down(Leaving(nodes=6, partitions=0, machines="aabbcc"), 5)
    assert created(cluster, new_topic(partitions=4)).code == ErrorCode.NONE
    assert all(6 in each.replicas for each in cluster.image.partitions.values())


# -- requests ---------------------------------------------------------------------------------------------------------


def test_named_nodes_of_one_machine_are_refused() -> None:
    cluster = Leaving(nodes=6, partitions=0, machines="aabbcc")
    problem = assigned(cluster, 1, 3, 4)
    assert problem.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "nodes 3 and 4 are both on machine b, and would fail together" in problem.message
    assert assigned(cluster, 1, 3, 5).code == ErrorCode.NONE
    assert "nodes 5 and 6 are both on machine c" in grown(cluster, 2, (5, 2, 6)).message
    assert "nodes 1 and 2 are both on machine a" in moved_to(cluster, 1, 2, 5)
    assert moved_to(cluster, 2, 3, 5) == ""


def test_a_move_takes_the_witness_to_another_machine() -> None:
    """A witness stays where it is unless the replicas move to its machine."""
    cluster = Leaving(nodes=6, partitions=0, machines="aabbcc")
    assert assigned(cluster, 1, 3).code == ErrorCode.NONE
    (partition,) = cluster.image.partitions.values()
    assert partition.witness in (5, 6)
    assert moved_to(cluster, 1, 11 - partition.witness) == ""
    assert partition.wanted_witness in (3, 4)
    assert are_apart(cluster.image)


def test_a_move_without_room_for_the_witness_is_refused() -> None:
    """The present witness does not stay beside a replica because no other node can have it."""
    cluster = Leaving(nodes=4, partitions=0, machines="abca")
    assert assigned(cluster, 3, 2).code == ErrorCode.NONE
    (partition,) = cluster.image.partitions.values()
    assert cluster.image.brokers[partition.witness].machine == "a"
    assert "needs a witness on another node, and no node is available" in moved_to(cluster, 2, 5 - partition.witness)


@pytest.mark.parametrize(("factor", "racks"), [(2, ""), (4, ""), (2, "rrssrrrrrr")])
def test_a_witness_has_a_machine_of_its_own(factor: int, racks: str) -> None:
    """A witness is on no machine of a replica, even if all racks have a replica."""
    cluster = Leaving(nodes=10, partitions=0, racks=racks, machines="aabbccddee")
    assert created(cluster, new_topic(partitions=12, factor=factor)).code == ErrorCode.NONE
    assert all(each.witness != NO_NODE for each in cluster.image.partitions.values())
    assert are_apart(cluster.image)


# -- coordinators -----------------------------------------------------------------------------------------------------


class PlannedMachines(Leaving):
    """A controller that creates coordinators, on machines."""

    coordinators = Planned.coordinators
    replicas = Planned.replicas

    def __init__(self, names: str, voters: tuple[int, ...], plan: CoordinatorPlan | None = None) -> None:
        super().__init__(nodes=len(names), partitions=0, machines=names)
        self.members = Configuration(voters)
        self.options = ControllerOptions(coordinators=plan or CoordinatorPlan(6))
        self.take_over()
        self.beat(*range(1, len(names) + 1))


def test_coordinators_are_on_distinct_machines() -> None:
    cluster = PlannedMachines("aabbcc", (1, 3, 5))
    assert cluster.coordinators().code == ErrorCode.NONE
    assert [len(each) for each in cluster.replicas()] == [3] * 6
    assert are_apart(cluster.image)


def test_coordinators_of_few_machines_have_one_replica() -> None:
    cluster = PlannedMachines("aaabb", (1, 4))
    assert cluster.coordinators().code == ErrorCode.NONE
    assert [len(each) for each in cluster.replicas()] == [1] * 6


def test_coordinators_wait_for_a_voters_machine() -> None:
    """Nodes of one machine do not replace a voter that has not registered: its machine would never get a replica."""
    cluster = PlannedMachines("aab", (1, 3, 4))
    problem = cluster.coordinators()
    assert problem.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "2 machines can have one, and each coordinator needs 3 replicas" in problem.message


# -- nodes that leave -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [2, 3])
def test_drained_replicas_stay_on_distinct_machines(factor: int) -> None:
    cluster = Leaving(nodes=8, partitions=0, machines="aabbccdd")
    cluster.create(new_topic(partitions=16, factor=factor))
    cluster.led()
    for node in (2, 5):
        cluster.alter(node, DRAIN)
    cluster.pass_time(seconds=3)
    held = {node for each in cluster.image.partitions.values() for node in each.wanted_voters}
    assert held.isdisjoint((2, 5))
    assert are_apart(cluster.image)


def test_a_machine_is_drained_as_a_whole() -> None:
    """Its nodes leave together: no replica moves from one of them to another, and so none moves twice."""
    cluster = Leaving(nodes=8, partitions=0, machines="abcdabcd")
    cluster.create(new_topic(partitions=16))
    cluster.led()
    plan = cluster.alter(3, DRAIN, together=[7, 3])
    on_machine = [each for each in cluster.image.partitions.values() if {3, 7} & {*each.replicas}]
    assert plan.all_moves == len(plan.moves) == len(on_machine)
    assert all({3, 7}.isdisjoint(move.wanted) for move in plan.moves)
    assert [each.node_id for each in cluster.image.departures.leaving()] == [3, 7]
    cluster.pass_time(seconds=3)
    held = {node for each in cluster.image.partitions.values() for node in each.wanted_voters}
    assert held.isdisjoint((3, 7))
    assert are_apart(cluster.image)


def test_a_machine_without_others_is_not_drained() -> None:
    """All of its nodes stay if one of them cannot leave, and the reason names them."""
    cluster = Leaving(nodes=6, partitions=4, machines="abcabc")
    problem = cluster.alter(2, DRAIN, together=[5]).error
    assert problem.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "replicas on nodes 2, 5 have nowhere to go" in problem.message
    assert "node 9 is not registered" in cluster.alter(2, DRAIN, together=[5, 9]).error.message
    assert "cannot have one successor" in cluster.alter(2, DRAIN, together=[5], successor=4).error.message
    assert not cluster.image.departures.leaving()


def test_the_last_node_of_a_machine_stays() -> None:
    """Replicas have nowhere to go if all other machines have one already."""
    cluster = Leaving(nodes=5, partitions=4, machines="aabbc")
    assert "nowhere to go" in cluster.alter(5, DRAIN).error.message
    assert not cluster.alter(4, DRAIN).HasField("error")


def test_a_successor_takes_what_its_machine_may_have() -> None:
    """A successor gets only replicas of which no other is on its machine; the others go elsewhere."""
    cluster = Leaving(nodes=8, partitions=0, machines="aabbccdd")
    cluster.create(new_topic(partitions=16))
    moves = cluster.alter(8, DRAIN, successor=4).moves
    assert moves
    for move in moves:
        assert (4 in move.wanted) == (3 not in move.replicas)
    cluster.pass_time()
    assert are_apart(cluster.image)


def test_an_heir_is_on_another_machine() -> None:
    """The heir is the best node of those whose machine has no other replica, whatever the racks are."""
    rng = random.Random(3)
    for racks in ("", "aaaabbbbcc"):
        cluster = Leaving(nodes=10, partitions=0, racks=racks, machines="kkllmmnnoo")
        brokers = cluster.image.brokers
        for _ in range(100):
            able = rng.sample([*brokers.values()], 3)
            heirs = ReplacementPlacement(able, brokers, {node: rng.randint(0, 9) for node in brokers}, 99)
            wanted = [rng.choice(pair) for pair in rng.sample(((1, 2), (3, 4), (5, 6), (7, 8), (9, 10)), 3)]
            heir = heirs.take(wanted, wanted[0], rng.choice((NO_NODE, *brokers)))
            taken = machines(cluster.image, wanted[1:])
            free = [each.node_id for each in able if each.machine not in taken and each.node_id != wanted[0]]
            assert heir in (free or [NO_NODE])


# -- balance ----------------------------------------------------------------------------------------------------------


class Crowded(Balanced):
    """A cluster with two replicas of a partition on one machine, as a controller of an older version places them."""

    def __init__(self, names: str, replicas: tuple[int, ...], witness: int | None = None) -> None:
        super().__init__(nodes=len(names), partitions=0, machines=names)
        sets = [log.ReplicaSet(replicas=replicas, witness=witness)] * 6
        self.commit_one(create_topic=log.CreateTopic(name="orders", topic_id=bytes(15) + b"\1", partitions=sets))
        self.led()


@pytest.mark.parametrize(
    ("names", "replicas", "witness"), [("aabbcc", (1, 2, 3), None), ("aabbcc", (1, 2), 3), ("aabbccdd", (1, 3), 2)]
)
def test_balance_parts_replicas_of_one_machine(names: str, replicas: tuple[int, ...], witness: int | None) -> None:
    cluster = Crowded(names, replicas, witness)
    assert not are_apart(cluster.image)
    cluster.rebalance()
    assert are_apart(cluster.image)


@pytest.mark.parametrize("racks", ["", "rrrrssss", "rsrsrsrs"])
@pytest.mark.parametrize("factor", [2, 3])
def test_balance_keeps_machines_apart(racks: str, factor: int) -> None:
    """No replica moves for balance to a machine that has one, or the witness."""
    rng = random.Random(f"{racks} {factor}")
    for _ in range(20):
        cluster = Balanced(nodes=8, partitions=0, racks=racks, machines="aabbccdd")
        for number in range(12):
            chosen = [rng.choice(pair) for pair in rng.sample(((1, 2), (3, 4), (5, 6), (7, 8)), factor)]
            cluster.assigned(f"t{number}", tuple(chosen))
        cluster.rebalance()
        assert are_apart(cluster.image)


# -- the metadata quorum ----------------------------------------------------------------------------------------------


def test_a_machine_gets_one_vote_while_others_have_none() -> None:
    cluster = Leaving(nodes=6, partitions=0, machines="abcabd")
    refused = alter(cluster, (4,), (2,)).error
    assert refused.code == ErrorCode.INVALID_REQUEST
    assert "node 4 is on machine a with voters 1, and would fail together with them" in refused.message
    assert "add a node of another machine, for example 2" in refused.message
    assert list(alter(cluster, (5,), (2,)).voters) == [1, 3, 5]
    assert list(alter(cluster, (6,), (1,)).voters) == [3, 5, 6]


def test_a_machine_that_is_down_needs_no_vote() -> None:
    """With too few machines up, votes are spread as evenly as those allow."""
    cluster = down(Leaving(nodes=5, partitions=0, machines="abcab"), 3)
    assert list(alter(cluster, (4,), (3,)).voters) == [1, 2, 4]
    assert list(alter(cluster, (5,)).voters) == [1, 2, 4, 5]


def test_a_successor_on_a_voters_machine_is_refused() -> None:
    cluster = Leaving(nodes=6, partitions=3, machines="abcbde")
    problem = cluster.alter(3, DRAIN, successor=4).error
    assert "node 4 is on machine b with voters 2" in problem.message
    assert list(cluster.alter(3, DRAIN, successor=5).voters) == [1, 2, 5]


# -- registrations ----------------------------------------------------------------------------------------------------


def test_a_machine_survives_a_snapshot() -> None:
    cluster = Leaving(nodes=3, partitions=0, machines="aab")
    restored = MetadataImage.from_snapshot(cluster.image.to_snapshot())
    assert machines(restored, (1, 2, 3)) == ["a", "a", "b"]
    assert restored.to_snapshot() == cluster.image.to_snapshot()


def test_nodes_without_a_machine_are_apart() -> None:
    """Nodes of an older version, which register without a machine, each count as a machine of their own."""
    cluster = Leaving(nodes=4, partitions=0, machines="")
    assert len({*machines(cluster.image, (1, 2, 3, 4))}) == 4
    assert created(cluster, new_topic()).code == ErrorCode.NONE


@pytest.mark.parametrize("machine", ["m" * 256, "two\nlines", "\0node 1"])
def test_an_unprintable_machine_is_refused(machine: str) -> None:
    cluster = Leaving(nodes=3, partitions=0)
    refused = cluster.ask(register_broker=registration(4, machine=machine)).error
    assert refused.code == ErrorCode.INVALID_REQUEST
    assert "\n" not in refused.message
