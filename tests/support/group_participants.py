"""Consumer groups as participants of transactions, on a leader without Raft under it. The log applies what is proposed
when the test says so, and coordinators of transactions answer what it says."""

from __future__ import annotations

from dataclasses import dataclass, field

from google.protobuf.message import Message

from quorumlog.server.access.access_errors import ClientTopics
from quorumlog.server.config.consumer_group_limits import ConsumerGroupLimits
from quorumlog.server.deciding.decision_queue import CoordinatorCall
from quorumlog.server.deciding.pending_answers import PendingAnswers
from quorumlog.server.deciding.stall_aware_clock import AwakeClock
from quorumlog.server.deciding.transaction_participants import Identity, OnEnlisted, OpenHere, Participant
from quorumlog.server.groups.draft import Draft
from quorumlog.server.groups.group_shard import GROUP_COORDINATORS
from quorumlog.server.groups.group_table import GroupTable
from quorumlog.server.groups.group_transactions import GroupTransactions, TransactionalCommit
from quorumlog.server.groups.shard_leader import LeadershipOptions, ShardLeader
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import THIRD_FEATURE_LEVEL
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2, groups_pb2, peer_pb2
from quorumlog.v1 import metadata_log_pb2 as log
from quorumlog.v1.coordinator_log_pb2 import GroupCommand
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.kafka.control import LogPlace
from tests.support.classic_rig import ImageOfTopics, RaftOfNothing

GROUP = "g"
NAME = "billing"
TOPIC_ID = b"t" * 16
WRITER = Identity(70, 2)
MINUTE_US = 60_000_000


class _AllTopics(ClientTopics):
    """The topics of a client that may read everything."""

    def __init__(self) -> None:
        """Does nothing: no client is asked about."""

    def sees(self, name: str) -> bool:
        return True

    def refuse_reading(self, name: str, absent: object) -> None:
        return None


@dataclass
class _Shard:
    """A coordinator whose commands are applied when the test says so."""

    kind = GROUP_COORDINATORS
    group = 1_000
    leads = True
    raft: RaftOfNothing = field(default_factory=RaftOfNothing)
    table: GroupTable = field(default_factory=GroupTable)
    proposed: list[GroupCommand] = field(default_factory=list)
    leadership: ShardLeader | None = None

    def propose(self, now: int, command: GroupCommand) -> int:
        self.proposed.append(command)
        return len(self.proposed)

    def not_coordinator(self, *, definite: bool) -> errors_pb2.Error:
        return error(ErrorCode.NOT_COORDINATOR, "led elsewhere", definite=definite)

    def not_leader(self) -> errors_pb2.Error:
        return self.not_coordinator(definite=True)


@dataclass
class _Enlisted:
    """A request to enlist a group that is not answered."""

    item: peer_pb2.Enlistment
    term: int
    on_enlisted: OnEnlisted


class GroupParticipants:
    """One leader of groups.

    Attributes:
        requests: enlistments that are not answered yet.
        reads: calls that wait for a confirmation of the leadership.
        woken: how often the leader was woken.
    """

    def __init__(self, level: int = THIRD_FEATURE_LEVEL) -> None:
        image = MetadataImage()
        topic = log.CreateTopic(name="t", topic_id=TOPIC_ID, partitions=[log.ReplicaSet(replicas=[1])] * 4)
        image.apply(1, log.MetadataCommand(create_topic=topic))
        image.feature_level = level
        self.image = ImageOfTopics(image)
        self.clock = AwakeClock(0, 100_000)
        self.shard = _Shard()
        self.leader = self._elected()
        self.requests: list[_Enlisted] = []
        self.reads: list[CoordinatorCall[Draft]] = []
        self.woken = 0
        self.replies: dict[int, Message] = {}
        self._answers = PendingAnswers(self.replies.__setitem__)
        self.transactions = GroupTransactions(self, self.image, lambda: None)  # type: ignore[arg-type]
        self.transactions.enlist_with(self)
        self._calls = 0

    def _elected(self) -> ShardLeader:
        options = LeadershipOptions(ConsumerGroupLimits(), 100, 100, 604_800_000, 1_000_000)
        leader = ShardLeader(self.shard, self.clock, self.image, options)  # type: ignore[arg-type]
        self.shard.leadership = leader
        return leader

    def elect(self) -> None:
        """The same replica leads again, in the next term."""
        self.leader.end()
        self.shard.raft.term += 1
        self.leader = self._elected()

    # -- the coordinators that this node leads --------------------------------------------------------------------

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter([self.leader])

    def keeper_of(self, key: str) -> ShardLeader | errors_pb2.Error:
        return self.leader if self.shard.leads else self.shard.not_leader()

    def wake(self, raft_group: int) -> None:
        assert raft_group == self.shard.group
        self.woken += 1

    def read(self, now: int, leader: ShardLeader, call: CoordinatorCall[Draft]) -> None:
        self.reads.append(call)

    def confirm(self) -> None:
        """A quorum has confirmed the leadership."""
        reads, self.reads = self.reads, []
        for call in reads:
            response = call.decide(self.leader.draft())
            assert response is not None
            call.answer(response)

    # -- the coordinators of transactions -------------------------------------------------------------------------

    def enlist(self, item: peer_pb2.Enlistment, term: int, on_enlisted: OnEnlisted) -> None:
        self.requests.append(_Enlisted(item, term, on_enlisted))

    def enlisted(self, at: int = 10, *, refuse: errors_pb2.Error | None = None) -> errors_pb2.Error | None:
        """Answers the oldest request: the transaction started at an index of the coordinator's log. Returns the error
        that the group answers."""
        asked = self.requests.pop(0)
        identity = Identity(asked.item.identity.producer_id, asked.item.identity.producer_epoch)
        problem = refuse
        if problem is None:
            participant = Participant(b"", 0, asked.item.participant.group_id)
            problem = self.transactions.open(OpenHere(participant, identity, 5, LogPlace(3, at)), asked.term)
        asked.on_enlisted(peer_pb2.EnlistmentResult(error=problem))
        return problem

    def end(
        self, origin: int = 10, decided: int = 20, *, commit: bool = True, producer_id: int = WRITER.producer_id
    ) -> list[errors_pb2.Error | None]:
        """Sends a decision; returns a list that receives the answer."""
        item = peer_pb2.EndTransaction(commit=commit)
        item.identity.producer_id, item.participant.group_id = producer_id, GROUP
        item.origin.term, item.origin.index = 3, origin
        item.decided.term, item.decided.index = 3, decided
        answers: list[errors_pb2.Error | None] = []
        self.transactions.end(item, answers.append)
        return answers

    # -- clients --------------------------------------------------------------------------------------------------

    def commit(
        self, offset: int = 5, identity: Identity = WRITER, *, name: str = NAME, adds: bool = True, connection: int = 0
    ) -> int:
        """Commits offsets in a transaction; returns the number of the call. Without the number of its connection, the
        client needs no fence."""
        self._calls += 1
        request = groups_pb2.CommitOffsetsRequest(
            group_id=GROUP, member_epoch=-1, transactional_id=name, adds_group=adds
        )
        request.producer.producer_id, request.producer.producer_epoch = identity
        request.offsets.add(topic_id=TOPIC_ID, offset=offset, leader_epoch=-1)
        self._answers.expect(self._calls, MINUTE_US, _failed_commit)
        asked = ClientRequest(self._calls, request, connection, connected_us=connection)
        link = self.transactions.connections.of(asked) if connection else None
        call = TransactionalCommit(self._calls, request, self._answers, _AllTopics(), self.leader, link)
        self.transactions.commit(self.leader, call)
        return self._calls

    def outcome(self, call: int) -> str | None:
        """Returns what a commit was answered; None if it was not."""
        reply = self.replies.get(call)
        if reply is None:
            return None
        assert isinstance(reply, groups_pb2.CommitOffsetsResponse)
        return ErrorCode.Name(reply.error.code if reply.HasField("error") else reply.results[0].error.code)

    def decide(self, *, apply: bool = True) -> None:
        """Decides what is queued; applies the command."""
        if self.leader.do_what_is_due() and apply:
            self.apply()

    def apply(self) -> None:
        """Applies the newest command."""
        command = self.shard.proposed[-1]
        changed = self.shard.table.apply(command)
        self.leader.applied(len(self.shard.proposed), self.shard.raft.term, command, changed)

    def committed(self) -> int | None:
        """Returns the committed offset."""
        group = self.shard.table.groups.get(GROUP)
        stored = group.offsets.get((TOPIC_ID, 0)) if group is not None else None
        return stored.offset if stored is not None else None


def _failed_commit(problem: errors_pb2.Error) -> Message:
    return groups_pb2.CommitOffsetsResponse(error=problem)
