"""Disks that nodes have lost: a part of the metadata image, pure and identical on every node.

A node whose disk is lost has forgotten what it acknowledged. It must not continue under its id as if it remembered, but
the operator wants it back. So its data directory is first given up permanently: no node accepts messages from it. Then
it is removed from every Raft group that it votes in (`controller/disk_replacement.py`). Once nothing names it, another
directory may register under the node's id, and gets back the former one's replicas, as a learner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from quorumlog.server.metadata.records import ApplyResult, BrokerRecord, PartitionRecord
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import admin_pb2, errors_pb2, metadata_log_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: Maximum number of disks that one node may lose. Each is refused permanently, which takes memory.
MAX_LOST = 256


@dataclass(slots=True)
class LostDisk:
    """The lost disks of one node.

    Arguments:
        directories: its former data directories, the oldest first.
        lost_index: of the entry that gave up the newest of them.
        voted: the node must vote in the metadata quorum again.
        throttle: bytes per second that each node sends of the replicas to restore; 0: no limit.
    """

    directories: tuple[str, ...] = ()
    lost_index: int = 0
    voted: bool = False
    throttle: int = 0


class LostDisks:
    """The disks that were given up.

    Arguments:
        brokers: the registered nodes, by id.
        partitions: all partitions, by group.

    Attributes:
        by_node: the lost disks of each node.
        lost_index: of the newest entry that gave up a disk; 0 if none did.
    """

    def __init__(self, brokers: Mapping[int, BrokerRecord], partitions: Mapping[int, PartitionRecord]) -> None:
        self._brokers = brokers
        self._partitions = partitions
        self.by_node: dict[int, LostDisk] = {}
        self.lost_index = 0

    def restored(self, records: Iterable[metadata_log_pb2.LostDisks]) -> None:
        """Loads the lost disks from a snapshot."""
        for each in records:
            self.by_node[each.node_id] = LostDisk(
                tuple(each.directory_ids), each.lost_index, each.voted, each.bytes_per_second
            )
        self.lost_index = max((each.lost_index for each in self.by_node.values()), default=0)

    def records(self) -> list[metadata_log_pb2.LostDisks]:
        """Returns the lost disks in the form of a snapshot."""
        return [
            metadata_log_pb2.LostDisks(
                node_id=node,
                directory_ids=each.directories,
                lost_index=each.lost_index,
                voted=each.voted,
                bytes_per_second=each.throttle,
            )
            for node, each in sorted(self.by_node.items())
        ]

    def is_given_up(self, node_id: int, directory_id: str) -> bool:
        """True if a node's data directory was given up, so that its messages must be ignored."""
        lost = self.by_node.get(node_id)
        return lost is not None and directory_id in lost.directories

    def refuse(self, node_id: int, directory_id: str) -> str | None:
        """Returns why a node may not take part with a data directory, in one line; None if it may."""
        if not self.is_given_up(node_id, directory_id):
            return None
        return (
            f"data directory {directory_id} of node {node_id} was given up as lost (quorumlog nodes replace {node_id}"
            f" --with {node_id}): start the node with an empty one"
        )

    def returning(self) -> list[PartitionRecord]:
        """Returns the partitions with a replica that is missing because of a lost disk."""
        return [each for each in self._partitions.values() if each.returning] if self.by_node else []

    def missing(self) -> Counter[int]:
        """Returns how many replicas each node has yet to get back: those that are missing, and those being copied."""
        if not self.by_node:
            return Counter()
        return Counter(
            node
            for each in self._partitions.values()
            for node in each.intended
            if node in self.by_node and node not in each.replicas
        )

    def replace(self, index: int, command: metadata_log_pb2.ReplaceDisk, electors: Iterable[int]) -> ApplyResult:
        """Gives up a disk, reinstates it, or frees its place for another.

        Arguments:
            index: of the entry.
            electors: the wanted voters of the metadata quorum, if they were ever changed.
        """
        broker = self._brokers.get(command.node_id)
        if broker is None or broker.registration.directory_id != command.directory_id:
            problem = f"node {command.node_id} is another one by now, or none: look at the nodes again"
            return _replaced(error(ErrorCode.INVALID_REQUEST, problem))
        if command.state == metadata_log_pb2.DISK_STATE_LOST:
            problem_of_loss = self.refuse_loss(broker)
            if problem_of_loss is None and not broker.is_lost:
                self._give_up(index, broker, command.voted)
            if problem_of_loss is None:
                self.by_node[broker.node_id].throttle = command.bytes_per_second
            return _replaced(problem_of_loss)
        if command.state == metadata_log_pb2.DISK_STATE_VACANT:
            named = any(broker.node_id in each.hosts for each in self._partitions.values())
            if broker.is_lost and not named and broker.node_id not in set(electors):
                broker.disk = metadata_log_pb2.DISK_STATE_VACANT
            return _replaced(None)
        if broker.is_vacant:
            problem = f"node {broker.node_id} has lost its place already: start it with an empty data directory"
            return _replaced(error(ErrorCode.INVALID_REQUEST, problem))
        if broker.is_lost:
            lost = self.by_node[broker.node_id]
            lost.directories = lost.directories[:-1]
            broker.disk = metadata_log_pb2.DISK_STATE_UNSPECIFIED
        return _replaced(None)

    def _give_up(self, index: int, broker: BrokerRecord, voted: bool) -> None:
        lost = self.by_node.setdefault(broker.node_id, LostDisk())
        lost.directories = (*lost.directories, broker.registration.directory_id)
        lost.lost_index = self.lost_index = index
        # One that was lost again before it had its vote back must still get it.
        lost.voted = lost.voted or voted
        broker.disk = metadata_log_pb2.DISK_STATE_LOST
        # Messages that a process of that directory may still send are of a past epoch.
        broker.epoch = index

    def refuse_loss(self, broker: BrokerRecord) -> errors_pb2.Error | None:
        """Returns the error if the disk of a node cannot be given up, or None."""
        node, lost = broker.node_id, self.by_node.get(broker.node_id)
        if not broker.fenced:
            problem = (
                f"node {node} is up, with its data: only the disk of a node that is down can be given up; if it has"
                " just stopped, try again in a few seconds"
            )
        elif broker.leaving:
            problem = (
                f"node {node} is being drained, which replaces it by others: wait for that, or call it off first"
                f" (quorumlog nodes undrain {node})"
            )
        elif lost is not None and not broker.is_lost and len(lost.directories) >= MAX_LOST:
            problem = f"node {node} has lost {MAX_LOST} disks: let another node take over (quorumlog nodes replace)"
        else:
            return None
        return error(ErrorCode.INVALID_REQUEST, problem)

    def has_voters(self, voters: Iterable[int], *, replaces_disk: bool) -> None:
        """Records a change of the wanted voters of the metadata quorum.

        Arguments:
            replaces_disk: True if it is a step of replacing a disk; otherwise an operator has chosen the voters.
        """
        for node, lost in self.by_node.items():
            if not replaces_disk or node in voters:
                lost.voted = False


def _replaced(problem: errors_pb2.Error | None) -> ApplyResult:
    response = admin_pb2.AlterNodeResponse(error=problem)
    return ApplyResult(peer_pb2.ControllerResponse(alter_node=response), brokers_changed=problem is None)
