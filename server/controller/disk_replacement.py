"""Replaces lost disks: the commands that the controller proposes for that, step by step.

Its only state is the metadata, so the next controller continues where the last one was:

1. every partition with a replica on the disk continues without it, and so does the metadata quorum; 2. once nothing
names the node any longer, its place is vacant, and another data directory may register; 3. each partition gets its
replica back, as a new one, and the metadata quorum its voter.

A replica only returns when every other node of its partition has stored the loss durably. A node that has not might
still accept the vote of the former disk, and another one that of the new disk: two leaders in one term.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from quorumlog.raft.types import NO_NODE, Configuration
from quorumlog.server.controller.broker_liveness import BrokerLiveness
from quorumlog.server.controller.node_drain import CHECK_INTERVAL_US, MOVES_AT_ONCE, wish_of
from quorumlog.server.controller.witness_placement import complete_wish
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import METADATA_GROUP, BrokerRecord, PartitionRecord
from quorumlog.v1 import metadata_log_pb2

_Body = metadata_log_pb2.ReassignReplicas | metadata_log_pb2.WantQuorum | metadata_log_pb2.ReplaceDisk

#: Identity of a proposal: its kind, its target, and the number of changes before it.
_Key = tuple[str, int, int]


@dataclass(slots=True, frozen=True)
class LossPlan:
    """The consequences of the loss of a node's disk.

    Arguments:
        replicas: partitions of which the node needs a new copy.
        without_majority: those of them that the loss leaves without a majority of their replicas.
        with_witness: those of them that have a witness: the remaining voters can elect no leader without the node.
        voters: the voters of the metadata quorum in the end; empty if the node has no vote.
        has_voters: True if a majority of them is left in the meantime.
    """

    replicas: tuple[PartitionRecord, ...]
    without_majority: tuple[PartitionRecord, ...]
    with_witness: tuple[PartitionRecord, ...]
    voters: tuple[int, ...]
    has_voters: bool


class DiskReplacement:
    """Plans and proposes the replacement of lost disks.

    Arguments:
        image: the controller's image, read only here.
        members: returns the current members of the metadata group.
        liveness: tracks which losses each node has stored.
        patience_us: time after which a proposal that was not applied counts as lost.
    """

    def __init__(
        self,
        image: MetadataImage,
        members: Callable[[], Configuration],
        liveness: BrokerLiveness,
        patience_us: int,
    ) -> None:
        self._image = image
        self._members = members
        self._liveness = liveness
        self._patience_us = patience_us
        self._due = 0
        #: Time at which each proposal counts as lost, by its kind and its base.
        self._proposed: dict[_Key, int] = {}
        #: Nodes whose loss was granted, and may be in the log without being applied: time of the grant (ms since the
        #: epoch).
        self._granted: dict[int, int] = {}

    @property
    def next_deadline(self) -> int | None:
        """Time at which ``due`` must be called (µs); None while no disk has ever been lost."""
        return self._due if self._image.lost_disks.by_node else None

    def plan(self, wall_ms: int, node_id: int) -> LossPlan:
        """Returns the consequences of the loss of a node's disk."""
        image = self._image
        gone = {node_id} | {node for node, broker in image.brokers.items() if broker.is_lost}
        gone.update(
            node for node, granted in self._granted.items() if abs(wall_ms - granted) * 1000 < self._patience_us
        )
        mine = [each for each in image.partitions.values() if node_id in each.hosts or node_id in each.returning]
        mine.sort(key=lambda each: each.group)
        stuck = [each for each in mine if not (_is_left(each.replicas, gone) and _is_left(each.target, gone))]
        before = image.quorum.voters or self._members().electors
        lost = image.lost_disks.by_node.get(node_id)
        votes = node_id in before or (lost is not None and lost.voted)
        voters = tuple(sorted({*before, node_id})) if votes else ()
        # Not the majority of the future voters: the current voters decide on the change.
        has_voters = all(_is_left(tuple(half), gone) for half in self._members().halves)
        witnessed = [each for each in mine if each.witness_hosts]
        return LossPlan(tuple(mine), tuple(stuck), tuple(witnessed), voters, has_voters)

    def grant(self, wall_ms: int, node_id: int) -> None:
        """Records that the loss of a node's disk is about to be proposed. The next one is judged as if it were applied:
        nodes that have moved their storage aside request it automatically, and may do so at the same time."""
        self._granted[node_id] = wall_ms

    def due(self, now: int, wall_ms: int) -> list[metadata_log_pb2.MetadataCommand]:
        """Returns the commands to propose now."""
        image = self._image
        if not image.lost_disks.by_node or now < self._due:
            return []
        self._due = now + CHECK_INTERVAL_US
        self._proposed = {key: expires for key, expires in self._proposed.items() if now < expires}
        lost = [broker for _, broker in sorted(image.brokers.items()) if broker.is_lost and not broker.is_vacant]
        bodies: list[_Body] = []
        if lost:
            bodies += self._shrinks(lost)
            bodies += self._vacancies(lost)
        bodies += self._returns()
        bodies += self._quorum()
        commands = []
        for body in bodies:
            key = _key(body)
            if key not in self._proposed:
                self._proposed[key] = now + self._patience_us
                commands.append(_command(wall_ms, body))
        return commands

    def _shrinks(self, lost: list[BrokerRecord]) -> Iterator[_Body]:
        gone = {broker.node_id for broker in lost}
        for partition in self._image.partitions.values():
            missing = gone.intersection(partition.wanted)
            left = tuple(node for node in partition.wanted if node not in gone)
            if missing and left and not partition.witness_hosts:
                yield metadata_log_pb2.ReassignReplicas(
                    group=partition.group,
                    replicas=left,
                    wishes=partition.wishes,
                    returning=partition.intended,
                    lost_node=min(missing),
                )

    def _vacancies(self, lost: list[BrokerRecord]) -> Iterator[_Body]:
        """Yields commands that free the places of nodes that no partition and no member of the metadata group names.
        (As a member its progress would be taken over: the leader would believe that the new directory has the entries
        of the former one.)"""
        image = self._image
        named = {node for each in image.partitions.values() for node in each.hosts}
        named.update(image.quorum.voters, self._members().members)
        for broker in lost:
            if broker.node_id not in named:
                yield metadata_log_pb2.ReplaceDisk(
                    node_id=broker.node_id,
                    directory_id=broker.registration.directory_id,
                    state=metadata_log_pb2.DISK_STATE_VACANT,
                )

    def _returns(self) -> Iterator[_Body]:
        image = self._image
        room = MOVES_AT_ONCE - sum(
            image.available_leader(image.partitions[group]) != NO_NODE for group in image.moves.groups()
        )
        for partition in image.lost_disks.returning():
            if room <= 0:
                break
            coming = frozenset(
                node for node in partition.returning if node not in partition.wanted and self._may_return(node)
            )
            if coming and not partition.is_moving and self._know_of_loss(partition, coming):
                request = self._return_of(partition, coming)
                if request is not None:
                    yield request
                    room -= 1

    def _return_of(
        self, partition: PartitionRecord, coming: frozenset[int]
    ) -> metadata_log_pb2.ReassignReplicas | None:
        """Returns a command that gives these nodes their replicas, or the first that can have one if not all can. None
        while there is no node for the witness.

        The only node for the witness may be the one that kept a copy for all of them: it has to leave the partition
        first, and another one needs the copy before.
        """
        one_by_one = (frozenset({node}) for node in partition.returning if node in coming)
        for nodes in (coming, *one_by_one):
            request = wish_of(partition, partition.returning, nodes)
            request.bytes_per_second = self._throttle(nodes)
            if complete_wish(self._image, request):
                return request
        return None

    def _may_return(self, node_id: int) -> bool:
        broker = self._image.brokers.get(node_id)
        return broker is not None and not broker.is_lost and not broker.fenced and not broker.leaving

    def _throttle(self, coming: frozenset[int]) -> int:
        """Returns the lowest of the limits that apply to the replicas these nodes get back; 0 for none."""
        lost = self._image.lost_disks.by_node
        limits = (lost[node].throttle for node in coming if node in lost)
        return min((limit for limit in limits if limit), default=0)

    def _know_of_loss(self, partition: PartitionRecord, coming: frozenset[int]) -> bool:
        lost = self._image.lost_disks.by_node
        newest = max((lost[node].lost_index for node in coming if node in lost), default=0)
        return all(self._liveness.knows_of_loss(node, newest) for node in partition.replicas)

    def _quorum(self) -> Iterator[_Body]:
        """Yields the change of the metadata quorum that removes the voters with lost disks, and restores the votes of
        those that have new ones."""
        image = self._image
        before = set(image.quorum.voters or self._members().electors)
        gone = {node for node, broker in image.brokers.items() if broker.is_lost}
        back = {node for node, lost in image.lost_disks.by_node.items() if lost.voted and self._may_return(node)}
        # If only lost nodes were to vote, the current voters continue.
        left = before.difference(gone) or set(self._members().electors).difference(gone)
        wanted = left | back
        if wanted and wanted != before:
            yield metadata_log_pb2.WantQuorum(voters=sorted(wanted), wishes=image.quorum.wishes, replaces_disk=True)


def _is_left(voters: tuple[int, ...], gone: set[int]) -> bool:
    """True if a majority of the voters remains, or if there are no voters."""
    return not voters or 2 * len([node for node in voters if node not in gone]) > len(voters)


def _key(body: _Body) -> _Key:
    match body:
        case metadata_log_pb2.ReassignReplicas():
            return ("partition", body.group, body.wishes)
        case metadata_log_pb2.WantQuorum():
            return ("quorum", METADATA_GROUP, body.wishes)
        case metadata_log_pb2.ReplaceDisk():
            return (body.directory_id, body.node_id, 0)


def _command(wall_ms: int, body: _Body) -> metadata_log_pb2.MetadataCommand:
    match body:
        case metadata_log_pb2.ReassignReplicas():
            return metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, reassign_replicas=body)
        case metadata_log_pb2.WantQuorum():
            return metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, want_quorum=body)
        case metadata_log_pb2.ReplaceDisk():
            return metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, replace_disk=body)
