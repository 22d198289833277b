"""A node finds the metadata quorum after it has moved to nodes that this node does not have in its metadata."""

from __future__ import annotations

from dataclasses import replace

import pytest
from quiet_cluster import Quiet

from quorumlog.raft.replication import NEVER
from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.server.node.formation import MOST_REPORTED_VOTERS
from quorumlog.server.node.metadata_member import MetadataMember
from quorumlog.server.node.node import Node
from quorumlog.server.step.events import ClusterStanding, PeerIdentified, PeerIdentity
from quorumlog.simulator.seeds.simulation import Simulation
from quorumlog.simulator.world.cluster import ClusterOptions, SimCluster
from quorumlog.simulator.world.disk import DiskOptions
from quorumlog.simulator.world.network import NetworkOptions
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.v1 import admin_pb2

FOUNDERS = (1, 2, 3)
LATER = (4, 6, 7)
AWAY = 5


class Moved(Quiet):
    """Three founders, and one node that is away while later nodes replace the founders in the quorum."""

    def __init__(self, seed: int = 1) -> None:
        self.scheduler = Scheduler(seed)
        # Four machines make the first three nodes controllers.
        options = ClusterOptions(
            nodes=7,
            machines=tuple("abcdabc"),
            disk=DiskOptions(slow_probability=0),
            network=NetworkOptions(spike_probability=0),
        )
        self.cluster = SimCluster(self.scheduler, options)
        for node in FOUNDERS:
            self.cluster.start(node)
        self.until(lambda: self.led_by(METADATA_GROUP) is not None, 10)
        self.run(1)

    @property
    def away(self) -> Node:
        """The node that was away."""
        node = self.cluster.processes[AWAY].node
        assert node is not None
        return node

    @property
    def metadata(self) -> MetadataMember:
        """Its replica of the metadata."""
        assert self.away._member is not None
        return self.away._member.metadata

    def peers(self) -> dict[int, str]:
        """The nodes with which it keeps links."""
        return self.metadata.peers(self.scheduler.now)

    def is_registered(self) -> bool:
        """True if the metadata of their leader contain the node."""
        leader = self.led_by(METADATA_GROUP)
        image = self.cluster.processes[leader].image if leader is not None else None
        return image is not None and AWAY in image.brokers

    def leave(self) -> None:
        """Ends the node."""
        self.cluster.processes[AWAY].die(silent=True)

    def move_quorum(self) -> None:
        """Starts the later nodes, and makes them the voters."""
        for node in LATER:
            self.cluster.start(node)
        self.run(3)
        answers: list[object] = []
        request = admin_pb2.AlterQuorumRequest(add=LATER, remove=FOUNDERS, timeout_ms=3_000)
        self.cluster.request("admin", 1, request, answers.append)
        self.until(lambda: all(self._votes(node) for node in (*FOUNDERS, *LATER)), 20)
        self.run(1)

    def _votes(self, node: int) -> bool:
        configuration = self.replicas_of(METADATA_GROUP)[node].configuration
        return not configuration.is_joint and sorted(configuration.voters) == list(LATER)

    def is_back(self) -> bool:
        """True if the node has all of the metadata, and serves."""
        leader = self.led_by(METADATA_GROUP)
        newest, own = self.cluster.processes[leader or 0].image, self.away.image
        if own is None or newest is None or own.applied_index < newest.applied_index:
            return False
        return self.is_registered() and not newest.is_fenced(AWAY) and not self.away.not_ready()


def moved_while_behind() -> Moved:
    """A cluster whose quorum has moved while a node of old metadata was down; the node is up again."""
    moved = Moved()
    moved.cluster.start(AWAY)
    moved.run(3)
    moved.leave()
    moved.move_quorum()
    moved.cluster.start(AWAY)
    return moved


def test_a_node_that_was_down_finds_the_new_quorum() -> None:
    moved = moved_while_behind()
    assert not set(LATER) & set(moved.metadata.replica.image.brokers), "its metadata must be older"
    moved.until(moved.is_back, 10)


@pytest.mark.parametrize("registered", [True, False])
def test_a_node_without_any_metadata_finds_the_new_quorum(registered: bool) -> None:
    moved = Moved()
    moved.cluster.start(AWAY)
    moved.until(lambda: moved.cluster.processes[AWAY].image is not None, 10)
    if registered:
        moved.until(moved.is_registered, 10)
    assert moved.is_registered() == registered
    moved.leave()
    moved.move_quorum()
    moved.cluster.start(AWAY)
    assert moved.away.image is not None and moved.away.image.applied_index == 0
    moved.until(moved.is_back, 10)


def test_a_new_node_finds_the_new_quorum() -> None:
    """None of its controllers is active: they name those that may be."""
    moved = Moved()
    moved.move_quorum()
    moved.cluster.start(AWAY)
    moved.until(moved.is_back, 10)


@pytest.mark.scenario("19f")
def test_a_controller_that_is_behind_admits_no_wiped_node() -> None:
    """It would admit the new disk without its former one's acknowledgements, and all others would refuse it."""
    moved, behind = Moved(), 3
    moved.until(lambda: moved.led_by(METADATA_GROUP) in FOUNDERS, 10)
    if moved.led_by(METADATA_GROUP) == behind:
        behind = 2
    network = moved.cluster.network
    others = [node for node in FOUNDERS if node != behind]
    apart = [pair for other in others for pair in ((other, behind), (behind, other))]
    for pair in apart:
        network.cut(*pair)
    moved.cluster.start(AWAY)
    moved.until(moved.is_registered, 10)
    unseen = [pair for other in others for pair in ((other, AWAY), (AWAY, other))]
    for pair in unseen:
        network.cut(*pair)
    moved.cluster.wipe(AWAY)
    moved.run(5)
    assert moved.away.image is None
    assert "waits for the active controller of cluster" in moved.away.not_ready()
    for pair in (*apart, *unseen):
        network.mend(*pair)
    moved.run(5)
    assert moved.away.image is None
    assert f"nodes replace {AWAY} --with {AWAY}" in moved.away.not_ready()


def test_a_node_that_was_cut_off_finds_the_new_quorum() -> None:
    moved = Moved()
    moved.cluster.start(AWAY)
    moved.run(3)
    assert moved.away._search.next_deadline == NEVER, "in touch with the controller it must not ask"
    network = moved.cluster.network
    cut = [pair for other in (*FOUNDERS, *LATER) for pair in ((other, AWAY), (AWAY, other))]
    for pair in cut:
        network.cut(*pair)
    moved.move_quorum()
    for pair in cut:
        network.mend(*pair)
    moved.until(moved.is_back, 10)
    moved.run(1)
    assert moved.away._search.next_deadline == NEVER


def test_other_controllers_in_the_settings_lead_to_the_new_quorum() -> None:
    """All nodes in its metadata are gone: an operator sets its controllers to nodes that remain."""
    moved = Moved()
    moved.cluster.start(AWAY)
    moved.run(3)
    moved.leave()
    moved.move_quorum()
    for node in FOUNDERS:
        moved.cluster.processes[node].die(silent=True)
    process = moved.cluster.processes[AWAY]
    process._options = replace(process._options, controllers={node: f"node-{node}:1" for node in LATER})
    moved.cluster.start(AWAY)
    moved.until(moved.is_back, 10)


def test_a_report_counts_until_the_metadata_are_as_new() -> None:
    moved = moved_while_behind()
    moved.until(lambda: bool(moved.metadata.reported_voters), 5)
    assert sorted(moved.metadata.reported_voters) == list(LATER)
    assert set(LATER) <= moved.peers().keys()
    moved.until(moved.is_back, 10)
    assert moved.metadata.reported_voters == ()


def report(moved: Moved, *voters: int, ahead: int = 1, cluster: str | None = None) -> None:
    """Reports voters to the node, from metadata that are ``ahead`` of its own."""
    metadata = moved.metadata
    own_id = metadata.membership.cluster_id
    standing = ClusterStanding(
        tuple((node, f"directory-{node}", f"elsewhere-{node}:1") for node in voters),
        "",
        metadata.replica.image.applied_index + ahead,
    )
    identity = PeerIdentity(own_id if cluster is None else cluster, 1, "directory", 1, "node-1:1")
    moved.away._search.on_identified(PeerIdentified(identity, standing))


def joined() -> Moved:
    """A cluster of the founders and one more node."""
    moved = Moved()
    moved.cluster.start(AWAY)
    moved.run(3)
    return moved


def test_only_newer_reports_of_the_own_cluster_count() -> None:
    moved = joined()
    report(moved, 91, ahead=100, cluster="another")
    report(moved, 92, ahead=0)
    assert moved.peers().keys() == set(FOUNDERS)
    report(moved, 93, ahead=2)
    report(moved, 94, ahead=1)
    assert moved.peers().keys() == {*FOUNDERS, 93}


def test_the_metadata_decide_about_nodes_that_they_contain() -> None:
    moved = joined()
    before = moved.peers(), moved.metadata.directory_of(1)
    report(moved, 1, AWAY)
    assert (moved.peers(), moved.metadata.directory_of(1)) == before
    assert AWAY not in moved.peers()


def test_reported_voters_are_bounded() -> None:
    moved = joined()
    report(moved, *range(100, 1_000))
    assert len(moved.peers()) == len(FOUNDERS) + MOST_REPORTED_VOTERS


def test_a_reported_voter_is_known_by_its_directory() -> None:
    moved = joined()
    report(moved, 93)
    own = moved.metadata.membership.cluster_id
    assert moved.away.accepts_peer(PeerIdentity(own, 93, "directory-93", 1, "elsewhere-93:1")) is None
    assert "directory" in (moved.away.accepts_peer(PeerIdentity(own, 93, "other", 1, "elsewhere-93:1")) or "")


def test_a_caller_makes_a_node_connect_nowhere() -> None:
    """Its own word about its address does not count, even if its streams are accepted."""
    moved = joined()
    own = moved.metadata.membership.cluster_id
    assert moved.away.accepts_peer(PeerIdentity(own, 93, "directory-93", 1, "elsewhere-93:1")) is None
    assert not moved.metadata.peers_changed
    assert moved.peers().keys() == set(FOUNDERS)


def test_a_seed_whose_quorum_moved_away_from_an_empty_node() -> None:
    assert Simulation(3555).run().violation is None
