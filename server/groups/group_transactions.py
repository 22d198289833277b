"""The consumer groups that this node leads, as participants of transactions: they store offsets as pending, which the
decision on the transaction puts in effect or drops.

The first commit of a transaction waits while its group is enlisted with the coordinator of the transactional id, and
those behind it wait too. Then they are decided as all calls are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.access.access_errors import ClientTopics
from quorumlog.server.deciding.connection_fence import ClientConnection, FencedConnections
from quorumlog.server.deciding.enlistment_queue import EnlistmentQueue
from quorumlog.server.deciding.led_coordinators import LedCoordinators
from quorumlog.server.deciding.pending_answers import PendingAnswers
from quorumlog.server.deciding.transaction_participants import (
    Enlisting,
    Identity,
    OnEnded,
    OpenHere,
    identity_of,
    participant_of,
    place_of,
)
from quorumlog.server.groups.committed_offsets import (
    OffsetDecision,
    check_transaction,
    commit_offsets,
    end_transaction,
    transaction_over,
)
from quorumlog.server.groups.draft import Draft
from quorumlog.server.groups.group_shard import GroupShard
from quorumlog.server.groups.shard_leader import ShardLeader
from quorumlog.server.metadata.image import CurrentImage
from quorumlog.server.metadata.records import THIRD_FEATURE_LEVEL
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import errors_pb2, groups_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode


class _Committer(NamedTuple):
    """A producer that commits offsets of a group in a transaction, in one term of the group's coordinator."""

    group_id: str
    transactional_id: str
    identity: Identity
    term: int


class GroupTransactions:
    """The consumer groups that this node leads, as `TransactionParticipants`.

    Arguments:
        led: the coordinators of consumer groups that this node leads.
        deadline_moved: called when a coordinator has something to decide outside of its own events.

    Attributes:
        connections: those of clients that keep their epoch.
    """

    def __init__(
        self,
        led: LedCoordinators[GroupShard, ShardLeader],
        metadata: CurrentImage,
        deadline_moved: Callable[[], None],
    ) -> None:
        self._led = led
        self._metadata = metadata
        self._deadline_moved = deadline_moved
        self._waiting: EnlistmentQueue | None = None
        self.connections = FencedConnections(deadline_moved)

    def enlist_with(self, enlisting: Enlisting) -> None:
        """Sets the way to the coordinators of transactions. Commits in transactions are refused until then."""
        self._waiting = EnlistmentQueue(enlisting, "commits")

    # -- commits ------------------------------------------------------------------------------------------------------

    def commit(self, leader: ShardLeader, call: TransactionalCommit) -> None:
        """Submits a commit to the leader of its group, once the group takes part in the transaction."""
        request, level = call.request, self._metadata.image.feature_level
        if level < THIRD_FEATURE_LEVEL:
            too_low = f"offsets in transactions need feature level {THIRD_FEATURE_LEVEL}, the cluster is at {level}"
            call.refuse(error(ErrorCode.UNSUPPORTED_VERSION, too_low))
        elif leader.enlisted.transaction_of(call.key, call.identity, request.transactional_id) is not None:
            leader.queue.submit(call)
        elif self._waiting is None:
            call.refuse(error(ErrorCode.COORDINATOR_NOT_AVAILABLE, "this node has just started: try again shortly"))
        else:
            writer = _Committer(call.key, request.transactional_id, call.identity, leader.term)
            item = peer_pb2.Enlistment(
                transactional_id=request.transactional_id,
                identity=request.producer,
                only_confirm=not request.adds_group,
            )
            item.participant.group_id = call.key
            settle = partial(self._settle, leader, call)
            refused = self._waiting.wait(writer, item, leader.term, call.size_bytes, settle)
            if refused is not None:
                call.refuse(refused)

    def _settle(self, leader: ShardLeader, call: TransactionalCommit, problem: errors_pb2.Error | None) -> None:
        """Submits a commit that has waited, or refuses it."""
        if problem is not None:
            call.refuse(problem)
        elif not leader.coordinator.leads or leader.coordinator.leadership is not leader:
            call.refuse(leader.coordinator.not_leader())
        else:
            leader.enlisted.requested_by(call.key, call.identity, call.request.transactional_id)
            leader.queue.submit(call)
            self._wake(leader)

    def _wake(self, leader: ShardLeader) -> None:
        self._led.wake(leader.coordinator.group)
        self._deadline_moved()

    # -- what coordinators of transactions say ------------------------------------------------------------------------

    def open(self, transaction: OpenHere, term: int) -> errors_pb2.Error | None:
        """Opens a transaction in a group; see `TransactionParticipants.open`. The log has it once an offset is
        pending."""
        group_id = transaction.participant.group_id
        leader = self._led.keeper_of(group_id)
        if isinstance(leader, errors_pb2.Error):
            return leader
        if leader.term != term:
            return leader.coordinator.not_coordinator(definite=True)
        group = leader.table.groups.get(group_id)
        refused = check_transaction(group, transaction) if group is not None else None
        if refused is None and not leader.enlisted.open(transaction):
            refused = transaction_over(group_id, transaction.identity.producer_id)
        return refused

    def end(self, decision: peer_pb2.EndTransaction, ended: OnEnded) -> None:
        """Ends a transaction in a group; see `TransactionParticipants.end`."""
        group_id, producer_id = participant_of(decision.participant).group_id, decision.identity.producer_id
        leader = self._led.keeper_of(group_id)
        made = OffsetDecision(place_of(decision.origin), place_of(decision.decided), decision.commit)
        if isinstance(leader, errors_pb2.Error):
            ended(leader)
        elif not leader.enlisted.decided(self._led.clock.awake_us, group_id, producer_id, made.decided):
            busy = "too many decisions have come for groups without pending offsets: send it again"
            ended(error(ErrorCode.SERVER_BUSY, busy))
        else:
            # Commits of the transaction that are still queued are refused from now on: what is pending is in the log.
            confirm = partial(self._confirm, leader)
            leader.queue.submit(_GroupEnding(group_id, producer_id, made, ended, confirm))
            self._wake(leader)

    def _confirm(self, leader: ShardLeader, call: _NothingOpen) -> None:
        self._led.read(self._led.clock.now, leader, call)

    @property
    def are_open(self) -> bool:
        """True if a group that this node leads has pending offsets."""
        return any(leader.table.with_pending for leader in self._led)

    def open_longer_than(self, age_us: int) -> Iterator[OpenHere]:
        """Yields the transactions that have had pending offsets for long in groups that this node leads."""
        now_us = self._led.clock.awake_us
        for leader in self._led:
            if leader.coordinator.leads:
                yield from leader.enlisted.pending_longer_than(now_us, leader.table, age_us)


class TransactionalCommit:
    """A commit of offsets in a transaction.

    Arguments:
        topics: as the client sees them.
        leader: the leader of its group.
        connection: the client's connection; None if it needs no fence.

    Attributes:
        size_bytes: approximate size of the request.
    """

    def __init__(
        self,
        request_id: int,
        request: groups_pb2.CommitOffsetsRequest,
        answers: PendingAnswers,
        topics: ClientTopics,
        leader: ShardLeader,
        connection: ClientConnection | None = None,
    ) -> None:
        self.key = request.group_id
        self.request = request
        self.identity = identity_of(request.producer)
        self.size_bytes = request.ByteSize()
        self._request_id = request_id
        self._answers = answers
        self._topics = topics
        self._leader = leader
        self._connection = connection

    def decide(self, draft: Draft) -> ProtoMessage:
        """Stores the offsets as pending, unless a decision has arrived since the group was enlisted, or the request is
        late."""
        enlisted, name = self._leader.enlisted, self.request.transactional_id
        # This coordinator does not learn when a producer is initialized, but a new instance has another epoch.
        producer = f"{name} (id {self.identity.producer_id}, epoch {self.identity.epoch})"
        refused = self._leader.fence.refusal(producer, self._connection)
        if refused is not None:
            return groups_pb2.CommitOffsetsResponse(error=refused)
        transaction = enlisted.transaction_of(self.key, self.identity, name)
        if transaction is None:
            over = transaction_over(self.key, self.identity.producer_id)
            return groups_pb2.CommitOffsetsResponse(error=over)
        response = commit_offsets(draft, self.request, self._topics, transaction)
        if not response.HasField("error"):
            self._leader.fence.accepted(producer, self._connection)
        return response

    def answer(self, response: ProtoMessage) -> None:
        """Answers the client."""
        self._answers.give(self._request_id, response)

    def refuse(self, problem: errors_pb2.Error) -> None:
        """Answers the client with an error."""
        self._answers.fail(self._request_id, problem)


class _GroupEnding(NamedTuple):
    """A decision on a transaction, for a group.

    Arguments:
        key: the id of the group.
        confirm: answers a call once a quorum has confirmed that this node leads.
    """

    key: str
    producer_id: int
    decision: OffsetDecision
    ended: OnEnded
    confirm: Callable[[_NothingOpen], None]

    def decide(self, draft: Draft) -> ProtoMessage | None:
        ending = end_transaction(draft, self.key, self.producer_id, self.decision)
        if isinstance(ending, errors_pb2.Error):
            return peer_pb2.EndTransactionResult(error=ending)
        if ending:
            return peer_pb2.EndTransactionResult()
        self.confirm(_NothingOpen(self))
        return None

    def answer(self, response: ProtoMessage) -> None:
        assert isinstance(response, peer_pb2.EndTransactionResult)
        self.ended(response.error if response.HasField("error") else None)

    def refuse(self, problem: errors_pb2.Error) -> None:
        self.ended(problem)


class _NothingOpen:
    """The answer that a decision ends nothing in a group, once the leadership is confirmed: a former leader may not
    have the entry with the pending offsets."""

    def __init__(self, ending: _GroupEnding) -> None:
        self.key = ending.key
        self._ending = ending

    def decide(self, draft: Draft) -> ProtoMessage:
        """Checks the applied state: a decision that is sent twice may have found the end of the first one in a draft,
        which is not committed yet."""
        result = peer_pb2.EndTransactionResult()
        if end_transaction(draft, self.key, self._ending.producer_id, self._ending.decision):
            busy = "the decision on the transaction is being written: send it again"
            result.error.CopyFrom(error(ErrorCode.SERVER_BUSY, busy))
        return result

    def answer(self, response: ProtoMessage) -> None:
        """Answers the coordinator of the transaction."""
        self._ending.answer(response)

    def refuse(self, problem: errors_pb2.Error) -> None:
        """Answers it with an error."""
        self._ending.ended(problem)
