"""Nodes that leave the cluster: a part of the metadata image, pure and identical on every node.

A node's record contains that it must be emptied, so that every controller continues with it
(`controller/evacuation.py`). A node is removed once nothing names it, and its id is never used again: otherwise another
disk would be credited with what the former one had acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from quorumlog.raft.types import NO_NODE
from quorumlog.server.metadata.quorum import WantedQuorum
from quorumlog.server.metadata.records import ApplyResult, BrokerRecord, PartitionRecord
from quorumlog.server.metadata.replica_index import ReplicaIndex
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import admin_pb2, errors_pb2, metadata_log_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode


class Departures:
    """Nodes that are leaving, and those that have left.

    Arguments:
        brokers: the registered nodes, by id; removed nodes are taken out.
        partitions: all partitions, by group.
        index: of the partitions on each node.

    Attributes:
        removed: the data directory of each removed node, by node id.
        is_any_leaving: True if a node must be emptied.
    """

    def __init__(
        self, brokers: dict[int, BrokerRecord], partitions: Mapping[int, PartitionRecord], index: ReplicaIndex
    ) -> None:
        self._brokers = brokers
        self._partitions = partitions
        self._index = index
        self.removed: dict[int, str] = {}
        self.is_any_leaving = False

    def restored(self, removed: dict[int, str]) -> None:
        """Loads the removed nodes from a snapshot."""
        self.removed = removed
        self._count()

    def _count(self) -> None:
        # Read in every step of a node, which must not iterate over all nodes for it.
        self.is_any_leaving = any(broker.leaving for broker in self._brokers.values())

    def leaving(self) -> list[BrokerRecord]:
        """Returns the nodes that must be emptied."""
        return [broker for _, broker in sorted(self._brokers.items()) if broker.leaving]

    def refuse_removed(self, node_id: int) -> errors_pb2.Error | None:
        """Returns the error if a node was removed and may not register, or None."""
        if node_id not in self.removed:
            return None
        problem = (
            f"node {node_id} was removed from the cluster: start it with an empty data directory and a node id that was"
            " never used"
        )
        return error(ErrorCode.DUPLICATE_BROKER_REGISTRATION, problem)

    def refuse_replicas(self, nodes: Iterable[int]) -> errors_pb2.Error | None:
        """Returns the error if partitions cannot have replicas on some nodes, because one was removed in the meantime.

        The replicas would never exist, and their votes would be missing.
        """
        gone = next((node for node in nodes if node in self.removed), None)
        if gone is None:
            return None
        problem = f"node {gone} has just been removed from the cluster: choose another"
        return error(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)

    def want(self, command: metadata_log_pb2.WantNode) -> ApplyResult:
        """Marks a node as leaving, or as staying."""
        broker = self._known(command.node_id, command.directory_id)
        if broker is None:
            return _altered(_gone(command.node_id))
        heir = self._brokers.get(command.successor) if command.HasField("successor") else None
        if command.leaving and command.HasField("successor") and (heir is None or heir.leaving):
            problem = f"node {command.successor} cannot take over: it is leaving itself, or is gone"
            return _altered(error(ErrorCode.INVALID_REQUEST, problem))
        if command.leaving and broker.is_lost and not broker.is_vacant:
            # Its replicas are being taken away: where the others belong is only known once that is done.
            return _altered(error(ErrorCode.INVALID_REQUEST, still_named(broker.node_id)))
        broker.leaving = command.leaving
        broker.successor = command.successor if command.leaving and command.HasField("successor") else NO_NODE
        broker.throttle = command.bytes_per_second
        if command.leaving:
            self._throttle_what_leaves(broker)
        self._count()
        return _altered(None)

    def _throttle_what_leaves(self, broker: BrokerRecord) -> None:
        """Applies a node's throttle to its moves in progress, too: a drain is slowed down at once, not after their
        end."""
        node = broker.node_id
        for group in self._index.on(node):
            partition = self._partitions[group]
            if partition.is_moving and node in partition.replicas and node not in partition.target:
                partition.throttle = broker.throttle

    def remove(self, command: metadata_log_pb2.RemoveNode, quorum: WantedQuorum) -> ApplyResult:
        """Removes a node, unless it has returned or something names it by now."""
        broker = self._known(command.node_id, command.directory_id)
        if broker is None:
            return _altered(_gone(command.node_id))
        problem = self.refuse_removal(broker) or self._refuse_voter(broker, quorum)
        if problem is not None:
            return _altered(problem)
        del self._brokers[broker.node_id]
        self.removed[broker.node_id] = command.directory_id
        for other in self._brokers.values():
            if other.successor == broker.node_id:
                other.successor = NO_NODE
        self._count()
        return _altered(None)

    def refuse_removal(self, broker: BrokerRecord) -> errors_pb2.Error | None:
        """Returns the error if a node cannot be removed yet, or None."""
        node = broker.node_id
        on_node = (self._partitions[group] for group in self._index.on(node))
        named = sorted((each.topic.name, each.number) for each in on_node)
        if not broker.fenced:
            problem = f"node {node} is up: stop it first, and empty it before that (quorumlog nodes drain {node})"
        elif named:
            topic, number = named[0]
            problem = (
                f"node {node} has {len(named)} replicas, for example of {topic}-{number}: move them first (quorumlog"
                f" nodes drain {node})"
            )
        else:
            return None
        return error(ErrorCode.INVALID_REQUEST, problem)

    @staticmethod
    def _refuse_voter(broker: BrokerRecord, quorum: WantedQuorum) -> errors_pb2.Error | None:
        if broker.node_id not in quorum.voters:
            return None
        return error(ErrorCode.INVALID_REQUEST, f"node {broker.node_id} is to vote in the metadata quorum by now")

    def _known(self, node_id: int, directory_id: str) -> BrokerRecord | None:
        broker = self._brokers.get(node_id)
        return broker if broker is not None and broker.registration.directory_id == directory_id else None


def still_named(node_id: int) -> str:
    """Returns the message for a node whose disk is still being given up."""
    return (
        f"the disk of node {node_id} is being given up (quorumlog nodes replace {node_id} --with {node_id}): wait until"
        " it no longer has a replica or a vote"
    )


def _gone(node_id: int) -> errors_pb2.Error:
    return error(ErrorCode.INVALID_REQUEST, f"node {node_id} is another one by now, or none: look at the nodes again")


def _altered(problem: errors_pb2.Error | None) -> ApplyResult:
    response = admin_pb2.AlterNodeResponse(error=problem)
    return ApplyResult(peer_pb2.ControllerResponse(alter_node=response), brokers_changed=problem is None)
