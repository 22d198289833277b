"""Snapshots between whole nodes in virtual time: a node that was away catches up, whatever happens on the way."""

from __future__ import annotations

import pytest
from quiet_cluster import Quiet

from quorumlog.server.config.options import NodeLimits
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.simulator.world.durable_raft_group import DurableRaftGroup

METADATA = 0
SMALL = NodeLimits(snapshot_slice_bytes=60)
#: The node that was away; 1 made the first term, and leads the metadata.
AWAY = 3
SEEDS = range(1, 4)


def on_disk(quiet: Quiet, node: int) -> DurableRaftGroup:
    return quiet.cluster.processes[node].disk.synced[METADATA]


def behind(seed: int) -> Quiet:
    """A cluster of which one node was down while the others gave up the log that it needs."""
    quiet = Quiet(seed, limits=SMALL, checkpoint_entries=3)
    leader = quiet.led_by(METADATA)
    assert leader not in (None, AWAY)
    quiet.cluster.processes[AWAY].die(silent=False)
    at = on_disk(quiet, AWAY).last.index
    for number in range(3):
        quiet.create(f"more{number}", node=leader or 1)
    assert all(on_disk(quiet, node).anchor.index > at for node in (1, 2))
    return quiet


def slices(quiet: Quiet) -> int:
    """Slices on the disk of the node that was away, of snapshots that it does not have yet."""
    durable = on_disk(quiet, AWAY)
    has = durable.snapshot.data.stage if durable.snapshot is not None else None
    return sum(len(pieces) for stage, pieces in durable.slices.items() if stage != has)


def catches_up(quiet: Quiet) -> None:
    """Equal images everywhere, and a whole snapshot on the disk."""

    def caught_up() -> bool:
        images = {node: quiet.cluster.processes[node].image for node in quiet.cluster.node_ids}
        states = {image.to_snapshot() if image is not None else None for image in images.values()}
        return len(states) == 1 and None not in states

    quiet.until(caught_up, 30)
    assert on_disk(quiet, AWAY).snapshot is not None
    assert_whole(on_disk(quiet, AWAY))


def assert_whole(durable: DurableRaftGroup) -> None:
    """Asserts that the snapshot in the row is complete and belongs to the log's anchor, as it must after a crash."""
    if durable.snapshot is None:
        assert durable.anchor.index == 0
        return
    pieces = durable.slices[durable.snapshot.data.stage]
    data = b"".join(pieces[number] for number in range(durable.snapshot.data.slices))
    assert MetadataImage.from_snapshot(data).applied_index == durable.snapshot.last.index == durable.anchor.index


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_that_was_away_catches_up_by_many_slices(seed: int) -> None:
    quiet = behind(seed)
    quiet.cluster.start(AWAY)
    quiet.until(lambda: slices(quiet) >= 3, 10)
    catches_up(quiet)


@pytest.mark.scenario("6e")
@pytest.mark.parametrize("seed", SEEDS)
def test_the_second_snapshot_of_a_new_leader_takes_the_place_of_the_first_half_staged(seed: int) -> None:
    quiet = behind(seed)
    quiet.cluster.start(AWAY)
    quiet.until(lambda: slices(quiet) >= 3, 10)
    leader = quiet.led_by(METADATA)
    assert leader is not None
    (first,) = on_disk(quiet, AWAY).slices.keys() - {_stage(on_disk(quiet, AWAY))}
    quiet.cluster.processes[leader].die(silent=False)
    quiet.until(lambda: quiet.led_by(METADATA) not in (None, leader), 5)
    quiet.cluster.start(leader)
    catches_up(quiet)
    assert first not in on_disk(quiet, AWAY).slices, "nothing of the first is left"


@pytest.mark.scenario("6f")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_power_loss_after_any_slice_leaves_the_old_state_or_the_new(seed: int) -> None:
    quiet = behind(seed)
    for crash in range(1, 8):
        quiet.cluster.start(AWAY)
        quiet.until(lambda wanted=crash: slices(quiet) >= wanted or caught(quiet), 10)  # type: ignore[misc]
        quiet.cluster.processes[AWAY].die(silent=True)
        assert_whole(on_disk(quiet, AWAY))
        assert slices(quiet) == 0, "what was being staged is garbage"
    quiet.cluster.start(AWAY)
    catches_up(quiet)


def caught(quiet: Quiet) -> bool:
    return on_disk(quiet, AWAY).anchor.index >= on_disk(quiet, 1).anchor.index


def _stage(durable: DurableRaftGroup) -> int | None:
    return durable.snapshot.data.stage if durable.snapshot is not None else None
