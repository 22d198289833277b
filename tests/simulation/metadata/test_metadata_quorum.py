"""Other nodes come to vote in the metadata quorum of a simulated cluster, through kills, and nothing is lost."""

from __future__ import annotations

from functools import partial

import pytest
from quiet_cluster import Quiet

from quorumlog.raft.types import NO_NODE
from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.v1 import admin_pb2


class Changing(Quiet):
    """A quiet cluster whose metadata quorum is changed."""

    @property
    def up(self) -> list[int]:
        """The nodes that run."""
        return [node for node, process in self.cluster.processes.items() if process.running]

    def alter(self, add: tuple[int, ...] = (), remove: tuple[int, ...] = ()) -> admin_pb2.AlterQuorumResponse:
        """Requests a change of the voters, and returns the answer."""
        request = admin_pb2.AlterQuorumRequest(add=add, remove=remove, timeout_ms=3_000)
        answers: list[object] = []

        def is_answered() -> bool:
            return any(isinstance(each, admin_pb2.AlterQuorumResponse) for each in answers)

        self.cluster.request("admin", self.up[-1], request, answers.append)
        self.until(is_answered, 10)
        return next(each for each in answers if isinstance(each, admin_pb2.AlterQuorumResponse))

    def vote(self, *voters: int) -> bool:
        """True if exactly these nodes vote, all others are learners, and every running node has that configuration."""
        learners = tuple(node for node in self.cluster.node_ids if node not in voters)
        known = [raft.configuration for raft in self.replicas_of(METADATA_GROUP).values()]
        return all(
            not each.is_joint and sorted(each.voters) == sorted(voters) and sorted(each.learners) == sorted(learners)
            for each in known
        )

    def kill(self, *nodes: int) -> None:
        for node in nodes:
            self.cluster.processes[node].die(silent=False)


def test_another_node_votes_in_the_place_of_one_that_is_dead() -> None:
    changing = Changing(1, nodes=4)
    changing.kill(2)
    changing.until(lambda: changing.led_by(METADATA_GROUP) is not None, 10)
    assert sorted(changing.alter(add=(4,), remove=(2,)).voters) == [1, 3, 4]
    changing.until(lambda: changing.vote(1, 3, 4), 10)
    # Of those that formed the cluster another one may die now, and the metadata still change.
    changing.kill(3)
    changing.create("after", node=4)


def test_a_leader_that_is_to_vote_no_more_hands_over_and_learns_from_then_on() -> None:
    changing = Changing(2, nodes=5)
    leader = changing.led_by(METADATA_GROUP)
    assert leader is not None
    others = [node for node in changing.cluster.node_ids if node != leader]
    assert not changing.alter(remove=(leader, others[0])).HasField("error")
    changing.until(lambda: changing.vote(*others[1:]), 10)
    assert changing.led_by(METADATA_GROUP) in others[1:]
    changing.create("after", node=leader)


def test_the_quorum_moves_to_wholly_other_nodes_and_lives_on_without_those_that_formed_the_cluster() -> None:
    changing = Changing(3, nodes=7)
    assert not changing.alter(remove=(4, 5, 6, 7)).HasField("error")
    changing.until(lambda: changing.vote(1, 2, 3), 10)
    assert not changing.alter(add=(4, 5, 6), remove=(1, 2, 3)).HasField("error")
    changing.until(lambda: changing.vote(4, 5, 6), 15)
    node = changing.cluster.processes[7].node
    assert node is not None
    reported = [voter for voter, _, _ in node.standing(1).voters]
    assert reported == [4, 5, 6], "the answer to a node that looks for the cluster"
    changing.kill(1, 2, 3)
    changing.create("after", node=7)
    # A node that starts again asks those that vote now.
    changing.cluster.start(2)
    changing.until(lambda: 2 in changing.up and changing.replicas_of(METADATA_GROUP)[2].leader_id in (4, 5, 6), 10)


@pytest.mark.parametrize("seed", range(6))
def test_a_change_of_the_quorum_goes_on_after_kills_at_any_point(seed: int) -> None:
    changing = Changing(100 + seed, nodes=5)
    rng = changing.scheduler.stream("kills")
    assert not changing.alter(remove=(1, 2)).HasField("error")
    for _ in range(4):
        changing.run(rng.uniform(0.01, 0.3))
        victim = rng.choice(changing.up)
        changing.kill(victim)
        changing.run(rng.uniform(0.05, 1.5))
        changing.cluster.start(victim)
    changing.until(lambda: changing.vote(3, 4, 5), 60)


def test_nobody_votes_before_it_has_caught_up() -> None:
    changing = Changing(5, nodes=4)
    image = changing.cluster.processes[2].image
    assert image is not None
    changing.until(lambda: not image.is_fenced(4), 5)
    assert not changing.alter(add=(4,), remove=(1,)).HasField("error")
    for node in (1, 2, 3):
        changing.cluster.network.cut(node, 4)
        changing.cluster.network.cut(4, node)
    changing.run(5)
    assert all(4 not in raft.configuration.electors for raft in changing.replicas_of(METADATA_GROUP).values())
    for node in (1, 2, 3):
        changing.cluster.network.mend(node, 4)
        changing.cluster.network.mend(4, node)
    changing.until(lambda: changing.vote(2, 3, 4), 15)


def test_a_node_that_is_down_cannot_come_to_vote() -> None:
    changing = Changing(7, nodes=4)
    changing.kill(4)
    changing.run(6)
    request = admin_pb2.AlterQuorumRequest(add=(4,), remove=(1,), timeout_ms=3_000)
    answers: list[object] = []
    changing.cluster.request("admin", 2, request, answers.append)
    changing.until(lambda: bool(answers), 5)
    (answer,) = answers
    assert isinstance(answer, admin_pb2.AlterQuorumResponse)
    assert "node 4 is down" in answer.error.message


def test_the_latest_wish_counts() -> None:
    changing = Changing(6, nodes=5)
    assert not changing.alter(remove=(1, 2)).HasField("error")
    assert not changing.alter(add=(1, 2), remove=(4, 5)).HasField("error")
    changing.until(lambda: changing.vote(1, 2, 3), 15)


def test_a_voter_that_is_down_holds_no_change_up() -> None:
    changing = Changing(8, nodes=4)
    changing.kill(3)
    changing.until(lambda: changing.led_by(METADATA_GROUP) is not None, 10)
    assert sorted(changing.alter(add=(4,)).voters) == [1, 2, 3, 4]
    changing.until(lambda: changing.vote(1, 2, 3, 4), 10)


def test_a_leader_that_steps_down_looks_at_no_change_in_that_step() -> None:
    changing = Changing(9, nodes=4)
    changing.alter(add=(4,))
    changing.until(lambda: changing.vote(1, 2, 3, 4), 10)
    leader = changing.led_by(METADATA_GROUP)
    assert leader is not None
    node = changing.cluster.processes[leader].node
    assert node is not None and node._member is not None
    quorum, raft = node._member.metadata._quorum, node._member.metadata.replica.raft
    node._member.metadata.replica.image.quorum.voters = (1, 2, 3)
    quorum.on_time(changing.scheduler.now)
    raft._candidacy.become_follower(changing.scheduler.now, raft.term, NO_NODE)
    assert node._member.metadata.replica.controller is not None, "it goes with the next round only"
    quorum.on_time(changing.scheduler.now + 1_000_000)


@pytest.mark.scenario("12g")
@pytest.mark.parametrize("seed", range(6))
def test_one_that_knows_of_its_removal_still_answers_one_that_does_not(seed: int) -> None:
    changing = Changing(200 + seed, nodes=3)
    assert not changing.alter(remove=(2,)).HasField("error")
    changing.until(lambda: changing.vote(1, 3), 10)

    def ask(number: int) -> None:
        request = admin_pb2.CreateTopicsRequest(timeout_ms=3_000)
        request.topics.add(name=f"topic-{number}", num_partitions=1, replication_factor=1)
        changing.cluster.request("many", 1, request, lambda _: None)

    # There is always something on its way: an entry behind the change that removes the two voters is on their disks
    # only, and one of the two does not receive that the change is committed.
    for number in range(300):
        changing.scheduler.after(1_000 * number, partial(ask, number))
    assert not changing.alter(add=(2,), remove=(1, 3)).HasField("error")
    changing.until(lambda: changing.vote(2), 10)
    changing.create("after", node=1)
