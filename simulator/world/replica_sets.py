"""What is left of a Raft group without one of its replicas: whether a fault is more than quorumlog promises to bear."""

from __future__ import annotations

from collections.abc import Iterable

from quorumlog.raft.types import Entry, EntryKind
from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.server.partition.witness import is_witness
from quorumlog.server.replicas.replica_tombstones import former_lives
from quorumlog.simulator.world.cluster import SimCluster
from quorumlog.simulator.world.disk import SimDisk
from quorumlog.simulator.world.durable_raft_group import DurableRaftGroup
from quorumlog.simulator.world.process import SimProcess


def is_enough_without(cluster: SimCluster, node: int, group: int) -> bool:
    """Whether a group goes on, with all that is committed, if a node loses its replica for good.

    In each configuration that anybody has, a majority is left that is whole and has a say. What is damaged elsewhere is
    mended without this one. With a witness, another one has all that this one has, which may be the only copy.
    """
    disks = {number: process.disk for number, process in cluster.processes.items()}
    held, sound = _held(cluster, group), _sound_without(cluster, node, group)
    configurations = [each.configuration for each in held.values()]
    if not _is_majority(sound, held.values()):
        return False
    if not all(
        any(_has_whole(disks[other], group, held[number].entry(index)) for other in sound - {number})
        for number in sound
        for index in disks[number].damaged.get(group, ())
    ):
        return False
    mine = held.get(node)
    if mine is None or is_witness(mine.table) or not any(each.witnesses for each in configurations):
        return True
    return any(_has_all_of(held[number], mine) for number in sound if not is_witness(held[number].table))


def is_same_entry(entry: Entry | None, other: Entry | None) -> bool:
    """Whether a replica is mended with another one's entry: the same one, and a trace is none to one with data."""
    if entry is None or other is None or other.kind is EntryKind.TRACE:
        return False
    return (entry.index, entry.term, entry.hash) == (other.index, other.term, other.hash)


def _held(cluster: SimCluster, group: int) -> dict[int, DurableRaftGroup]:
    disks = {number: process.disk for number, process in cluster.processes.items()}
    return {number: disk.synced[group] for number, disk in disks.items() if group in disk.synced}


def _sound_without(cluster: SimCluster, node: int, group: int) -> set[int]:
    held = _held(cluster, group)
    return {number for number in held if number != node and _has_a_say(cluster.processes[number], group)}


def _is_majority(sound: set[int], held: Iterable[DurableRaftGroup]) -> bool:
    """Whether some replicas are enough, in each configuration that one has on disk."""
    halves = [half for each in held for half in each.configuration.halves if half]
    return all(len(sound.intersection(half)) > len(half) // 2 for half in halves)


def _has_a_say(process: SimProcess, group: int) -> bool:
    """A replica that began anew has none before it knows that all it had is committed. Nor has a node with damaged
    metadata: it moves all that it has aside if it cannot mend them before it starts again."""
    disk, hosted = process.disk, process.replicas.get(group)
    _, votes_from = former_lives(disk.rows).get(group, (0, 0))
    known = disk.synced[group].hard_state.commit if hosted is None else hosted.raft.commit_index
    return group not in disk.broken and not disk.damaged.get(METADATA_GROUP) and known >= votes_from


def _has_whole(disk: SimDisk, group: int, entry: Entry | None) -> bool:
    """Whether a replica has an entry, and will go on having it: one that is damaged elsewhere may begin anew."""
    return (
        entry is not None
        and is_same_entry(entry, disk.synced[group].entry(entry.index))
        and not disk.damaged.get(group)
    )


def _has_all_of(other: DurableRaftGroup, mine: DurableRaftGroup) -> bool:
    last = mine.last
    entry = other.entry(last.index)
    return other.anchor.index >= last.index or (entry is not None and entry.hash == last.hash)
