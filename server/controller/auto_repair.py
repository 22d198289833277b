"""Automatic moves of the controller, where the settings enable them: towards balance, and off nodes that have been down
for long. Both are off by default: moving data costs disk and network, and an operator may decide better."""

from __future__ import annotations

from collections.abc import Mapping

from quorumlog.raft.types import NO_NODE
from quorumlog.server.config.options import RepairOptions
from quorumlog.server.controller.node_drain import MOVES_AT_ONCE, NodeDrain, wish_of
from quorumlog.server.controller.rebalancing import Rebalancing
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import SECOND_FEATURE_LEVEL, PartitionRecord
from quorumlog.server.step.deadlines import earlier
from quorumlog.v1 import metadata_log_pb2

#: Maximum number of partitions that one balancing pass changes. The next pass continues.
BALANCED_AT_ONCE = 20
#: Interval between checks for nodes that have been down for too long (µs).
CHECK_INTERVAL_US = 1_000_000


class AutoRepair:
    """Proposes moves that no client has requested.

    A controller counts from its own start: a newly elected one gives a node that is down its whole time again, and does
    not balance before a whole interval has passed.

    Arguments:
        image: the controller's image, read only here.
        sizes: sizes of the logs of partitions in bytes, by group, as far as they are known.
        evacuation: plans the drain of a node.
        patience_us: time after which a proposal that was not applied counts as lost.
    """

    def __init__(
        self,
        image: MetadataImage,
        sizes: Mapping[int, int],
        evacuation: NodeDrain,
        options: RepairOptions,
        patience_us: int,
        now: int,
    ) -> None:
        self._image = image
        self._sizes = sizes
        self._evacuation = evacuation
        self._options = options
        self._patience_us = patience_us
        self._balance_due = now + options.rebalance_interval_us
        self._look_due = now
        #: Time since when each node has been down.
        self._gone_since: dict[int, int] = {}
        #: Time at which each proposal counts as lost, by group.
        self._proposed: dict[int, int] = {}

    @property
    def next_deadline(self) -> int | None:
        """Time at which ``due`` must be called (µs); None if neither kind of move is enabled."""
        return earlier(
            self._balance_due if self._options.rebalance_interval_us else None,
            self._look_due if self._options.recovery_after_us else None,
        )

    def due(self, now: int, wall_ms: int) -> list[metadata_log_pb2.MetadataCommand]:
        """Returns the commands to propose now."""
        commands = []
        if self._options.recovery_after_us and now >= self._look_due:
            self._look_due = now + CHECK_INTERVAL_US
            commands += self._recover(now, wall_ms)
        if self._options.rebalance_interval_us and now >= self._balance_due:
            self._balance_due = now + self._options.rebalance_interval_us
            commands += self._balance(wall_ms)
        return commands

    def _balance(self, wall_ms: int) -> list[metadata_log_pb2.MetadataCommand]:
        """Returns a few moves, while all nodes are up and no other move is in progress: a missing node may return."""
        image = self._image
        busy = image.moves.groups() or any(image.replica_index.on(each.node_id) for each in image.departures.leaving())
        if busy or image.feature_level < SECOND_FEATURE_LEVEL or any(each.fenced for each in image.brokers.values()):
            return []
        plan = Rebalancing(image, self._sizes, BALANCED_AT_ONCE)
        return [_command(wall_ms, partition, wanted) for partition, wanted in plan.moves()]

    def _recover(self, now: int, wall_ms: int) -> list[metadata_log_pb2.MetadataCommand]:
        """Returns moves off nodes that have been down for too long. None while half of the nodes are down: then the
        cause is the network, or the power, and their disks are intact."""
        image, index = self._image, self._image.replica_index
        # A node whose disk is being replaced gets its replicas back.
        gone = [node for node, broker in image.brokers.items() if broker.fenced and not broker.is_lost]
        self._gone_since = {node: self._gone_since.get(node, now) for node in gone}
        self._proposed = {group: expires for group, expires in self._proposed.items() if now < expires}
        if not gone or 2 * len(gone) >= len(image.brokers) or image.feature_level < SECOND_FEATURE_LEVEL:
            return []
        room = MOVES_AT_ONCE - len(image.moves.groups()) - len(self._proposed)
        commands = []
        for node in gone:
            if now - self._gone_since[node] < self._options.recovery_after_us or not index.on(node):
                continue
            for move in self._evacuation.plan(node):
                if room <= 0:
                    break
                group = move.partition.group
                waits = move.partition.is_moving or move.partition.returning
                if move.wanted and group not in self._proposed and not waits:
                    commands.append(_command(wall_ms, move.partition, move.wanted, move.witness))
                    self._proposed[group] = now + self._patience_us
                    room -= 1
        return commands


def _command(
    wall_ms: int, partition: PartitionRecord, wanted: tuple[int, ...], witness: int = NO_NODE
) -> metadata_log_pb2.MetadataCommand:
    body = wish_of(partition, wanted)
    if witness != NO_NODE:
        body.witness = witness
    return metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, reassign_replicas=body)
