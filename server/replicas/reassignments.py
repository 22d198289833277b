"""Moves partitions to other nodes: the part of the nodes that lead them.

A reassignment has no state of its own. Its next step follows from the replicas wanted by the metadata and from the
group's configuration, so a leader that restarts, or a new one, continues where the last one was:

1. nodes that get a replica become learners, and receive the log; 2. once all of them have caught up, a leader that does
not stay transfers leadership to one that does; 3. a replica that will be the only copy has read all its entries (see
``last_copy``); 4. the leader replaces the voters, by way of the joint configuration, which Raft leaves automatically;
5. once every remaining voter has that on disk, the controller is notified, and the removed replicas are destroyed.
"""

from __future__ import annotations

import contextlib

from quorumlog.raft.errors import NotLeaderError, ProposalRefusedError
from quorumlog.raft.group import RaftGroup
from quorumlog.raft.progress import ProgressState
from quorumlog.raft.types import NO_NODE, Configuration
from quorumlog.server.config.options import NodeOptions
from quorumlog.server.hosting.partition_replica import PartitionReplica
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.metadata.controller_client import ControllerClient
from quorumlog.server.metadata.records import PartitionRecord
from quorumlog.server.replicas.broker import Broker
from quorumlog.server.replicas.replicas import Replicas
from quorumlog.server.replicas.sole_copy_check import LastCopyCheck
from quorumlog.server.step.events import EventLog
from quorumlog.server.step.node_service import ServiceHooks
from quorumlog.v1 import peer_pb2

#: Interval between checks of a reassignment (µs). A follower that has what the leader had at the last check counts as
#: caught up.
CHECK_INTERVAL_US = 100_000
#: Maximum number of partitions to which one leader adds replicas at once: each copies a whole log.
MAX_CATCHING_UP = 4


def _aim_of(record: PartitionRecord) -> Configuration:
    """Returns the configuration at the end of the reassignment."""
    witness = record.wanted_witness
    if witness == NO_NODE:
        return Configuration(record.wanted)
    return Configuration((*record.wanted, witness), witnesses=(witness,))


class Reassignments:
    """Advances the reassignments of the partitions that this node leads."""

    def __init__(
        self,
        options: NodeOptions,
        host: RaftHost,
        replicas: Replicas,
        broker: Broker,
        client: ControllerClient,
        last_copy: LastCopyCheck,
        log: EventLog,
    ) -> None:
        self._options = options
        self._host = host
        self._replicas = replicas
        self._broker = broker
        self._client = client
        self._last_copy = last_copy
        self._log = log
        self._due = 0
        self._telling: set[int] = set()
        #: End of the log of a led group at the last check, with the term of that.
        self._marks: dict[int, tuple[int, int]] = {}

    def register(self, hooks: ServiceHooks) -> None:
        hooks.on_time(self.on_time)
        hooks.deadline(self)

    @property
    def next_deadline(self) -> int | None:
        """Time at which ``on_time`` is due; None while no partition is being moved."""
        return self._due if self._replicas.is_anything_moving else None

    def on_time(self, now: int, wall_ms: int) -> None:
        """Takes each reassignment that this node leads a step further."""
        if now < self._due or not self._replicas.is_anything_moving:
            return
        self._due = now + CHECK_INTERVAL_US
        moving = self._replicas.moving()
        # Those that are copying already count first; the remaining limit is for those that may start.
        catching_up = sum(
            bool(partition is not None and partition.raft.is_leader and partition.raft.configuration.learners)
            for _, partition in moving
        )
        marks: dict[int, tuple[int, int]] = {}
        for record, partition in moving:
            if partition is None or not self._may_move(record, partition):
                continue
            raft = partition.raft
            # Refused while an earlier change is not applied yet, or leadership is being transferred: the next check
            # tries again.
            with contextlib.suppress(NotLeaderError, ProposalRefusedError):
                catching_up += self._advance_move(now, record, raft, may_begin=catching_up < MAX_CATCHING_UP)
            marks[record.group] = (raft.term, raft.last_id.index)
        self._marks = marks
        self._last_copy.forget_all_but(marks)

    def _may_move(self, record: PartitionRecord, partition: PartitionReplica) -> bool:
        """True for a leader that is named in the metadata: its report at the end is compared with them."""
        raft = partition.raft
        known = partition.leads and raft.leads_committed and record.leader_epoch == raft.term
        return known and not raft.is_transferring and not raft.configuration.is_joint

    def _advance_move(self, now: int, record: PartitionRecord, raft: RaftGroup, *, may_begin: bool) -> bool:
        """Takes the next step of one reassignment. Returns True if another copy of the log has started."""
        known, aim = raft.configuration, _aim_of(record)
        wanted = aim.voters
        if known == aim:
            if raft.is_configuration_everywhere:
                self._tell_controller(now, record, raft)
            return False
        learners = tuple(node for node in wanted if node not in known.voters)
        if set(learners) != set(known.learners):
            begins = not set(learners) <= set(known.learners)
            if begins and not may_begin:
                return False
            witnesses = tuple(
                node for node in (*known.witnesses, *aim.witnesses) if node in known.voters or node in learners
            )
            self._propose(now, raft, Configuration(known.voters, learners, witnesses=tuple(dict.fromkeys(witnesses))))
            return begins
        if not self._have_caught_up(record.group, raft, wanted):
            return False
        staying = [node for node in aim.data_voters if node in known.voters]
        if raft.node_id not in wanted and staying:
            raft.transfer_leadership(now, staying[0])
            self._host.touch(record.group)
            return False
        if aim.data_voters == (raft.node_id,) != known.data_voters and not self._last_copy.is_whole(raft):
            return False
        self._propose(now, raft, aim)
        return False

    def _propose(self, now: int, raft: RaftGroup, configuration: Configuration) -> None:
        raft.propose_configuration(now, configuration)
        self._log(
            "info", "replicas_change", group=raft.group, voters=list(configuration.voters),
            learners=list(configuration.learners),
        )  # fmt: skip
        self._host.touch(raft.group)

    def _have_caught_up(self, group: int, raft: RaftGroup, wanted: tuple[int, ...]) -> bool:
        """True if all of these nodes have what this leader had at the last check: with a majority of them down, or far
        behind, the group could commit nothing."""
        term, mark = self._marks.get(group, (0, 0))
        others = [raft.progress[node] for node in wanted if node != raft.node_id]
        return term == raft.term and all(
            progress.state is ProgressState.REPLICATE and progress.match_index >= mark for progress in others
        )

    def _tell_controller(self, now: int, record: PartitionRecord, raft: RaftGroup) -> None:
        group = record.group
        if group in self._telling or not self._broker.registered:
            return
        self._telling.add(group)

        def answered(response: peer_pb2.ControllerResponse | None) -> None:
            # The metadata will contain the result; if not, the next check reports it again.
            self._telling.discard(group)

        moved = peer_pb2.ReplicasMoved(
            node_id=self._options.node_id,
            broker_epoch=self._broker.epoch,
            group=group,
            leader_epoch=raft.term,
            replicas=raft.configuration.data_voters,
            witness=next(iter(raft.configuration.witnesses), None),
            log_index=raft.applied_index,
            wish=record.wishes,
        )
        deadline = now + self._options.controller_request_timeout_us
        self._client.ask(deadline, peer_pb2.ControllerRequest(replicas_moved=moved), answered)
