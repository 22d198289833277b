"""Drains nodes that leave: the commands that the controller proposes for that, a few moves at a time.

Its only state is the metadata: the nodes that leave, and the location of each partition. So the next controller
continues where the last one was.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass

from quorumlog.raft.types import NO_NODE
from quorumlog.server.controller.quorum_decisions import refuse_voters
from quorumlog.server.controller.replacement_placement import ReplacementPlacement
from quorumlog.server.controller.replica_assignment import TopicLimits
from quorumlog.server.controller.witness_placement import complete_wish
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import BrokerRecord, PartitionRecord
from quorumlog.v1 import errors_pb2, metadata_log_pb2

#: Maximum number of partitions that are being moved at once because nodes leave. Each leader copies a few of them at a
#: time; more of them would only take longer to cancel.
MOVES_AT_ONCE = 64
#: Interval between checks for the next moves (µs).
CHECK_INTERVAL_US = 500_000


@dataclass(slots=True, frozen=True)
class Move:
    """A partition that must leave a node.

    ``wanted`` are its future nodes, empty if no node can take it; ``witness`` is the node of its witness, NO_NODE if it
    has none.
    """

    partition: PartitionRecord
    wanted: tuple[int, ...]
    witness: int = NO_NODE


class NodeDrain:
    """Plans and proposes the moves that drain nodes.

    Arguments:
        image: the controller's image, read only here.
        voters: returns the current voters of the metadata group.
        patience_us: time after which a proposal that was not applied counts as lost.
    """

    def __init__(
        self, image: MetadataImage, voters: Callable[[], tuple[int, ...]], limits: TopicLimits, patience_us: int
    ) -> None:
        self._image = image
        self._voters = voters
        self._limits = limits
        self._patience_us = patience_us
        self._due = 0
        #: Time at which each proposal counts as lost: by the group of a partition, or None for the quorum.
        self._proposed: dict[int | None, int] = {}

    @property
    def next_deadline(self) -> int | None:
        """Time at which ``due`` must be called (µs); None while no node leaves."""
        return self._due if self._image.departures.is_any_leaving else None

    def due(self, now: int, wall_ms: int) -> list[metadata_log_pb2.MetadataCommand]:
        """Returns the commands to propose now."""
        leaving = self._image.departures.leaving()
        if not leaving or now < self._due:
            return []
        self._due = now + CHECK_INTERVAL_US
        self._proposed = {key: expires for key, expires in self._proposed.items() if now < expires}
        partitions = self._image.partitions
        # A move whose partition has no leader continues when that is back: it must not delay others.
        moving = {
            group for group in self._image.moves.groups() if self._image.available_leader(partitions[group]) != NO_NODE
        }
        room = MOVES_AT_ONCE - len(moving | {group for group in self._proposed if group is not None})
        commands = []
        for broker in leaving:
            for move in self.plan(broker.node_id, broker.successor):
                if room <= 0:
                    break
                # A partition that is being moved to a node that now leaves is sent elsewhere.
                group = move.partition.group
                if move.wanted and group not in self._proposed:
                    body = wish_of(move.partition, move.wanted)
                    body.leaving_node, body.bytes_per_second = broker.node_id, broker.throttle
                    if move.witness != NO_NODE:
                        body.witness = move.witness
                    if not complete_wish(self._image, body):
                        continue
                    commands.append(metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, reassign_replicas=body))
                    self._proposed[group] = now + self._patience_us
                    room -= group not in moving
            voters = self.quorum_after(broker.node_id, broker.successor)
            if voters and None not in self._proposed and self.refuse_quorum(voters) is None:
                request = metadata_log_pb2.WantQuorum(voters=voters, wishes=self._image.quorum.wishes)
                commands.append(metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, want_quorum=request))
                self._proposed[None] = now + self._patience_us
        return commands

    def plan(self, node_id: int, successor: int = NO_NODE, together: Container[int] = frozenset()) -> Iterator[Move]:
        """Yields the moves that take all replicas from a node: first those of partitions that have a leader.

        Other nodes that leave are replaced in the same move: a move with a dead node among the partition's future nodes
        would never end.

        Arguments:
            successor: the node that takes over the replicas, unless its machine has one of the partition; NO_NODE if
                each goes to the node with the fewest, if possible in a rack without another replica.
            together: nodes that are about to leave, too.
        """
        image = self._image
        on_node = (image.partitions[group] for group in image.replica_index.on(node_id))
        mine = [partition for partition in on_node if node_id in partition.intended_voters]
        if not mine:
            return
        mine.sort(key=lambda each: (image.available_leader(each) == NO_NODE, each.group))
        able = [
            broker
            for broker in image.brokers.values()
            if not broker.fenced and not broker.leaving and broker.node_id != node_id and broker.node_id not in together
        ]
        carried, most = image.replica_index.wanted, self._limits.node_replicas
        heirs = ReplacementPlacement((each for each in able if not each.witness_only), image.brokers, carried, most)
        witnesses = ReplacementPlacement(able, image.brokers, carried, most)
        for partition in mine:
            wanted, replicas = list(partition.intended_voters), len(partition.intended)
            # Neither a replica nor a witness becomes the other, including those that a changed move has left.
            with_data = {*partition.replicas, *partition.target, *partition.former_targets}
            for place, node in enumerate(partition.intended_voters):
                known = image.brokers.get(node)
                if node == node_id or node in together or (known is not None and known.leaving):
                    if place < replicas:
                        heir = heirs.take(wanted, node, successor, partition.witness_hosts)
                    else:
                        heir = witnesses.take(wanted, node, successor, with_data)
                    if heir != NO_NODE:
                        wanted[place] = heir
            witness = wanted[-1] if len(wanted) > replicas else NO_NODE
            yield Move(partition, tuple(wanted[:replicas]) if node_id not in wanted else (), witness)

    def quorum_after(self, node_id: int, successor: int) -> tuple[int, ...]:
        """Returns the voters of the metadata quorum once a successor has taken over a node's vote; empty for no change.
        It does not check whether those could form a quorum.

        A node whose disk was given up has no vote for now, but would get it back: its successor gets it instead.
        """
        before = self._image.quorum.voters or self._voters()
        heir = self._image.brokers.get(successor)
        lost = self._image.lost_disks.by_node.get(node_id)
        has_vote = node_id in before or (lost is not None and lost.voted)
        if heir is None or heir.fenced or heir.leaving or successor in before or not has_vote:
            return ()
        return tuple(sorted({*before, successor} - {node_id}))

    def refuse_quorum(self, voters: tuple[int, ...]) -> errors_pb2.Error | None:
        """Returns the error if the voters after a node's vote was taken over cannot form a metadata quorum; None if
        they can."""
        return refuse_voters(self._image, voters, self._image.quorum.voters or self._voters())

    def quorum_restored(self, broker: BrokerRecord) -> tuple[int, ...]:
        """Returns the voters once a drain is cancelled whose successor was to take over the node's vote, and has not
        yet; empty for no change."""
        wanted = self._image.quorum.voters
        under_way = broker.successor in wanted and broker.node_id not in wanted and broker.node_id in self._voters()
        return tuple(sorted({*wanted, broker.node_id} - {broker.successor})) if under_way else ()


def wish_of(
    partition: PartitionRecord, intended: tuple[int, ...], coming: frozenset[int] = frozenset()
) -> metadata_log_pb2.ReassignReplicas:
    """Returns a command to move a partition, based on its present state. Nodes that lack their replica since a disk was
    lost continue to lack it.

    Arguments:
        intended: the future nodes of its replicas.
        coming: of the nodes that lack theirs, those that get it now.
    """
    lacking = set(partition.intended).difference(partition.wanted, coming)
    replicas = tuple(node for node in intended if node not in lacking)
    returning = intended if len(replicas) < len(intended) else ()
    return metadata_log_pb2.ReassignReplicas(
        group=partition.group, replicas=replicas, wishes=partition.wishes, returning=returning
    )
