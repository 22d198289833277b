"""Formation: once, by one, and never over data that exists."""

import pytest

from quorumlog.server.node.formation import MOST_REPORTED_VOTERS, Formation, Membership
from quorumlog.server.step.events import ClusterStanding, PeerIdentity

CONTROLLERS = {1: "a:1", 2: "b:1", 3: "c:1"}


def formation(node: int) -> Formation:
    return Formation(node, f"dir{node}", CONTROLLERS[node], CONTROLLERS)


def identity(node: int, cluster: str = "", directory: str | None = None) -> PeerIdentity:
    return PeerIdentity(
        cluster, node, f"dir{node}" if directory is None else directory, 1, CONTROLLERS.get(node, "x:1")
    )


def formed() -> Membership:
    first = formation(1)
    assert first.on_identified(identity(2), ClusterStanding()) is None
    membership = first.on_identified(identity(3), ClusterStanding())
    assert isinstance(membership, Membership)
    return membership


def test_a_cluster_forms_when_all_controllers_are_empty() -> None:
    membership = formed()
    assert [node for node, _, _ in membership.voters] == [1, 2, 3]
    assert Membership.decode(membership.encode()) == membership


def test_only_the_lowest_controller_decides() -> None:
    second = formation(2)
    assert second.on_identified(identity(1), ClusterStanding()) is None
    assert second.on_identified(identity(3), ClusterStanding()) is None


def test_the_others_adopt_what_was_decided() -> None:
    membership = formed()
    adopted = formation(3).on_identified(identity(1, membership.cluster_id), ClusterStanding(membership.voters))
    assert adopted == membership


def test_a_wiped_founder_does_not_join_as_if_it_remembered() -> None:

    membership = formed()
    wiped = Formation(3, "another directory", "c:1", CONTROLLERS)
    assert wiped.on_identified(identity(1, membership.cluster_id), ClusterStanding(membership.voters)) is None
    assert "quorumlog nodes replace 3 --with 3" in wiped.returned_empty
    assert "dir3" in wiped.returned_empty, "the message names the disk"


def test_a_node_that_is_no_controller_and_returns_empty_waits_too() -> None:
    wiped = Formation(4, "another directory", "d:1", CONTROLLERS)
    standing = ClusterStanding(formed().voters, "dir4", 12)
    assert wiped.on_identified(identity(1, formed().cluster_id), standing) is None
    assert "quorumlog nodes replace 4 --with 4" in wiped.returned_empty


def test_a_node_whose_former_disk_is_struck_off_joins_and_has_no_say_before_it_has_caught_up() -> None:
    """A node on a new disk has no vote before the index at which it was admitted: its former disk may have acknowledged
    any entry up to there."""
    others = tuple(voter for voter in formed().voters if voter[0] != 3)
    wiped = Formation(3, "another directory", "c:1", CONTROLLERS)
    wiped.on_identified(identity(1, formed().cluster_id), ClusterStanding(formed().voters, "dir3", 12))
    membership = wiped.on_identified(identity(1, formed().cluster_id), ClusterStanding(others, "", 40))
    assert membership == Membership(formed().cluster_id, others, 40)
    assert Membership.decode(membership.encode()) == membership


def test_a_founder_votes_from_the_beginning() -> None:
    third = formation(3)
    joined = third.on_identified(identity(1, formed().cluster_id), ClusterStanding(formed().voters, "dir3", 12))
    assert joined is not None
    assert joined.votes_from == 0, (
        "otherwise the cluster could wait permanently for a third node that was never notified"
    )


def test_a_majority_of_controllers_that_returned_empty_is_said_to_be_lost() -> None:
    membership = formed()
    wiped = Formation(1, "new1", "a:1", CONTROLLERS)
    assert wiped.on_identified(identity(2, directory="new2"), ClusterStanding()) is None
    assert wiped.on_identified(identity(3, membership.cluster_id), ClusterStanding(membership.voters)) is None
    assert "no majority remembers the metadata" in wiped.returned_empty


@pytest.mark.scenario("19a")
def test_two_wiped_nodes_of_three_do_not_form_a_new_cluster() -> None:
    """Two wiped nodes of three do not form a cluster, because the third reports the existing one."""
    membership = formed()
    wiped = Formation(1, "new1", "a:1", CONTROLLERS)
    assert wiped.on_identified(identity(2, directory="new2"), ClusterStanding()) is None
    assert wiped.on_identified(identity(3, membership.cluster_id), ClusterStanding(membership.voters)) is None
    assert wiped.decide() is None


def test_a_single_controller_forms_at_once() -> None:
    alone = Formation(4, "d", "x:1", {4: "x:1"})
    assert isinstance(alone.decide(), Membership)


def test_a_stranger_or_one_without_a_directory_does_not_count() -> None:
    first = formation(1)
    first.on_identified(identity(9), ClusterStanding())
    first.on_identified(identity(2, directory=""), ClusterStanding())
    assert first.waiting_for == [2, 3]


def test_a_node_that_is_no_controller_joins_a_formed_cluster() -> None:
    membership = formed()
    broker = Formation(4, "dir4", "d:1", CONTROLLERS)
    assert broker.on_identified(identity(2, membership.cluster_id), ClusterStanding(membership.voters)) == membership


@pytest.mark.scenario("19f")
def test_only_the_active_controller_admits() -> None:
    """A controller that is behind has not learned what a former disk of the node has acknowledged."""
    membership = formed()
    wiped = Formation(4, "another directory", "d:1", {1: "a:1"})
    behind = ClusterStanding(membership.voters, "", 12, may_be_outdated=True)
    assert wiped.on_identified(identity(1, membership.cluster_id), behind) is None
    assert wiped.found_cluster == membership.cluster_id
    assert wiped.missing == ["a:1", "b:1", "c:1"], "one of the voters is the active controller"
    newest = ClusterStanding(membership.voters, "dir4", 40)
    assert wiped.on_identified(identity(2, membership.cluster_id), newest) is None
    assert "quorumlog nodes replace 4 --with 4" in wiped.returned_empty


def test_a_voter_that_has_moved_is_asked() -> None:
    """Another node may be at its configured address."""
    searching = Formation(4, "dir4", "d:1", {1: "a:1"})
    moved = ClusterStanding(((1, "dir1", "x:1"),), "", 12, may_be_outdated=True)
    assert searching.on_identified(identity(9, "c"), moved) is None
    assert searching.missing == ["a:1", "x:1"]


def test_a_founder_needs_no_active_controller() -> None:
    membership = formed()
    standing = ClusterStanding(membership.voters, may_be_outdated=True)
    assert formation(3).on_identified(identity(1, membership.cluster_id), standing) == membership


def test_voters_to_ask_are_bounded() -> None:
    searching = Formation(4, "dir4", "d:1", CONTROLLERS)
    voters = tuple((node, f"dir{node}", f"n{node}:1") for node in range(10, 1_000))
    searching.on_identified(identity(1, "c"), ClusterStanding(voters, may_be_outdated=True))
    assert len(searching.missing) == len(CONTROLLERS) + MOST_REPORTED_VOTERS


def test_a_cluster_formed_anew_by_other_disks_has_another_id() -> None:
    """A cluster formed again by other disks has another id: otherwise a node of the old one would join it with its old
    log."""
    again = formation(1)
    assert again.on_identified(identity(2), ClusterStanding()) is None
    wiped = again.on_identified(identity(3, directory="another disk"), ClusterStanding())
    assert isinstance(wiped, Membership)
    assert wiped.cluster_id != formed().cluster_id
    assert formed().cluster_id == formed().cluster_id


def test_whoever_is_at_the_address_of_a_controller_tells_of_its_cluster() -> None:
    """The node at a controller's address is believed whatever its id: the voters may have changed since the addresses
    were configured, and another node may be there now."""
    membership = formed()
    broker = Formation(4, "dir4", "d:1", CONTROLLERS)
    assert broker.on_identified(identity(9, membership.cluster_id), ClusterStanding(membership.voters)) == membership
