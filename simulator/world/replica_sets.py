"""The rest of a Raft group without one of its replicas: is a fault more than quorumlog promises to tolerate?"""

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
    """True if a group continues with all committed entries if a node permanently loses its replica.

    In each configuration of any replica, a sound majority with votes remains. Damage elsewhere is repaired without this
    replica. With a witness, another replica has all entries of this one, which may be the only copy.
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
    """True if a replica can be repaired with another one's entry: the same one; a trace cannot repair an entry with
    data.
    """
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
    """True if some replicas are a majority in each configuration on disk."""
    halves = [half for each in held for half in each.configuration.halves if half]
    return all(len(sound.intersection(half)) > len(half) // 2 for half in halves)


def _has_a_say(process: SimProcess, group: int) -> bool:
    """True if a replica may vote: one that started from scratch may not before it has learned that all its former
    entries are committed. Nor may a node with damaged metadata: it moves its storage aside if it cannot repair them
    before a restart.
    """
    disk, hosted = process.disk, process.replicas.get(group)
    _, votes_from = former_lives(disk.rows).get(group, (0, 0))
    known = disk.synced[group].hard_state.commit if hosted is None else hosted.raft.commit_index
    return group not in disk.broken and not disk.damaged.get(METADATA_GROUP) and known >= votes_from


def _has_whole(disk: SimDisk, group: int, entry: Entry | None) -> bool:
    """True if a replica has an entry, and will keep it: one that is damaged elsewhere may start from scratch."""
    return (
        entry is not None
        and is_same_entry(entry, disk.synced[group].entry(entry.index))
        and not disk.damaged.get(group)
    )


def _has_all_of(other: DurableRaftGroup, mine: DurableRaftGroup) -> bool:
    last = mine.last
    entry = other.entry(last.index)
    return other.anchor.index >= last.index or (entry is not None and entry.hash == last.hash)
