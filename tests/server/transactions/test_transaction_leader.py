"""One term of a transaction coordinator: calls, timeouts, markers, holds and the removal of unused ids."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import pytest
from google.protobuf.message import Message
from transaction_rig import INVOICES, NAME, ORDERS, TOPIC, Ids

from quorumlog.raft.types import EntryId
from quorumlog.server.config.transaction_limits import TransactionLimits
from quorumlog.server.deciding import decision_queue
from quorumlog.server.deciding.decision_queue import CoordinatorCall
from quorumlog.server.deciding.pending_answers import PendingAnswers
from quorumlog.server.deciding.stall_aware_clock import AwakeClock
from quorumlog.server.deciding.transaction_participants import Identity, Participant
from quorumlog.server.hosting.partition_replica import PartitionId
from quorumlog.server.step.wire_errors import error
from quorumlog.server.transactions.commit_hold import HOLD_US
from quorumlog.server.transactions.transaction_calls import (
    ClientCall,
    EnlistAnswer,
    EnlistCall,
    ResolveCall,
    TransactionRequest,
    failed_transaction,
)
from quorumlog.server.transactions.transaction_draft import TransactionDraft
from quorumlog.server.transactions.transaction_leader import (
    ENDED_US,
    EXPIRY_US,
    MARKERS_US,
    RETRY_US,
    LeaderServices,
    TransactionLeader,
)
from quorumlog.server.transactions.transaction_record import TransactionalId
from quorumlog.server.transactions.transaction_shard import TRANSACTION_COORDINATORS, check_transactional_id
from quorumlog.server.transactions.transaction_table import TransactionTable
from quorumlog.v1 import errors_pb2, peer_pb2, transactions_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.peer_pb2 import TRANSACTION_STANDING_OPEN
from quorumlog.v1.transaction_log_pb2 import TransactionCommand
from quorumlog.wire.kafka.control import LogPlace

STEP_US = 100_000


@dataclass
class Raft:
    """The state of a Raft group that a coordinator reads."""

    term: int = 3
    is_leader: bool = True
    confirmed_round: int = 0
    commit_index: int = 10
    applied_index: int = 10


@dataclass
class Replica:
    """A replica whose commands are applied when the test requests it."""

    group: int = 7
    name: str = "__transactions-0"
    kind = TRANSACTION_COORDINATORS
    identity: PartitionId = field(default_factory=lambda: PartitionId(b"x" * 16, "__transactions", 4))
    table: TransactionTable = field(default_factory=TransactionTable)
    raft: Raft = field(default_factory=Raft)
    proposed: list[TransactionCommand] = field(default_factory=list)
    takes: bool = True
    place: LogPlace = field(default_factory=lambda: LogPlace(3, 10))
    leader: TransactionLeader | None = None

    def propose(self, now: int, command: TransactionCommand) -> int | None:
        if not self.takes:
            return None
        self.proposed.append(command)
        return self.raft.applied_index + 1

    def not_coordinator(self, *, definite: bool) -> errors_pb2.Error:
        return error(ErrorCode.NOT_COORDINATOR, "led elsewhere", definite=definite)

    def apply(self) -> None:
        """Applies the newest command."""
        self.raft.commit_index = self.raft.applied_index = self.raft.applied_index + 1
        self.place = LogPlace(self.raft.term, self.raft.applied_index)
        changed = self.table.apply(self.proposed[-1], EntryId(self.raft.applied_index, self.raft.term, 0))
        if self.leader is not None:
            self.leader.applied(self.raft.applied_index, self.raft.term, self.proposed[-1], changed)


@dataclass
class Topic:
    """A topic of clients with three partitions."""

    is_internal: bool = False
    partitions: tuple[int, ...] = (0, 1, 2)


@dataclass
class Image:
    """The metadata of the node."""

    applied_index: int = 5
    topics_by_id: dict[bytes, Topic] = field(default_factory=lambda: {TOPIC: Topic()})


class Node:
    """A node that leads one coordinator, its clients, and the leaders of partitions."""

    def __init__(self, limits: TransactionLimits | None = None) -> None:
        self.clock = AwakeClock(0, STEP_US)
        self.replica = Replica()
        self.image = Image()
        self.ids = Ids()
        self.pushed: list[peer_pb2.EndTransaction] = []
        self.lost = False
        self.replies: dict[int, Message] = {}
        self.responses: list[peer_pb2.ControllerResponse] = []
        self.answers = PendingAnswers(self.replies.__setitem__)
        self.numbers = 0
        self.services = LeaderServices(
            self.clock, self, limits or TransactionLimits(), self.ids, self, 100, self._confirm, lambda group: None  # type: ignore[arg-type]
        )  # fmt: skip
        self.leader = self.lead()

    def lead(self) -> TransactionLeader:
        """Starts a term."""
        self.leader = self.replica.leader = TransactionLeader(self.replica, self.services)  # type: ignore[arg-type]
        return self.leader

    def fail_over(self) -> TransactionLeader:
        """Ends the term, and starts the next one."""
        self.leader.end()
        self.replica.raft.term += 1
        return self.lead()

    def _confirm(self, leader: TransactionLeader, call: CoordinatorCall[TransactionDraft]) -> None:
        leader.queue.read(call, self.replica.raft.confirmed_round + 1)

    def confirm(self) -> None:
        """A quorum confirms that this node leads."""
        self.replica.raft.confirmed_round += 1
        self.leader.queue.after_round()

    def leader_of(self, participant: Participant) -> int:
        return 1

    def ask(self, deadline: int, request: peer_pb2.ControllerRequest, on_answer: object, to: int) -> None:
        self.pushed.extend(request.end_transactions.items)
        response = peer_pb2.ControllerResponse()
        response.end_transactions.SetInParent()
        for _ in request.end_transactions.items:
            response.end_transactions.results.add()
        on_answer(None if self.lost else response)  # type: ignore[operator]

    # -- calls ----------------------------------------------------------------------------------------------------

    def call(self, request: TransactionRequest) -> int:
        """Sends a request of a client; returns its number."""
        self.numbers += 1
        self.answers.expect(self.numbers, 1 << 60, lambda problem: failed_transaction(request, problem))
        self.leader.queue.submit(ClientCall(self.numbers, request, self.answers, self.leader))
        return self.numbers

    def init(self, timeout_ms: int = 60_000) -> Identity:
        """Returns the identity of a new instance."""
        request = transactions_pb2.InitTransactionsRequest(transactional_id=NAME, transaction_timeout_ms=timeout_ms)
        number = self.call(request)
        self.step()
        self.replica.apply()
        answer = self.replies[number]
        assert isinstance(answer, transactions_pb2.InitTransactionsResponse), answer
        return Identity(answer.identity.producer_id, answer.identity.producer_epoch)

    def enlist(self, of: Identity, participant: Participant) -> None:
        """Sends a request of a leader to enlist its partition."""
        request = peer_pb2.ControllerRequest(request_id=77)
        item = request.enlist.items.add(transactional_id=NAME)
        item.identity.producer_id, item.identity.producer_epoch = of
        item.participant.topic_id, item.participant.partition = participant.topic_id, participant.number
        gathered = EnlistAnswer(request, self.responses.append)
        self.leader.queue.submit(EnlistCall(item, gathered.results[0], gathered, self.leader))

    def begin(self, of: Identity, participant: Participant = ORDERS) -> LogPlace:
        """Enlists a partition in a new transaction; returns where that started."""
        self.enlist(of, participant)
        self.step()
        self.replica.apply()
        (result,) = self.responses.pop().enlist.results
        assert not result.HasField("error"), result
        return LogPlace(result.place.term, result.place.index)

    def end(self, of: Identity, *, commit: bool = True) -> int:
        request = transactions_pb2.EndTransactionRequest(transactional_id=NAME, commit=commit, raises_epoch=True)
        request.identity.producer_id, request.identity.producer_epoch = of
        return self.call(request)

    @property
    def record(self) -> TransactionalId:
        return self.replica.table.records[NAME]

    def step(self, passed_us: int = 0) -> bool:
        """A step of the node; returns True if it has proposed a command."""
        self.clock.step(self.clock.now + passed_us, self.clock.wall_ms + passed_us // 1_000)
        return self.leader.do_what_is_due()

    def wait(self, passed_us: int) -> bool:
        """Steps of the node; returns True if one has proposed a command."""
        return any(self.step(STEP_US) for _ in range(0, passed_us, STEP_US))


@pytest.fixture
def node() -> Node:
    return Node()


def test_answer_waits_for_the_decision(node: Node) -> None:
    number = node.call(transactions_pb2.InitTransactionsRequest(transactional_id=NAME, transaction_timeout_ms=9))
    assert node.step()
    assert not node.replies
    node.replica.apply()
    assert number in node.replies


def test_place_is_that_of_the_entry(node: Node) -> None:
    origin = node.begin(node.init())
    assert origin == LogPlace(3, 12) == node.record.open.place  # type: ignore[union-attr]


def test_unchanged_answer_waits_for_a_quorum(node: Node) -> None:
    """A former leader must not confirm a participant of a transaction that its successor has decided."""
    producer = node.init()
    origin = node.begin(producer)
    node.enlist(producer, ORDERS)
    assert not node.step()
    assert not node.responses
    node.confirm()
    (result,) = node.responses.pop().enlist.results
    assert (LogPlace(result.place.term, result.place.index), result.coordinator) == (origin, 4)
    node.end(Identity(99, 0))
    node.step()
    node.leader.end()
    assert isinstance(node.replies[node.numbers], transactions_pb2.EndTransactionResponse)
    assert node.replies[node.numbers].error.code == ErrorCode.NOT_COORDINATOR  # type: ignore[attr-defined]


def test_commit_is_answered_with_its_markers(node: Node) -> None:
    producer = node.init()
    node.begin(producer)
    number = node.end(producer)
    node.step()
    node.replica.apply()
    assert number not in node.replies
    assert not node.step(), "the markers are pushed"
    answer = node.replies[number]
    assert isinstance(answer, transactions_pb2.EndTransactionResponse)
    assert answer.markers_committed and answer.identity.producer_epoch == 1
    assert [item.commit for item in node.pushed] == [True]


def test_commit_is_answered_after_half_a_second(node: Node) -> None:
    producer = node.init()
    node.begin(producer)
    node.lost = True
    number = node.end(producer)
    node.step()
    node.replica.apply()
    node.wait(MARKERS_US - STEP_US)
    assert number not in node.replies
    node.wait(2 * STEP_US)
    assert not node.replies[number].markers_committed  # type: ignore[attr-defined]
    assert not node.record.newest.ended  # type: ignore[union-attr]


def test_end_is_recorded_after_a_while(node: Node) -> None:
    producer = node.init()
    node.begin(producer)
    node.end(producer)
    node.step()
    node.replica.apply()
    assert not node.wait(ENDED_US - STEP_US)
    assert node.wait(3 * STEP_US)
    node.replica.apply()
    assert node.record.is_idle
    assert not node.leader.markers.complete


def test_end_is_recorded_with_the_next_decision(node: Node) -> None:
    producer = node.init()
    node.begin(producer)
    node.end(producer)
    node.step()
    node.replica.apply()
    node.step()
    node.begin(Identity(1, 1), INVOICES)
    assert node.record.newest is not None and node.record.newest.ended
    assert not node.wait(3 * ENDED_US), "nothing is left to record"


def test_markers_are_pushed_again_by_the_next_leader(node: Node) -> None:
    producer = node.init()
    node.begin(producer)
    node.lost = True
    node.end(producer)
    node.step()
    node.replica.apply()
    node.step()
    node.lost = False
    node.pushed.clear()
    node.fail_over()
    node.step()
    assert len(node.pushed) == 1
    assert node.leader.markers.complete


def test_timeout_aborts(node: Node) -> None:
    producer = node.init(timeout_ms=2_000)
    node.begin(producer)
    assert not node.wait(1_900_000)
    assert node.wait(200_000)
    node.replica.apply()
    assert node.record.open is None
    assert node.record.newest is not None and not node.record.newest.commit
    assert node.record.producer.identity == Identity(1, 1)


def test_timeout_does_not_count_the_coordinators_own_pause(node: Node) -> None:
    producer = node.init(timeout_ms=2_000)
    node.begin(producer)
    assert not node.step(10_000_000), "the producer could not reach the coordinator"
    assert not node.wait(1_900_000)
    assert node.wait(200_000)


def test_timeout_restarts_with_the_next_leader(node: Node) -> None:
    producer = node.init(timeout_ms=2_000)
    node.begin(producer)
    node.wait(1_500_000)
    node.fail_over()
    assert not node.wait(1_900_000)
    assert node.wait(200_000)


def test_timeout_of_a_decided_transaction_is_forgotten(node: Node) -> None:
    producer = node.init(timeout_ms=2_000)
    node.begin(producer)
    node.wait(1_500_000)
    node.end(producer)
    node.step()
    node.replica.apply()
    node.begin(Identity(1, 1), INVOICES)
    for _ in range(19):
        if node.step(STEP_US):
            node.replica.apply()
    assert node.record.open is not None, "the timeout of the next transaction starts with it"


def test_timeout_waits_for_a_producer_id(node: Node) -> None:
    producer = node.init(timeout_ms=2_000)
    node.begin(producer)
    node.record.producer = dataclasses.replace(node.record.producer, identity=Identity(1, 32_766))
    node.ids.left = 0
    assert not node.wait(2_500_000)
    node.ids.left = 1
    assert node.wait(2 * RETRY_US)
    node.replica.apply()
    assert node.record.producer.identity == Identity(2, 0)


def test_decision_that_raft_refuses_is_made_again(node: Node) -> None:
    producer = node.init(timeout_ms=2_000)
    node.begin(producer)
    node.replica.takes = False
    assert not node.wait(2_500_000)
    node.call(transactions_pb2.InitTransactionsRequest(transactional_id="other", transaction_timeout_ms=9))
    assert not node.wait(300_000)
    assert node.ids.returned
    node.replica.takes = True
    assert node.wait(STEP_US)
    node.replica.apply()
    assert node.record.open is None and "other" in node.replica.table.records


def test_unused_ids_are_removed() -> None:
    node = Node(TransactionLimits(retention_ms=EXPIRY_US // 1_000))
    node.init()
    assert not node.wait(EXPIRY_US - STEP_US)
    assert node.wait(EXPIRY_US + 2 * STEP_US)
    node.replica.apply()
    assert not node.replica.table.records


def test_resolution_is_read_by_a_confirmed_leader(node: Node) -> None:
    producer = node.init()
    origin = node.begin(producer)
    request = peer_pb2.ControllerRequest(request_id=5)
    item = request.resolve_transactions.items.add()
    item.identity.producer_id, item.identity.producer_epoch = producer
    item.place.term, item.place.index = origin
    node.leader.queue.read(ResolveCall(request, node.responses.append, node.leader), 1)
    node.leader.queue.after_round()
    assert not node.responses
    node.confirm()
    (response,) = node.responses
    assert (response.request_id, response.resolve_transactions.results[0].standing) == (5, TRANSACTION_STANDING_OPEN)


def test_internal_topics_take_no_part(node: Node) -> None:
    producer = node.init()
    node.image.topics_by_id[TOPIC].is_internal = True
    node.enlist(producer, ORDERS)
    node.step()
    node.confirm()
    (result,) = node.responses.pop().enlist.results
    assert result.error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_ids_have_limits() -> None:
    for wrong in ("", "x" * 250, "a\nb"):
        refused = check_transactional_id(wrong)
        assert refused is not None and refused.code == ErrorCode.INVALID_REQUEST
    assert check_transactional_id("x" * 249) is None


# -- holds ------------------------------------------------------------------------------------------------------------

HOLD_ID = b"backup"


def open_transactions(node: Node, *names: str) -> list[transactions_pb2.EndTransactionRequest]:
    """Starts a transaction under each name; returns the requests to commit them."""
    commits = []
    for name in names:
        init = node.call(transactions_pb2.InitTransactionsRequest(transactional_id=name, transaction_timeout_ms=2_000))
        node.step()
        node.replica.apply()
        answer = node.replies[init]
        assert isinstance(answer, transactions_pb2.InitTransactionsResponse)
        add = transactions_pb2.AddToTransactionRequest(transactional_id=name, identity=answer.identity)
        add.participants.add(topic_id=TOPIC, partition=0)
        node.call(add)
        node.step()
        node.replica.apply()
        commits.append(
            transactions_pb2.EndTransactionRequest(
                transactional_id=name, identity=answer.identity, commit=True, raises_epoch=True
            )
        )
    return commits


def test_commits_wait_for_the_end_of_a_hold(node: Node) -> None:
    """Aborts do not wait."""
    first, second, third = open_transactions(node, "a", "b", "c")
    node.leader.hold_commits(HOLD_ID, 5_000_000)
    numbers = [node.call(first), node.call(second)]
    assert not node.step()
    third.commit = False
    aborted = node.call(third)
    assert node.step()
    node.replica.apply()
    node.step()
    assert aborted in node.replies
    assert not set(numbers) & node.replies.keys()
    assert node.leader.hold.lasts(HOLD_ID) and node.leader.is_settled
    node.leader.end_hold()
    assert not node.leader.hold.lasts(HOLD_ID)
    assert node.step()
    node.replica.apply()
    node.step()
    assert [node.replies[number].markers_committed for number in numbers] == [True, True]  # type: ignore[attr-defined]


def test_holds_end_by_themselves(node: Node) -> None:
    (commit,) = open_transactions(node, "a")
    node.leader.hold_commits(HOLD_ID, 1_000_000)
    node.call(commit)
    assert not node.wait(900_000)
    assert node.leader.next_deadline <= node.clock.awake_us + 100_000
    assert node.wait(200_000)
    assert not node.leader.hold.lasts(HOLD_ID)


def test_holds_have_a_limit(node: Node) -> None:
    node.leader.hold_commits(HOLD_ID, 1 << 40)
    node.wait(HOLD_US - STEP_US)
    assert node.leader.hold.lasts(HOLD_ID)
    node.wait(STEP_US)
    assert not node.leader.hold.lasts(HOLD_ID)


def test_stalls_do_not_prolong_holds(node: Node) -> None:
    """The limit counts on a clock that does not stop: a slow node would otherwise hold commits for long."""
    (commit,) = open_transactions(node, "a")
    node.leader.hold_commits(HOLD_ID, HOLD_US)
    node.call(commit)
    assert not node.step(HOLD_US - STEP_US)
    assert node.leader.next_deadline == node.clock.awake_us + STEP_US
    assert node.step(STEP_US)
    assert not node.leader.hold.lasts(HOLD_ID)


def test_holds_start_once(node: Node) -> None:
    """One that was interrupted must not seem to have lasted."""
    node.leader.hold_commits(HOLD_ID, 100_000)
    node.wait(2_000_000)
    node.leader.hold_commits(HOLD_ID, 100_000)
    assert not node.leader.hold.lasts(HOLD_ID)
    node.leader.hold_commits(b"another", 100_000)
    assert node.leader.hold.lasts(b"another")


def test_holds_are_not_prolonged(node: Node) -> None:
    node.leader.hold_commits(HOLD_ID, 1_000_000)
    node.wait(500_000)
    node.leader.hold_commits(HOLD_ID, 1_000_000)
    node.leader.hold_commits(b"another", 5_000_000)
    node.wait(500_000)
    assert not node.leader.hold.lasts(HOLD_ID) and not node.leader.hold.lasts(b"another")


def test_next_hold_waits(node: Node) -> None:
    """Commits are held for at most half of the time."""
    node.leader.hold_commits(HOLD_ID, 1_000_000)
    node.wait(1_000_000)
    node.wait(900_000)
    node.leader.hold_commits(b"another", 1_000_000)
    assert not node.leader.hold.lasts(b"another")
    node.wait(100_000)
    node.leader.hold_commits(b"another", 1_000_000)
    assert node.leader.hold.lasts(b"another")


def test_hold_waits_for_the_decision_in_flight(node: Node) -> None:
    (commit,) = open_transactions(node, "a")
    node.call(commit)
    assert node.step()
    node.leader.hold_commits(HOLD_ID, 5_000_000)
    assert not node.leader.is_settled
    node.replica.apply()
    node.step()
    assert node.leader.is_settled


def test_hold_waits_for_markers(node: Node) -> None:
    """Those of aborts do not matter: a backup leaves out what is aborted and what is open."""
    commit, abort = open_transactions(node, "a", "b")
    abort.commit = False
    node.lost = True
    node.call(abort)
    node.step()
    node.replica.apply()
    node.step()
    node.leader.hold_commits(HOLD_ID, 100_000)
    assert node.leader.is_settled
    node.wait(300_000)
    node.call(commit)
    node.step()
    node.replica.apply()
    node.step()
    node.leader.hold_commits(b"another", 5_000_000)
    assert node.leader.hold.lasts(b"another") and not node.leader.is_settled
    node.lost = False
    for _ in range(30):
        if node.step(STEP_US):
            node.replica.apply()
    assert node.leader.is_settled


def test_held_commits_do_not_time_out(node: Node) -> None:
    (commit,) = open_transactions(node, "a")
    node.leader.hold_commits(HOLD_ID, 4_000_000)
    number = node.call(commit)
    assert not node.wait(3_900_000)
    assert node.wait(200_000)
    node.replica.apply()
    node.step()
    answer = node.replies[number]
    assert isinstance(answer, transactions_pb2.EndTransactionResponse) and not answer.HasField("error")


def test_held_commits_do_not_time_out_in_the_queue(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """One decision cannot have all commits that are queued when the hold ends."""
    monkeypatch.setattr(decision_queue, "DECISION_CALLS", 1)
    commits = open_transactions(node, "a", "b")
    node.leader.hold_commits(HOLD_ID, 4_000_000)
    numbers = [node.call(each) for each in commits]
    for _ in range(50):
        if node.step(STEP_US):
            node.replica.apply()
    answers = [node.replies[number] for number in numbers]
    assert not any(answer.HasField("error") for answer in answers), answers


def test_timeouts_continue_after_a_hold(node: Node) -> None:
    """A commit that was held and refused does not keep its transaction open."""
    (commit,) = open_transactions(node, "a")
    node.leader.hold_commits(HOLD_ID, 1_000_000)
    commit.identity.producer_epoch += 1
    number = node.call(commit)
    node.wait(1_200_000)
    node.confirm()
    assert node.replies[number].HasField("error")
    assert node.wait(1_000_000), "it times out"


def test_held_commits_have_a_limit(node: Node) -> None:
    (commit,) = open_transactions(node, "a")
    node.leader.hold_commits(HOLD_ID, 4_000_000)
    numbers = [node.call(commit)]
    for _ in range(100):
        node.step()
        numbers.append(node.call(commit))
    node.step()
    refused = [number for number in numbers if number in node.replies]
    assert refused == numbers[-1:]
    assert node.replies[refused[0]].error.code == ErrorCode.SERVER_BUSY  # type: ignore[attr-defined]


def test_held_commits_are_sent_to_the_next_leader(node: Node) -> None:
    (commit,) = open_transactions(node, "a")
    node.leader.hold_commits(HOLD_ID, 5_000_000)
    number = node.call(commit)
    node.step()
    node.fail_over()
    assert node.replies[number].error.code == ErrorCode.NOT_COORDINATOR  # type: ignore[attr-defined]
    assert not node.leader.hold.lasts(HOLD_ID)
