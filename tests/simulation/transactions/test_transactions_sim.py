"""Transactions from one end to the other: coordinators, leaders of partitions, and readers of what was committed."""

from __future__ import annotations

import pytest
from quiet_cluster import SECOND, TOPIC
from transactional_cluster import NAME, PARTITIONS, TransactionalCluster

from quorumlog.server.deciding.transaction_participants import Identity, OpenHere, Participant
from quorumlog.server.partition.partition import Partition
from quorumlog.server.transactions.participants import PULL_US
from quorumlog.simulator.models.records import arrow_payload, values_of
from quorumlog.v1 import admin_pb2, errors_pb2, peer_pb2, transaction_admin_pb2, transactions_pb2
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1.admin_pb2 import DescribePartitionLogRequest, DescribePartitionLogResponse
from quorumlog.v1.data_plane_pb2 import (
    ISOLATION_LEVEL_READ_COMMITTED,
    ISOLATION_LEVEL_READ_UNCOMMITTED,
    IsolationLevel,
)
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import Attributes, Codec, build_batch, parse_header
from quorumlog.wire.kafka.control import LogPlace


class Transfers(TransactionalCluster):
    """A producer that writes records in transactions, and readers."""

    def __init__(self, seed: int, nodes: int = 3) -> None:
        super().__init__(seed, nodes=nodes)
        self._sequences: dict[tuple[Identity, int], int] = {}

    def lose_markers(self) -> None:
        """From now on nodes ignore decisions that are pushed."""
        for process in self.cluster.processes.values():
            member = process.node._member  # type: ignore[union-attr]
            assert member is not None
            member._traffic.declare("end_transactions", lambda now, request, respond: None)

    def restart_sequences(self) -> None:
        """Forgets the batches that were created."""
        self._sequences.clear()

    def replica(self, number: int) -> tuple[int, Partition]:
        """The node that leads a partition, and its replica there."""
        for node in self.running:
            member = self.cluster.processes[node].node._member  # type: ignore[union-attr]
            partition = member.services.replicas.partitions.find(self.topic_id(), number) if member else None
            if partition is not None and partition.leads:
                return node, partition
        raise LookupError(number)

    def lead(self, number: int) -> int:
        """The node that leads a partition, as soon as one does."""
        found: list[int] = []

        def leads() -> bool:
            try:
                found.append(self.replica(number)[0])
            except LookupError:
                return False
            return True

        self.until(leads, 10)
        return found[-1]

    def stable_end(self, number: int) -> int:
        """The last stable offset of a partition on its leader; -1 while it has none."""
        try:
            return self.replica(number)[1].last_stable_offset
        except LookupError:
            return -1

    def batch(self, of: Identity, number: int, values: list[str], *, transactional: bool = True) -> bytes:
        sequence = self._sequences.get((of, number), 0)
        self._sequences[of, number] = sequence + len(values)
        at_ms = self.cluster.processes[self.running[0]].wall_ms
        return build_batch(
            arrow_payload(None, values, at_ms),
            record_count=len(values),
            codec=Codec.NONE,
            base_timestamp_ms=at_ms,
            max_timestamp_ms=at_ms,
            producer_id=of.producer_id,
            producer_epoch=of.epoch,
            base_sequence=sequence,
            attributes=Attributes.TRANSACTIONAL if transactional else Attributes(0),
        )

    def request(
        self, of: Identity, number: int, *values: str, adds: bool = True, name: str = NAME
    ) -> pb.ProduceRequest:
        return pb.ProduceRequest(
            acks=-1,
            timeout_ms=3_000,
            transactional_id=name,
            adds_partitions=adds,
            batches=[
                pb.PartitionBatch(
                    topic_id=self.topic_id(), partition=number, batch=self.batch(of, number, list(values))
                )
            ],
        )

    def send(self, request: pb.ProduceRequest) -> pb.ProduceResult:
        """The result of a request with one batch, retried while it is retriable."""
        for _ in range(100):
            answer = self.ask(self.lead(request.batches[0].partition), request)
            assert isinstance(answer, pb.ProduceResponse)
            if not answer.results[0].error.retriable:
                return answer.results[0]
            self.run(0.05)
        raise AssertionError(f"not sent: {answer}")

    def read(self, number: int, level: IsolationLevel.ValueType = ISOLATION_LEVEL_READ_COMMITTED) -> list[str]:
        request = pb.FetchRequest(max_bytes=1 << 20, isolation_level=level)
        values: list[str] = []
        offset = 0
        while True:
            del request.partitions[:]
            request.partitions.add(
                topic_id=self.topic_id(), partition=number, fetch_offset=offset, leader_epoch=-1, max_bytes=1 << 20
            )
            answer = self.ask(self.lead(number), request)
            assert isinstance(answer, pb.FetchResponse)
            (result,) = answer.results
            assert not result.HasField("error"), result
            if not result.entries:
                return values
            values += [value for entry in result.entries for value in values_of(entry)]
            offset = parse_header(result.entries[-1]).last_offset + 1

    def finish(self, of: Identity, *, commit: bool = True) -> Identity:
        """Ends a transaction; returns the identity of the next one."""
        answer = self.end(of, commit=commit)
        assert not answer.HasField("error"), answer
        return Identity(answer.identity.producer_id, answer.identity.producer_epoch)


def test_records_become_visible_at_the_commit() -> None:
    cluster = Transfers(1)
    producer = cluster.init()
    assert not cluster.send(cluster.request(producer, 0, "a", "b")).error.code
    assert not cluster.send(cluster.request(producer, 2, "c")).error.code
    assert cluster.read(0) == []
    assert cluster.read(0, ISOLATION_LEVEL_READ_UNCOMMITTED) == ["a", "b"]
    following = cluster.finish(producer)
    assert following.epoch == producer.epoch + 1
    assert (cluster.read(0), cluster.read(2)) == (["a", "b"], ["c"])


def test_aborted_records_stay_invisible() -> None:
    cluster = Transfers(2)
    producer = cluster.init()
    cluster.send(cluster.request(producer, 0, "aborted"))
    following = cluster.finish(producer, commit=False)
    cluster.send(cluster.request(following, 0, "committed"))
    cluster.finish(following)
    assert cluster.read(0) == ["committed"]
    assert cluster.read(0, ISOLATION_LEVEL_READ_UNCOMMITTED) == ["aborted", "committed"]


def test_batches_wait_in_order() -> None:
    """Batches that arrive while the partition is enlisted are appended in their order, in one step."""
    cluster = Transfers(3)
    producer = cluster.init()
    node, answers = cluster.lead(1), []
    for number in range(20):
        cluster.cluster.request("client", node, cluster.request(producer, 1, f"v{number}"), answers.append)
    cluster.until(lambda: len(answers) == 20, 5)
    assert [answer.results[0].error.code for answer in answers] == [0] * 20
    cluster.finish(producer)
    assert cluster.read(1) == [f"v{number}" for number in range(20)]


def test_unconfirmed_partition_is_refused() -> None:
    """A client of the first version adds its partitions itself. A late batch starts no transaction of its own."""
    cluster = Transfers(4)
    producer = cluster.init()
    late = cluster.send(cluster.request(producer, 0, "late", adds=False))
    assert late.error.code == ErrorCode.INVALID_TXN_STATE
    cluster.add(producer, 0)
    cluster.restart_sequences()
    assert not cluster.send(cluster.request(producer, 0, "in time", adds=False)).error.code
    cluster.finish(producer)
    assert cluster.read(0) == ["in time"]


def test_former_instance_is_fenced() -> None:
    cluster = Transfers(5)
    former = cluster.init()
    cluster.send(cluster.request(former, 0, "former"))
    following = cluster.init()
    assert cluster.send(cluster.request(former, 0, "late")).error.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert cluster.send(cluster.request(former, 1, "late")).error.code == ErrorCode.INVALID_PRODUCER_EPOCH
    cluster.send(cluster.request(following, 0, "following"))
    cluster.finish(following)
    assert (cluster.read(0), cluster.read(1)) == (["following"], [])


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("dies", ["coordinator", "partition"])
def test_next_leaders_finish_what_is_decided(dies: str, commit: bool) -> None:
    """The leader of the coordinator or of a partition dies between the decision and the markers."""
    cluster = Transfers(6)
    producer = cluster.init()
    for number in range(PARTITIONS):
        cluster.send(cluster.request(producer, number, f"v{number}"))
    node = cluster.lead(0) if dies == "partition" else cluster.coordinator()
    request = transactions_pb2.EndTransactionRequest(transactional_id=NAME, commit=commit, raises_epoch=True)
    request.identity.producer_id, request.identity.producer_epoch = producer
    cluster.cluster.request("client", cluster.coordinator(), request, lambda answer: None)
    cluster.run(0.002)
    cluster.cluster.processes[node].die(silent=True)
    again = cluster.end(producer, commit=commit)
    assert not again.HasField("error"), again
    for number in range(PARTITIONS):
        cluster.lead(number)
        cluster.until(lambda of=number: cluster.stable_end(of) == 2, 10)  # type: ignore[misc]
        assert cluster.read(number) == ([f"v{number}"] if commit else [])


def test_leader_asks_when_markers_never_arrive() -> None:
    """Decisions are not pushed. The leader asks what became of its transaction, and ends it."""
    cluster = Transfers(7)
    producer = cluster.init()
    cluster.send(cluster.request(producer, 0, "a"))
    cluster.lose_markers()
    answer = cluster.end(producer)
    assert not answer.markers_committed
    assert cluster.read(0) == []
    cluster.until(lambda: cluster.stable_end(0) == 2, 3 * PULL_US // SECOND)
    assert cluster.read(0) == ["a"]


def test_refused_enlistment_ends_the_former_transaction() -> None:
    """The marker is late. The first batch of the next transaction is refused with the decision that is due."""
    cluster = Transfers(14)
    producer = cluster.init()
    cluster.send(cluster.request(producer, 0, "a"))
    cluster.lose_markers()
    following = cluster.finish(producer)
    answer = cluster.ask(cluster.lead(0), cluster.request(following, 0, "b"))
    assert isinstance(answer, pb.ProduceResponse)
    assert answer.results[0].error.code == ErrorCode.CONCURRENT_TRANSACTIONS
    cluster.until(lambda: cluster.stable_end(0) == 2, 1)
    assert cluster.read(0) == ["a"]


def test_unknown_transaction_is_aborted() -> None:
    """The coordinator has lost the transaction, as after a recovery: its leader asks, and aborts it."""
    cluster = Transfers(10)
    producer = cluster.init()
    cluster.send(cluster.request(producer, 0, "a"))
    for shard in cluster.shards():
        shard.table.records[NAME].open = None
    cluster.until(lambda: cluster.stable_end(0) == 2, 3 * PULL_US // SECOND)
    assert cluster.read(0) == []


def test_absence_is_confirmed_by_a_quorum() -> None:
    """A leader that is cut off has no such transaction, and does not answer; its successor has the transaction."""
    cluster = Transfers(11)
    producer = cluster.init()
    node = cluster.lead(0)
    others = [other for other in cluster.running if other != node]
    for other in others:
        cluster.cluster.network.cut(node, other)
        cluster.cluster.network.cut(other, node)
    answers: list[errors_pb2.Error | None] = []
    decision = peer_pb2.EndTransaction(commit=True)
    decision.identity.producer_id = producer.producer_id
    decision.participant.topic_id, decision.participant.partition = cluster.topic_id(), 0
    decision.origin.term, decision.origin.index, decision.decided.term, decision.decided.index = 1, 5, 1, 6
    member = cluster.cluster.processes[node].node._member  # type: ignore[union-attr]
    assert member is not None
    member.services.participants.partitions.end(decision, answers.append)
    cluster.run(0.05)
    assert answers == []
    cluster.run(5)
    assert [None if each is None else each.code for each in answers] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_enlistment_of_a_former_term_opens_nothing() -> None:
    cluster = Transfers(12)
    producer = cluster.init()
    cluster.lead(0)
    _, partition = cluster.replica(0)
    member = cluster.cluster.processes[cluster.lead(0)].node._member  # type: ignore[union-attr]
    assert member is not None
    here = OpenHere(Participant(cluster.topic_id(), 0), producer, 0, LogPlace(1, 5))
    refused = member.services.participants.partitions.open(here, partition.raft.term - 1)
    assert refused is not None and refused.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_batch_of_a_client_that_is_gone_is_dropped() -> None:
    cluster = Transfers(13)
    producer = cluster.init()
    node = cluster.lead(0)
    request = cluster.request(producer, 0, "a")
    request.timeout_ms = 1
    answer = cluster.ask(node, request)
    assert isinstance(answer, pb.ProduceResponse)
    assert answer.results[0].error.code == ErrorCode.REQUEST_TIMED_OUT
    cluster.run(1)
    assert cluster.read(0, ISOLATION_LEVEL_READ_UNCOMMITTED) == []


def test_open_transaction_is_aborted_at_its_timeout() -> None:
    cluster = Transfers(8)
    producer = cluster.init(timeout_ms=2_000)
    cluster.send(cluster.request(producer, 0, "a"))
    cluster.until(lambda: cluster.stable_end(0) == 2, 5)
    assert cluster.read(0) == []
    assert cluster.end(producer).error.code == ErrorCode.TRANSACTION_ABORTABLE


def test_transactional_batch_needs_its_id() -> None:
    cluster = Transfers(9)
    producer = cluster.init()
    refused = cluster.send(cluster.request(producer, 0, "a", name=""))
    assert refused.error.code == ErrorCode.INVALID_RECORD
    assert cluster.send(cluster.request(producer, 0, "b", name="x" * 250)).error.code == ErrorCode.INVALID_REQUEST
    assert (
        cluster.send(cluster.request(producer, 0, "c", name="other")).error.code
        == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    )


# -- moves, and topics that are deleted -------------------------------------------------------------------------------


def replicas(cluster: Transfers, number: int) -> list[tuple[int, ...]]:
    """The replicas of a partition in the metadata of each node; none while it moves."""
    images = [process.image for process in cluster.cluster.processes.values() if process.image is not None]
    found = [image.partitions[image.topics[TOPIC].partitions[number].group] for image in images]
    return [() if each.is_moving else tuple(each.replicas) for each in found]


@pytest.mark.parametrize("wait_s", [0.0, 0.05, 0.3, 5.0])
def test_abort_during_a_move(wait_s: float) -> None:
    """A partition moves to other nodes while a transaction is open. The abort arrives before, during or after that."""
    cluster = Transfers(15, nodes=6)
    producer = cluster.init()
    assert not cluster.send(cluster.request(producer, 0, "lost")).HasField("error")
    former = replicas(cluster, 0)[0]
    following = tuple(node for node in cluster.running if node not in former)
    request = admin_pb2.ReassignPartitionsRequest(timeout_ms=5_000)
    request.reassignments.add(topic=TOPIC, partition=0, replicas=following)
    cluster.cluster.request("admin", cluster.running[0], request, lambda answer: None)
    cluster.run(wait_s)
    after = cluster.finish(producer, commit=False)
    cluster.until(lambda: set(replicas(cluster, 0)) == {following}, 30)
    cluster.until(lambda: cluster.stable_end(0) == 2, 30)
    assert cluster.read(0) == []
    assert not cluster.send(cluster.request(after, 0, "kept")).HasField("error")
    cluster.finish(after)
    cluster.until(lambda: cluster.stable_end(0) == 4, 10)
    assert cluster.read(0) == ["kept"]


@pytest.mark.parametrize("commit", [True, False])
def test_topic_that_is_created_again(commit: bool) -> None:
    """A topic is deleted within a transaction, and created again. The decision is carried out without it, and neither
    it nor a late batch has an effect on the new topic."""
    cluster = Transfers(16)
    producer = cluster.init()
    assert not cluster.send(cluster.request(producer, 0, "former")).HasField("error")
    late, former = cluster.request(producer, 0, "late"), cluster.topic_id()
    delete = admin_pb2.DeleteTopicsRequest(names=[TOPIC], topic_ids=[former], timeout_ms=5_000)
    answer = cluster.ask(cluster.running[0], delete)
    assert isinstance(answer, admin_pb2.DeleteTopicsResponse) and not answer.results[0].error.code, answer
    cluster.create(TOPIC, PARTITIONS)
    cluster.run(2)
    assert cluster.topic_id() != former
    following = cluster.finish(producer, commit=commit)
    result = cluster.ask(cluster.lead(0), late)
    assert isinstance(result, pb.ProduceResponse)
    assert result.results[0].error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not cluster.send(cluster.request(following, 0, "new")).HasField("error")
    cluster.finish(following)
    cluster.until(lambda: cluster.stable_end(0) == 2, 10)
    assert cluster.read(0) == ["new"]


# -- operators --------------------------------------------------------------------------------------------------------


def described(cluster: Transfers) -> transaction_admin_pb2.DescribeTransactionResponse:
    answer = cluster.call(transaction_admin_pb2.DescribeTransactionRequest(transactional_id=NAME))
    assert isinstance(answer, transaction_admin_pb2.DescribeTransactionResponse) and not answer.HasField("error"), (
        answer
    )
    return answer


def aborted(cluster: Transfers, place: transactions_pb2.TransactionPlace) -> errors_pb2.Error:
    request = transaction_admin_pb2.AbortTransactionRequest(transactional_id=NAME, place=place)
    return cluster.call(request).error  # type: ignore[attr-defined, no-any-return]


def producers(cluster: Transfers, number: int) -> transaction_admin_pb2.DescribeProducersResponse:
    request = transaction_admin_pb2.DescribeProducersRequest(
        topic_id=cluster.topic_id(), partition=number, after_producer_id=-1
    )
    answer = cluster.ask(cluster.lead(number), request)
    assert isinstance(answer, transaction_admin_pb2.DescribeProducersResponse) and not answer.HasField("error"), answer
    return answer


def test_operator_sees_and_aborts_a_transaction() -> None:
    cluster = Transfers(31)
    a = cluster.init()
    for number in (0, 1):
        assert not cluster.send(cluster.request(a, number, "lost", "lost too")).HasField("error")
    seen = described(cluster)
    assert seen.state == transaction_admin_pb2.TRANSACTION_STATE_ONGOING
    assert [list(topic.partitions) for topic in seen.topics] == [[0, 1]]
    (producer,) = producers(cluster, 0).producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (*a, 1)
    assert producer.transaction_start_offset == 0 and producer.last_timestamp_ms > 0
    assert not aborted(cluster, seen.place).code
    assert not aborted(cluster, seen.place).code, "the answer was lost"
    cluster.run(1)
    found = producers(cluster, 0)
    assert found.producers[0].transaction_start_offset == -1
    assert found.last_stable_offset == found.high_watermark == 3, "the marker has an offset"
    assert cluster.read(0) == [] and cluster.read(1) == []
    assert cluster.end(a).error.code == ErrorCode.TRANSACTION_ABORTABLE
    b = cluster.finish(a, commit=False)
    assert not cluster.send(cluster.request(b, 0, "next")).HasField("error")
    assert not aborted(cluster, seen.place).code, "that one is aborted, and the next one continues"
    c = cluster.finish(b)
    assert not cluster.send(cluster.request(c, 0, "last")).HasField("error")
    assert aborted(cluster, seen.place).code == ErrorCode.INVALID_TXN_STATE, "it is too long ago to be known"
    cluster.finish(c)
    cluster.run(1)
    assert cluster.read(0) == ["next", "last"]


def test_operator_aborts_after_the_coordinator_has_moved() -> None:
    cluster = Transfers(32)
    a = cluster.init()
    assert not cluster.send(cluster.request(a, 0, "lost")).HasField("error")
    seen = described(cluster)
    cluster.cluster.processes[cluster.coordinator()].die(silent=True)
    assert not aborted(cluster, seen.place).code
    cluster.until(lambda: cluster.stable_end(0) == 2, 10)
    assert cluster.read(0) == []


def test_operator_sees_which_participants_are_slow() -> None:
    cluster = Transfers(33)
    a = cluster.init()
    for number in (0, 1):
        assert not cluster.send(cluster.request(a, number, "slow")).HasField("error")
    cluster.lose_markers()
    cluster.finish(a)
    slow = described(cluster)
    assert slow.state == transaction_admin_pb2.TRANSACTION_STATE_PREPARE_COMMIT
    assert [list(topic.unanswered) for topic in slow.topics] == [[0, 1]]
    assert producers(cluster, 0).last_stable_offset == 0


def test_list_of_every_node() -> None:
    cluster = Transfers(34)
    cluster.init()
    node = cluster.coordinator()
    listed = {each: cluster.ask(each, transaction_admin_pb2.ListTransactionsRequest()) for each in cluster.running}
    assert [each.transactional_id for each in listed[node].transactions] == [NAME]  # type: ignore[attr-defined]
    assert list(listed[node].coordinators) == [0]  # type: ignore[attr-defined]
    others = [answer for each, answer in listed.items() if each != node]
    assert not any(answer.coordinators or answer.transactions for answer in others)  # type: ignore[attr-defined]
    refused = cluster.ask(node, transaction_admin_pb2.ListTransactionsRequest(name_pattern="("))
    assert refused.error.code == ErrorCode.INVALID_REGULAR_EXPRESSION  # type: ignore[attr-defined]


def hold(cluster: Transfers, hold_ms: int, hold_id: bytes = b"backup") -> dict[int, tuple[bool, bool]]:
    """Asks every node; returns whether each coordinator holds commits and is settled."""
    found = {}
    for node in cluster.running:
        answer = cluster.ask(node, transaction_admin_pb2.HoldCommitsRequest(hold_id=hold_id, hold_ms=hold_ms))
        assert isinstance(answer, transaction_admin_pb2.HoldCommitsResponse) and not answer.HasField("error"), answer
        found.update({each.number: (each.holds, each.settled) for each in answer.coordinators})
    return found


def test_commits_are_held_until_a_backup_has_looked() -> None:
    """The commit waits and then succeeds. In the meantime the partition's description has what is open."""
    cluster = Transfers(3)
    producer = cluster.init()
    assert not cluster.send(cluster.request(producer, 0, "a")).error.code
    assert hold(cluster, 4_000) == {0: (True, True)}
    request = transactions_pb2.EndTransactionRequest(transactional_id=NAME, commit=True, raises_epoch=True)
    request.identity.producer_id, request.identity.producer_epoch = producer
    answers: list[object] = []
    cluster.cluster.request("client", cluster.coordinator(), request, answers.append)
    cluster.run(1)
    question = DescribePartitionLogRequest(topic_id=cluster.topic_id(), partition=0, after_producer_id=-1)
    description = cluster.ask(cluster.lead(0), question)
    assert isinstance(description, DescribePartitionLogResponse)
    assert [(each.producer_id, each.first_offset) for each in description.open] == [(producer.producer_id, 0)]
    assert not answers
    assert hold(cluster, 0) == {0: (True, True)}
    cluster.until(lambda: bool(answers), 2)
    assert isinstance(answers[0], transactions_pb2.EndTransactionResponse)
    assert answers[0].markers_committed
    assert cluster.read(0) == ["a"]
    assert hold(cluster, 4_000) == {0: (False, True)}, "it is over"


def test_holds_of_a_backup_that_dies_end() -> None:
    cluster = Transfers(4)
    producer = cluster.init()
    assert not cluster.send(cluster.request(producer, 0, "a")).error.code
    assert hold(cluster, 2_000) == {0: (True, True)}
    began = cluster.scheduler.now
    assert cluster.finish(producer).epoch == producer.epoch + 1
    assert 1.5 * SECOND < cluster.scheduler.now - began < 3 * SECOND


def test_holds_end_with_the_leader() -> None:
    """The next leader commits, and says that the hold has not lasted."""
    cluster = Transfers(5)
    producer = cluster.init()
    assert not cluster.send(cluster.request(producer, 0, "a")).error.code
    assert hold(cluster, 5_000) == {0: (True, True)}
    cluster.cluster.processes[cluster.coordinator()].die(silent=True)
    assert cluster.finish(producer).epoch == producer.epoch + 1
    assert hold(cluster, 0)[0][0] is False


@pytest.mark.parametrize("hold_id", [b"", b"x" * 17])
def test_holds_with_a_wrong_id_are_refused(hold_id: bytes) -> None:
    cluster = Transfers(6)
    cluster.init()
    answer = cluster.ask(1, transaction_admin_pb2.HoldCommitsRequest(hold_id=hold_id, hold_ms=1))
    assert isinstance(answer, transaction_admin_pb2.HoldCommitsResponse)
    assert answer.error.code == ErrorCode.INVALID_REQUEST
