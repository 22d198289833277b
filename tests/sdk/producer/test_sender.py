"""The sender beside nodes that the test answers for: what is sent to whom and when, and what becomes of batches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hand_driven_cluster import TOPIC_ID, Code, HandDrivenCluster, Question, turn
from scripted_cluster import error as refusal

from quorumlog.sdk.aio import AsyncProducer
from quorumlog.sdk.cluster.cluster import IDLE_S
from quorumlog.sdk.errors import (
    ClientClosedError,
    InvalidRecordError,
    NetworkError,
    QuorumlogError,
    RecordTooLargeError,
    RequestTimedOutError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)
from quorumlog.sdk.metrics.producer_metrics import ProducerMetrics
from quorumlog.sdk.producer.accumulator import Accumulator, TopicBuffers
from quorumlog.sdk.producer.config import ProducerConfig
from quorumlog.sdk.producer.delivery import RecordFuture
from quorumlog.sdk.producer.explanation import BatchNotes
from quorumlog.sdk.producer.sender import Sender
from quorumlog.sdk.records.produce_request import OutgoingProduce
from quorumlog.sdk.records.record_batch import RECORD_OVERHEAD_BYTES, decode
from quorumlog.sdk.runtime.backoff import Backoff
from quorumlog.v1 import data_plane_pb2
from quorumlog.wire.entry import parse_header, seal_batch

MEMORY = 10_000_000


class Bench:
    """A sender of single-record batches to ``t``, whose partitions node 1 leads."""

    def __init__(self, leaders: Sequence[int] = (1,), **options: Any) -> None:
        self.cluster = HandDrivenCluster()
        self.config = ProducerConfig(**{"linger_ms": 0, "batch_size": 1, "retry_backoff_ms": 20} | options)
        self.cluster.backoff = Backoff(
            self.config.retry_backoff_ms / 1000, self.config.retry_backoff_max_ms / 1000, self.cluster.runtime
        )
        self.accumulator = Accumulator(
            batch_size=max(1, self.config.batch_size),
            linger_s=self.config.linger_ms / 1000,
            buffer_memory=MEMORY,
            clock=self.cluster.clock,
            wake=lambda: None,
        )
        self.crashed: list[Exception] = []
        self.metrics = ProducerMetrics(self.cluster.clock())
        self.sender = Sender(
            self.config, self.cluster, self.accumulator, self.cluster.clock, self.metrics, self.crashed.append
        )
        self.cluster.show(*leaders)
        self.topic = TopicBuffers("t")
        self.topic.resize(len(leaders))
        self.accumulator.topics["t"] = self.topic

    async def start(self) -> Bench:
        """With an identity, so that the first batch leaves at once."""
        if self.config.idempotent:
            self.send()
            await turn()
            await self.give_identity()
            await self.acknowledge()
        return self

    async def give_identity(self, producer_id: int = 7) -> None:
        for node in self.cluster.nodes.values():
            for question in node.data_plane.asked("InitProducerId"):
                question.answer.set_result(data_plane_pb2.InitProducerIdResponse(producer_id=producer_id))
        await turn(20)

    def send(self, value: bytes = b"v", partition: int = 0) -> RecordFuture:
        size = len(value) + RECORD_OVERHEAD_BYTES
        handle = self.accumulator.append(self.topic, partition, None, value, 1_000_000, None, size)
        assert handle is not None
        self.sender.wake()
        return handle

    def under_way(self, node: int = 1) -> list[Question[OutgoingProduce]]:
        return self.cluster.nodes[node].produce.unanswered

    def sent(self, node: int = 1) -> list[list[int]]:
        """The partitions in each request that a node was sent."""
        return [[partition for _, partition, _ in one.batches] for one in self.cluster.nodes[node].produce.requests]

    async def acknowledge(self, *, node: int = 1, number: int = 0, offset: int = 0) -> None:
        """Acknowledges the batches of a request."""
        question = self.under_way(node)[number]
        results = [
            data_plane_pb2.ProduceResult(
                topic_id=topic_id, partition=partition, base_offset=offset, log_append_time_ms=-1
            )
            for topic_id, partition, _ in question.request.batches
        ]
        question.answer.set_result(data_plane_pb2.ProduceResponse(results=results))
        await turn()

    async def refuse(self, *errors: Any, node: int = 1, number: int = 0) -> None:
        """A node refuses the batches of a request."""
        question = self.under_way(node)[number]
        results = [
            data_plane_pb2.ProduceResult(topic_id=topic_id, partition=partition, base_offset=-1, error=error)
            for (topic_id, partition, _), error in zip(question.request.batches, errors, strict=True)
        ]
        question.answer.set_result(data_plane_pb2.ProduceResponse(results=results))
        await turn()

    async def after(self, seconds: float) -> None:
        self.cluster.clock.now_s += seconds
        self.sender.wake()
        await turn()


def error_of(handle: RecordFuture) -> QuorumlogError | None:
    assert handle.done(), "not resolved"
    return handle.exception(0)


# --- what is sent -----------------------------------------------------------------------------------------------------


async def test_a_record_that_is_to_be_explained_goes_alone_and_its_times_are_those_of_the_last_attempt() -> None:
    bench = await Bench((1, 1), retry_backoff_ms=20).start()
    notes = BatchNotes()
    bench.accumulator.append_alone(bench.topic, 0, None, b"v", 1_000_000, None, 1 + RECORD_OVERHEAD_BYTES, notes)
    bench.send(partition=1)
    await turn()
    assert bench.sent()[-2:] == [[0], [1]]
    assert [question.request.trace for question in bench.under_way()] == [True, False]
    bench.cluster.clock.now_s += 0.5
    await bench.refuse(refusal(Code.NOT_LEADER_OR_FOLLOWER))
    await bench.after(0.25)
    bench.cluster.clock.now_s += 0.125
    question = next(each for each in bench.under_way() if each.request.trace)
    result = data_plane_pb2.ProduceResult(topic_id=TOPIC_ID, partition=0, base_offset=9, log_append_time_ms=-1)
    trace = data_plane_pb2.BatchTrace(node_id=1)
    question.answer.set_result(data_plane_pb2.ProduceResponse(results=[result], trace=trace))
    await turn()
    times_s = (notes.batched_s, notes.sent_s, notes.answered_s)
    assert (notes.attempts, [each - notes.taken_s for each in times_s], notes.told) == (2, [0, 0.75, 0.875], trace)


async def test_batches_of_one_leader_share_a_request_and_each_of_a_partition_has_one_of_its_own() -> None:
    bench = await Bench((1, 1, 2)).start()
    before = len(bench.sent())
    with bench.accumulator.lock:
        bench.topic.sticky = None
    for partition in (0, 1, 2, 0):
        size = RECORD_OVERHEAD_BYTES + 1
        bench.accumulator.append(bench.topic, partition, None, b"v", 1, None, size)
    bench.sender.wake()
    assert bench.sent()[before:] == [[0, 1], [0]]
    assert bench.sent(2) == [[2]]


async def test_requests_stay_within_the_largest_size_and_nothing_is_left_behind() -> None:
    bench = await Bench((1,) * 6, max_request_size=4096).start()
    before = len(bench.sent())
    for partition in range(6):
        size = RECORD_OVERHEAD_BYTES + 1000
        bench.accumulator.append(bench.topic, partition, None, bytes(1000), 1, None, size)
    bench.sender.wake()
    requests = bench.cluster.nodes[1].produce.requests[before:]
    assert [partition for request in requests for _, partition, _ in request.batches] == [0, 1, 2, 3, 4, 5]
    sizes = [sum(len(batch) for _, _, batch in request.batches) for request in requests]
    assert all(size <= 4096 for size in sizes) and len(sizes) == 3, "and are no more than need be"


async def test_a_request_says_what_is_asked_of_the_node() -> None:
    bench = await Bench(acks=1, request_timeout_ms=1234).start()
    bench.send(b"value")
    ((request,),) = [bench.cluster.nodes[1].produce.requests]
    assert (request.acks, request.timeout_ms) == (1, 1234)
    ((topic_id, partition, batch),) = request.batches
    assert (topic_id, partition) == (TOPIC_ID, 0)
    entry = seal_batch(batch, group=1, term=1, index=1, previous_hash=0, base_offset=0)
    assert decode(entry).columns.column(1).to_pylist() == [b"value"]


async def test_no_more_than_max_in_flight_of_a_partition_are_under_way() -> None:
    bench = await Bench((1, 1), max_in_flight=3).start()
    handles = [bench.send() for _ in range(5)]
    assert len(bench.under_way()) == 3
    bench.send(partition=1)
    assert len(bench.under_way()) == 4, "of another partition"
    await bench.acknowledge()
    assert handles[0].done() and len(bench.under_way()) == 4


async def test_a_record_by_itself_is_sent_at_once_and_the_next_lingers_while_its_leader_is_busy() -> None:
    bench = Bench((1, 2), acks=1, linger_ms=50, batch_size=10_000)
    bench.send()
    assert len(bench.under_way()) == 1
    bench.send()
    assert len(bench.under_way()) == 1
    assert bench.sender._timer is not None and bench.sender._timer_at == pytest.approx(100.05)
    bench.send(partition=1)
    assert len(bench.under_way(2)) == 1, "the other one's leader has nothing to do"
    await bench.after(0.049)
    assert len(bench.under_way()) == 1
    await bench.after(0.002)
    assert len(bench.under_way()) == 2


async def test_what_has_gathered_for_a_leader_goes_in_one_request_once_it_has_answered() -> None:
    bench = Bench((1, 1), acks=1, linger_ms=60_000, batch_size=10_000)
    bench.send()
    for partition in (0, 1, 0):
        bench.send(partition=partition)
    await bench.acknowledge()
    assert bench.sent() == [[0], [0, 1]]
    bench.send(partition=1)
    assert len(bench.sent()) == 2, "these are under way now"


# --- identity ---------------------------------------------------------------------------------------------------------


async def test_nothing_is_sent_before_there_is_an_identity_and_one_is_asked_for_once() -> None:
    bench = Bench((1, 1))
    bench.send()
    bench.send(partition=1)
    await turn()
    requests = [q for node in bench.cluster.nodes.values() for q in node.data_plane.asked("InitProducerId")]
    assert len(requests) == 1 and bench.sent() == []
    await bench.give_identity(9)
    sent = [batch for request in bench.cluster.nodes[1].produce.requests for _, _, batch in request.batches]
    assert [parse_header(batch).producer_id for batch in sent] == [9, 9]


async def test_a_partition_that_is_used_later_has_the_identity_that_there_is() -> None:
    bench = await Bench((1, 1)).start()
    bench.send(partition=1)
    (question,) = bench.under_way()
    assert parse_header(question.request.batches[0][2]).producer_id == 7


async def test_what_was_not_sent_for_want_of_an_identity_is_certain_not_to_be_in_the_log() -> None:
    """Also where it is not certain that no identity was given."""
    bench = Bench()
    handle = bench.send()
    await turn()
    bench.cluster.clock.now_s += 1
    bench.sender._fail_without_identity(NetworkError("down"))
    error = error_of(handle)
    assert isinstance(error, NetworkError) and error.definite and error.retriable
    bench.sender.close()
    await turn(30)


async def test_when_nobody_gives_an_identity_in_time_what_waits_fails_and_gives_its_memory_back() -> None:
    bench = Bench(delivery_timeout_ms=50)
    handle = bench.send()
    for _ in range(200):
        await turn()
        bench.cluster.clock.now_s += 0.01
        for node in bench.cluster.nodes.values():
            for question in node.data_plane.asked("InitProducerId"):
                question.answer.set_exception(NetworkError("down"))
        bench.sender.wake()
        if handle.done():
            break
        await asyncio.sleep(0.002)
    error = error_of(handle)
    assert error is not None and error.definite
    assert bench.accumulator.free_bytes == MEMORY
    assert bench.crashed == []


# --- answers ----------------------------------------------------------------------------------------------------------


async def test_an_acknowledgement_gives_the_place_and_the_memory_back() -> None:
    bench = await Bench().start()
    handle = bench.send()
    assert bench.accumulator.free_bytes < MEMORY
    await bench.acknowledge(offset=41)
    assert handle.result(0).offset == 41
    assert bench.accumulator.free_bytes == MEMORY


@pytest.mark.parametrize("how", ["refused", "lost", "too many results", "late", "closed"])
async def test_memory_comes_back_whatever_becomes_of_a_batch(how: str) -> None:
    bench = await Bench(delivery_timeout_ms=1000, request_timeout_ms=400).start()
    handle = bench.send()
    if how == "refused":
        await bench.refuse(refusal(Code.INVALID_TIMESTAMP, retriable=False))
    elif how == "lost":
        bench.cluster.nodes[1].produce.lose()
        await turn()
    elif how == "too many results":
        bench.under_way()[0].answer.set_result(data_plane_pb2.ProduceResponse())
        await turn()
    elif how == "closed":
        bench.sender.close()
    for _ in range(40):
        await bench.after(0.1)
    assert error_of(handle) is not None
    assert bench.accumulator.free_bytes == MEMORY


async def test_a_refusal_for_good_is_said_and_the_others_of_the_request_are_not_touched() -> None:
    bench = await Bench((1, 1)).start()
    size = RECORD_OVERHEAD_BYTES + 1
    first, second = (bench.accumulator.append(bench.topic, p, None, b"v", 1, None, size) for p in (0, 1))
    assert first is not None and second is not None
    bench.sender.wake()
    question = bench.under_way()[0]
    results = [
        data_plane_pb2.ProduceResult(error=refusal(Code.INVALID_RECORD, retriable=False)),
        data_plane_pb2.ProduceResult(topic_id=TOPIC_ID, partition=1, base_offset=3),
    ]
    question.answer.set_result(data_plane_pb2.ProduceResponse(results=results))
    await turn()
    refused = error_of(first)
    assert isinstance(refused, InvalidRecordError) and refused.definite
    assert second.result(0).offset == 3


async def test_an_answer_about_fewer_batches_than_were_sent_is_no_acknowledgement() -> None:
    bench = await Bench((1, 1)).start()
    size = RECORD_OVERHEAD_BYTES + 1
    handles = [bench.accumulator.append(bench.topic, p, None, b"v", 1, None, size) for p in (0, 1)]
    bench.sender.wake()
    only = data_plane_pb2.ProduceResult(topic_id=TOPIC_ID, partition=0, base_offset=3)
    bench.under_way()[0].answer.set_result(data_plane_pb2.ProduceResponse(results=[only]))
    await turn()
    assert [handle is not None and handle.done() for handle in handles] == [False, False]
    await bench.after(1)
    await bench.acknowledge()
    assert [handle is not None and handle.done() for handle in handles] == [True, True]


async def test_a_late_acknowledgement_of_an_attempt_that_was_given_up_counts_once() -> None:
    bench = await Bench(request_timeout_ms=500).start()
    handle = bench.send()
    late = bench.under_way()[0]
    await bench.after(0.6)
    await bench.after(0.1)
    assert len(bench.under_way()) == 2
    result = data_plane_pb2.ProduceResult(topic_id=TOPIC_ID, partition=0, base_offset=5)
    late.answer.set_result(data_plane_pb2.ProduceResponse(results=[result]))
    await turn()
    assert handle.result(0).offset == 5
    await bench.acknowledge(offset=6)
    assert handle.result(0).offset == 5 and bench.accumulator.free_bytes == MEMORY


async def test_a_late_refusal_of_an_attempt_that_was_given_up_decides_nothing() -> None:
    bench = await Bench(request_timeout_ms=500).start()
    handle = bench.send()
    late = bench.under_way()[0]
    await bench.after(0.6)
    await bench.after(0.1)
    refused = data_plane_pb2.ProduceResult(error=refusal(Code.INVALID_TIMESTAMP, retriable=False))
    late.answer.set_result(data_plane_pb2.ProduceResponse(results=[refused]))
    await turn()
    await bench.after(0.1)
    assert not handle.done() and len(bench.under_way()) == 1, "it is not sent a third time"
    await bench.acknowledge(offset=6)
    assert handle.result(0).offset == 6


async def test_a_request_that_is_not_answered_in_time_is_sent_again_as_one_that_may_have_taken_effect() -> None:
    bench = await Bench(request_timeout_ms=500, delivery_timeout_ms=5000).start()
    handle = bench.send()
    await bench.after(0.49)
    assert len(bench.under_way()) == 1
    await bench.after(0.1)
    await bench.after(0.1)
    assert len(bench.under_way()) == 2
    first, second = (question.request.batches[0][2] for question in bench.under_way())
    assert first == second, "the log could not recognise another"
    await bench.refuse(refusal(Code.INVALID_TIMESTAMP, retriable=False), number=1)
    assert not handle.done(), "the first attempt may be in the log"
    for _ in range(80):
        await bench.after(0.1)
    error = error_of(handle)
    assert error is not None and not error.definite


async def test_after_the_delivery_time_the_sender_says_so_with_the_last_cause() -> None:
    bench = await Bench(delivery_timeout_ms=1000).start()
    handle = bench.send()
    for _ in range(30):
        if bench.under_way():
            await bench.refuse(refusal(Code.NOT_ENOUGH_REPLICAS))
        await bench.after(0.1)
    error = error_of(handle)
    assert error is not None and error.definite
    assert not bench.under_way()


async def test_retries_come_at_growing_pauses_and_a_success_begins_them_anew() -> None:
    bench = await Bench(retry_backoff_ms=20, retry_backoff_max_ms=200).start()

    async def pause() -> float:
        await bench.refuse(refusal(Code.STORAGE_ERROR))
        began = bench.cluster.clock.now_s
        while not bench.under_way():
            await bench.after(0.002)
        return bench.cluster.clock.now_s - began

    bench.send()
    pauses = [await pause() for _ in range(7)]
    assert pauses[0] < 0.06 < pauses[-1] < 0.3
    await bench.acknowledge()
    bench.send()
    assert await pause() < 0.06


# --- leaders ----------------------------------------------------------------------------------------------------------


async def test_a_leader_that_is_named_is_sent_to_at_once_and_so_are_those_behind() -> None:
    bench = await Bench().start()
    bench.send()
    bench.send()
    moved = refusal(Code.NOT_LEADER_OR_FOLLOWER, leader=(2, 2))
    await bench.refuse(moved)
    await bench.refuse(moved)
    assert bench.sent(2) == [[0], [0]] and bench.cluster.refreshes == 0


async def test_a_node_that_does_not_lead_and_knows_nobody_has_news_asked_for() -> None:
    bench = await Bench().start()
    bench.send()
    await bench.refuse(refusal(Code.NOT_LEADER_OR_FOLLOWER))
    assert bench.cluster.refreshes == 1 and bench.under_way() == []


async def test_news_of_a_leader_moves_what_the_old_one_has_not_answered() -> None:
    bench = await Bench().start()
    handle = bench.send()
    bench.cluster.show(3, epoch=2)
    assert bench.sent(3) == [[0]]
    await bench.acknowledge(node=3, offset=9)
    assert handle.result(0).offset == 9


async def test_news_of_the_same_epoch_moves_nothing() -> None:
    bench = await Bench().start()
    bench.send()
    bench.cluster.show(1, epoch=1)
    bench.cluster.show(1, epoch=2)
    assert len(bench.under_way()) == 1, "it is the node that has it already"
    bench.cluster.show(-1, epoch=3)
    assert len(bench.under_way()) == 1


async def test_a_silent_leader_has_news_asked_for_and_its_replicas_asked_who_leads() -> None:
    bench = await Bench().start()
    bench.send()
    await bench.after(0.2)
    assert bench.cluster.refreshes == 0
    await bench.after(0.1)
    assert bench.cluster.refreshes == 1
    assert len(bench.cluster.nodes[2].data_plane.asked("ListOffsets")) == 1
    assert bench.cluster.nodes[1].data_plane.asked("ListOffsets") == []
    await bench.after(0.11)
    (question,) = bench.cluster.nodes[2].data_plane.asked("ListOffsets")
    named = data_plane_pb2.ListOffsetsResult(
        topic_id=TOPIC_ID, error=refusal(Code.NOT_LEADER_OR_FOLLOWER, leader=(3, 2))
    )
    question.answer.set_result(data_plane_pb2.ListOffsetsResponse(results=[named]))
    await turn()
    assert bench.sent(3) == [[0]]


async def test_a_replica_that_does_not_answer_who_leads_is_asked_again() -> None:
    bench = await Bench().start()
    bench.send()
    await bench.after(0.3)
    (question,) = bench.cluster.nodes[2].data_plane.asked("ListOffsets")
    question.answer.set_exception(NetworkError("down"))
    await turn()
    await bench.after(0.2)
    assert len(bench.cluster.nodes[2].data_plane.asked("ListOffsets")) == 1


async def test_a_replica_that_has_become_the_leader_says_so_by_answering() -> None:
    bench = await Bench().start()
    bench.send()
    await bench.after(0.3)
    (question,) = bench.cluster.nodes[2].data_plane.asked("ListOffsets")
    itself = data_plane_pb2.ListOffsetsResult(topic_id=TOPIC_ID, offset=0, leader_epoch=2)
    question.answer.set_result(data_plane_pb2.ListOffsetsResponse(results=[itself]))
    await turn()
    assert bench.sent(2) == [[0]]


async def test_without_a_leader_nothing_leaves_and_news_are_asked_for_until_there_is_one() -> None:
    bench = await Bench().start()
    bench.cluster.show(-1, epoch=2)
    handle = bench.send()
    assert bench.under_way() == [] and bench.cluster.refreshes >= 1
    bench.cluster.show(2, epoch=3)
    assert bench.sent(2) == [[0]] and not handle.done()


async def test_when_the_way_to_the_leader_is_broken_the_replicas_are_sent_the_oldest_in_turn() -> None:
    bench = await Bench().start()
    for _ in range(2):
        bench.send()
    bench.cluster.nodes[1].suspect = True
    bench.cluster.nodes[1].produce.lose()
    await turn()
    requests = []
    for _ in range(400):
        await bench.after(0.01)
        for node in (1, 2, 3):
            for question in bench.under_way(node):
                requests.append(node)
                assert len(question.request.batches) == 1
                question.answer.set_exception(NetworkError("down"))
                await turn()
    assert {1, 2, 3} <= set(requests)


async def test_partitions_without_a_leader_are_not_chosen_for_keyless_records_while_others_have_one() -> None:
    bench = await Bench((1, 1, 1)).start()
    bench.cluster.show(-1, 1, -1, epoch=2)
    assert bench.topic.available == [1]
    for _ in range(6):
        with bench.accumulator.lock:
            bench.topic.sticky = None
            assert bench.topic.next_partition().partition == 1
    bench.cluster.show(1, 1, 1, epoch=3)
    assert bench.topic.available == [0, 1, 2]


async def test_what_metadata_say_of_a_topic_is_taken_over() -> None:
    bench = await Bench((1,)).start()
    bench.cluster.show(1, 1, 1, compacted=True)
    assert len(bench.topic.partitions) == 3 and bench.topic.compacted


async def test_metadata_are_asked_for_when_they_are_old() -> None:
    bench = await Bench(metadata_max_age_ms=10_000).start()
    await bench.after(9.9)
    assert bench.cluster.refreshes == 0
    await bench.after(0.2)
    assert bench.cluster.refreshes == 1
    await bench.after(9.9)
    assert bench.cluster.refreshes == 1
    await bench.after(0.2)
    assert bench.cluster.refreshes == 2


# --- acks=0, and the end ----------------------------------------------------------------------------------------------


async def test_without_acknowledgements_a_batch_is_done_when_it_was_handed_over() -> None:
    bench = await Bench(acks=0).start()
    handle = bench.send()
    (question,) = bench.under_way()
    assert not handle.done()
    question.answer.set_result(None)
    await turn()
    assert handle.result(0).offset == -1 and bench.accumulator.free_bytes == MEMORY


async def test_without_acknowledgements_a_stream_that_breaks_has_it_sent_again() -> None:
    bench = await Bench(acks=0).start()
    handle = bench.send()
    bench.cluster.nodes[1].produce.lose()
    await turn()
    assert not handle.done()
    await bench.after(1)
    assert len(bench.under_way()) == 1


async def test_a_close_fails_what_is_left_and_says_whether_it_may_take_effect() -> None:
    bench = await Bench(max_in_flight=1).start()
    under_way, waiting = bench.send(), bench.send()
    bench.sender.close()
    first, second = error_of(under_way), error_of(waiting)
    assert isinstance(first, ClientClosedError) and not first.definite
    assert isinstance(second, ClientClosedError) and second.definite
    assert bench.accumulator.free_bytes == MEMORY
    question = bench.under_way()[0]
    question.answer.set_exception(NetworkError("closed"))
    await turn()
    bench.sender.wake()
    bench.cluster.show(2, epoch=2)
    assert bench.under_way(2) == []


async def test_a_defect_ends_the_producer_and_everybody_hears_of_it(caplog: pytest.LogCaptureFixture) -> None:
    bench = await Bench().start()
    handle = bench.send()
    bench.under_way()[0].answer.set_result(None)
    await turn()
    assert len(bench.crashed) == 1 and error_of(handle) is not None
    assert "the producer has failed" in caplog.text


async def test_an_error_that_is_none_of_ours_is_told_as_such() -> None:
    bench = await Bench(delivery_timeout_ms=100).start()
    handle = bench.send()
    bench.under_way()[0].answer.set_exception(ZeroDivisionError("in gRPC"))
    await turn()
    for _ in range(10):
        await bench.after(0.05)
    error = error_of(handle)
    assert isinstance(error, UnknownServerError | RequestTimedOutError)


# --- alone ----------------------------------------------------------------------------------------------------


async def test_the_sender_comes_back_by_itself_to_what_lingers_fails_or_is_late() -> None:
    bench = Bench(acks=1, linger_ms=5, batch_size=10_000, delivery_timeout_ms=2_000)
    bench.cluster.clock.follow_the_machine()
    handle = bench.send()
    async with asyncio.timeout(30):
        for _ in range(3):
            while not bench.under_way():  # noqa: ASYNC110 - the sender cannot signal the test
                await asyncio.sleep(0.002)
            await bench.refuse(refusal(Code.STORAGE_ERROR))
        with pytest.raises(RequestTimedOutError):
            await handle
    assert bench.accumulator.free_bytes == MEMORY


async def test_timers_of_the_sender_end_with_it() -> None:
    bench = Bench(acks=1, linger_ms=20, batch_size=10_000)
    bench.cluster.clock.follow_the_machine()
    bench.send()
    bench.sender.close()
    woken: list[bool] = []
    bench.sender.wake = lambda: woken.append(True)  # type: ignore[method-assign]
    await asyncio.sleep(0.04)
    assert woken == []


# --- left and return to --------------------------------------------------------------------------------------------


async def test_what_expires_in_a_pause_between_attempts_says_why_and_what_is_behind_goes_on() -> None:
    bench = await Bench(
        acks=1, delivery_timeout_ms=1000, retry_backoff_ms=30_000, retry_backoff_max_ms=30_000, max_in_flight=1
    ).start()
    first = bench.send()
    await bench.refuse(refusal(Code.NOT_ENOUGH_REPLICAS))
    await bench.after(0.9)
    second = bench.send()
    assert bench.under_way() == []
    await bench.after(0.2)
    error = error_of(first)
    assert isinstance(error, RequestTimedOutError) and "not delivered to t-0 within 1 s; last: not_enough_replicas" in (
        error.message
    )
    await bench.after(0.1)
    await bench.acknowledge()
    assert second.exception(0) is None and bench.accumulator.free_bytes == MEMORY


async def test_news_of_a_leader_cut_a_pause_between_attempts_short() -> None:
    bench = await Bench(retry_backoff_ms=30_000, retry_backoff_max_ms=30_000).start()
    bench.send()
    await bench.refuse(refusal(Code.NOT_LEADER_OR_FOLLOWER))
    bench.cluster.nodes[2].suspect = True
    await bench.after(1)
    assert bench.under_way() == [] and bench.sent(2) == []
    bench.cluster.show(2, epoch=2)
    assert bench.sent(2) == [[0]]
    assert not bench.cluster.nodes[2].suspect, "whatever failed there was before it was elected"


async def test_partitions_that_a_topic_has_no_more_give_up_what_waits_and_what_is_under_way() -> None:
    bench = await Bench((1, 1), max_in_flight=1).start()
    under_way, waiting, stays = bench.send(partition=1), bench.send(partition=1), bench.send(partition=0)
    bench.cluster.show(1, topic_id=b"another-topic-id")
    for handle in (under_way, waiting):
        error = error_of(handle)
        assert error is not None and "was created again and has no partition 1" in error.message
    assert not stays.done() and len(bench.topic.partitions) == 1
    await bench.acknowledge(number=-1)
    assert stays.exception(0) is None and bench.accumulator.free_bytes == MEMORY


async def test_a_named_producer_that_is_fenced_ends_with_all_that_it_has() -> None:
    bench = await Bench((1, 1), producer_name="n", acks="all").start()
    first, second = bench.send(), bench.send(partition=1)
    await bench.refuse(refusal(Code.INVALID_PRODUCER_EPOCH, retriable=False))
    assert len(bench.crashed) == 1
    reported = [error_of(handle) for handle in (first, second)]
    assert [error is not None and error.definite for error in reported] == [True, False]
    assert bench.accumulator.free_bytes == MEMORY


async def test_questions_and_claims_under_way_end_with_the_sender() -> None:
    bench = Bench()
    bench.send()
    await turn()
    bench.sender.close()
    await turn(30)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    bench = await Bench().start()
    bench.send()
    await bench.after(0.3)
    assert bench.cluster.nodes[2].data_plane.asked("ListOffsets")
    bench.sender.close()
    await turn(30)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_partition_whose_leader_is_looked_for_is_asked_about_by_its_topic() -> None:
    bench = await Bench(acks=1).start()
    assert not bench.cluster._wanted
    bench.send()
    await bench.refuse(refusal(Code.NOT_LEADER_OR_FOLLOWER))
    assert bench.cluster._wanted == {"t"}


async def test_a_topic_is_kept_while_a_batch_is_under_way_and_asked_for_again_when_it_was_forgotten() -> None:
    bench = await Bench(delivery_timeout_ms=3_600_000, request_timeout_ms=3_600_000).start()

    def pass_idle_time() -> None:
        for _ in range(2):
            bench.cluster.clock.now_s += IDLE_S
            bench.cluster._forget_idle()

    bench.send()
    await turn()
    pass_idle_time()
    assert "t" in bench.cluster.metadata.topics
    await bench.acknowledge()
    pass_idle_time()
    assert "t" not in bench.cluster.metadata.topics
    refreshes = bench.cluster.refreshes
    again = bench.send()
    await turn()
    assert not bench.under_way() and bench.cluster._wanted == {"t"} and bench.cluster.refreshes > refreshes
    bench.cluster.show(1)
    await turn()
    await bench.acknowledge()
    assert error_of(again) is None


# --- requests that are too large, and topics that are another one by now ----------------------------------------------


async def send_together(bench: Bench, partitions: Sequence[int]) -> list[RecordFuture]:
    """A record to each partition, which leave in one turn."""
    size = RECORD_OVERHEAD_BYTES + 1000
    handles = [bench.accumulator.append(bench.topic, p, None, bytes(1000), 1, None, size) for p in partitions]
    bench.sender.wake()
    await turn()
    return [handle for handle in handles if handle is not None]


TOO_LARGE = refusal(Code.RECORD_TOO_LARGE, retriable=False)


async def test_batches_that_are_refused_together_for_their_size_are_sent_again_one_by_one() -> None:
    bench = await Bench((1, 1, 1)).start()
    handles = await send_together(bench, (0, 1, 2))
    await bench.refuse(TOO_LARGE, TOO_LARGE, TOO_LARGE)
    assert not any(handle.done() for handle in handles)
    await bench.after(0.1)
    assert bench.sent()[-3:] == [[0], [1], [2]]
    await bench.refuse(TOO_LARGE, number=1)
    error = error_of(handles[1])
    assert isinstance(error, RecordTooLargeError) and error.definite and not error.retriable
    for _ in range(2):
        await bench.acknowledge()
    assert [handles[number].exception(0) for number in (0, 2)] == [None, None]
    assert bench.accumulator.free_bytes == MEMORY


async def test_a_node_that_takes_less_is_sent_less_at_once_from_then_on() -> None:
    bench = await Bench((1, 1, 1, 1, 2, 2, 2, 2)).start()
    await send_together(bench, range(4))
    await bench.refuse(*[TOO_LARGE] * 4)
    await bench.after(0.1)
    for _ in range(4):
        await bench.acknowledge()
    before = len(bench.sent())
    await send_together(bench, range(8))
    assert bench.sent()[before:] == [[0], [1], [2], [3]] or bench.sent()[before:] == [[0, 1], [2, 3]]
    assert bench.sent(2) == [[4, 5, 6, 7]], "of the other node nothing is known"


async def test_order_holds_when_what_was_refused_together_is_sent_again() -> None:
    """Batches pipelined behind a missing one come to a log with a gap: they are sent after it, and unchanged."""
    bench = await Bench((1, 1)).start()
    handles = await send_together(bench, (0, 1, 0, 1))
    assert bench.sent()[-2:] == [[0, 1], [0, 1]]
    first, second = ([batch for _, _, batch in one.request.batches] for one in bench.under_way())
    await bench.refuse(TOO_LARGE, TOO_LARGE)
    gap = refusal(Code.OUT_OF_ORDER_SEQUENCE_NUMBER, retriable=False)
    await bench.refuse(gap, gap)
    before = len(bench.sent())
    await bench.after(0.1)
    again = [batch for one in bench.cluster.nodes[1].produce.requests[before:] for _, _, batch in one.batches]
    assert again[:2] == first, "the oldest of each partition first, as they were"
    for _ in range(6):
        if bench.under_way():
            await bench.acknowledge()
        await bench.after(0.1)
    sent = [batch for one in bench.cluster.nodes[1].produce.requests[before:] for _, _, batch in one.batches]
    assert sent == [*first, *second]
    assert [handle.exception(0) for handle in handles] == [None] * 4 and bench.crashed == []


def test_a_batch_of_records_that_are_allowed_stays_within_a_request() -> None:
    """Together they may be more than ``max_request_size``, whatever ``batch_size`` says."""
    producer = AsyncProducer(batch_size=8 << 20, max_request_size=1 << 20)
    assert producer._core.accumulator._batch_size == 1 << 20


async def test_the_delivery_time_counts_from_the_send_and_not_from_the_attempt() -> None:
    bench = await Bench(delivery_timeout_ms=1000, request_timeout_ms=10_000, retry_backoff_ms=400).start()
    handle = bench.send()
    await bench.refuse(refusal(Code.NOT_ENOUGH_REPLICAS))
    for _ in range(9):
        await bench.after(0.1)
    assert len(bench.under_way()) == 1 and not handle.done(), "the second attempt is on its way"
    await bench.after(0.15)
    error = error_of(handle)
    assert isinstance(error, RequestTimedOutError) and not error.definite


NEXT_ID = b"another-topic-id"


def names_in(question: Question[OutgoingProduce]) -> set[bytes]:
    return {topic_id for topic_id, _, _ in question.request.batches}


async def test_a_batch_goes_to_the_topic_that_its_sequence_is_for() -> None:
    """Metadata may be newer than the producer's view of them: the next topic has another sequence."""
    bench = await Bench().start()
    response = data_plane_pb2.MetadataResponse(cluster_id="hand-driven", topics=[])
    described = response.topics.add(name="t", topic_id=NEXT_ID)
    described.partitions.add(partition=0, leader=1, leader_epoch=1, replicas=[1])
    response.brokers.add(node_id=1, host="127.0.0.1", port=1)
    bench.cluster.metadata.merge(response)
    bench.send()
    assert names_in(bench.under_way()[0]) == {TOPIC_ID}


@pytest.mark.parametrize("refused", [False, True], ids=["no answer", "refused"])
async def test_what_a_named_producer_has_not_got_acknowledged_does_not_go_to_the_next_topic(refused: bool) -> None:
    """The first batch may be in the deleted topic; in the next one its sequence, 0, would be as good as new."""
    bench = Bench((1, 1), producer_name="n", retry_backoff_ms=5000, retry_backoff_max_ms=5000)
    handle = bench.send()
    await turn()
    await bench.give_identity()
    if refused:
        await bench.refuse(refusal(Code.NOT_ENOUGH_REPLICAS))
    bench.cluster.show(1, 1, topic_id=NEXT_ID)
    await turn()
    error = error_of(handle)
    assert isinstance(error, UnknownTopicOrPartitionError) and not error.retriable
    assert "topic 't' was deleted and created again" in error.message
    assert error.definite is refused, "nothing of a refused attempt takes effect; the other one's outcome is unknown"
    await bench.after(6)
    assert all(names_in(question) == {TOPIC_ID} for question in bench.cluster.nodes[1].produce.questions)
    assert bench.accumulator.free_bytes == MEMORY


async def test_a_named_producer_says_at_the_next_record_that_its_topic_is_another_one() -> None:
    bench = await Bench((1, 1), producer_name="n").start()
    bench.cluster.show(1, 1, topic_id=NEXT_ID)
    await turn()
    assert bench.crashed == [], "it may be done with that topic"
    handle = bench.send()
    await turn()
    error = error_of(handle)
    assert error is not None and "topic 't' was deleted and created again" in error.message
    assert len(bench.crashed) == 1 and len(bench.sent()) == 1


async def test_a_named_producer_sends_to_a_topic_that_it_meets_anew() -> None:
    """A partition that it has sent nothing to can have nothing in the former topic."""
    bench = await Bench((1, 1), producer_name="n").start()
    bench.sender._pipeline("t", 1)
    bench.cluster.show(1, 1, topic_id=NEXT_ID)
    bench.send(partition=1)
    assert names_in(bench.under_way()[0]) == {NEXT_ID} and bench.crashed == []
