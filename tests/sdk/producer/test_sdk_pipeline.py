"""One partition's batches stay in order and end up in the log once, whatever becomes of their attempts."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripted_cluster import Code, Log

from quorumlog.sdk.errors import (
    InvalidTimestampError,
    NetworkError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    OutOfOrderSequenceNumberError,
    QuorumlogError,
    RecordTooLargeError,
    RequestTimedOutError,
    ServerBusyError,
    StorageError,
    UnknownProducerIdError,
)
from quorumlog.sdk.producer.batch import ProducerBatch
from quorumlog.sdk.producer.identity import ProducerIdentity
from quorumlog.sdk.producer.partition_pipeline import AttemptVerdict, PartitionPipeline, final_error
from quorumlog.sdk.records.record_batch import decode
from quorumlog.wire.entry import Codec, parse_header


def new_batch(number: int = 0, created_s: float = 0.0) -> ProducerBatch:
    batch = ProducerBatch("t", 0, created_s, 0)
    batch.room = 1
    batch.add(None, b"%d" % number, number, None)
    batch.close()
    return batch


def pipeline_with(count: int, *, idempotent: bool = True) -> tuple[PartitionPipeline, list[ProducerBatch]]:
    pipeline = PartitionPipeline("t", 0, idempotent=idempotent, max_in_flight=5, codec=Codec.NONE)
    if idempotent:
        pipeline.adopt(ProducerIdentity(7, 0), 0.0)
    batches = [new_batch(i) for i in range(count)]
    for batch in batches:
        pipeline.take_batch(batch)
        batch.attempt = object()
    return pipeline, batches


def test_sequences_are_given_in_order_and_at_most_five_batches_fly() -> None:
    pipeline, batches = pipeline_with(5)
    assert [batch.sequence for batch in batches] == [0, 1, 2, 3, 4]
    assert not pipeline.can_take()
    pipeline.succeeded(batches[0], 1.0)
    assert pipeline.can_take()


def test_the_log_never_has_to_remember_more_than_five_batches_to_recognise_the_oldest() -> None:
    pipeline, batches = pipeline_with(5)
    for batch in batches[1:]:
        pipeline.succeeded(batch, 1.0)  # The oldest is still awaited, perhaps of a leader that was replaced.
    assert not pipeline.can_take()
    pipeline.succeeded(batches[0], 1.0)
    assert pipeline.can_take()


def test_after_a_failure_everything_unanswered_goes_out_again_in_order_before_anything_new() -> None:
    pipeline, batches = pipeline_with(3)
    for batch in (batches[0], batches[1], batches[2]):
        assert pipeline.failed(batch, NetworkError("lost"), expired=False) is AttemptVerdict.RETRY
        pipeline.retry_after(1.0, 0.02)
    assert not pipeline.can_take()
    assert pipeline.due(1.01) == []
    assert pipeline.due(1.02) == batches


def test_a_batch_behind_a_failed_one_is_refused_and_waits_for_it() -> None:
    pipeline, batches = pipeline_with(2)
    assert pipeline.failed(batches[0], NotEnoughReplicasError("two down"), expired=False) is AttemptVerdict.RETRY
    refusal = OutOfOrderSequenceNumberError("gap")
    assert pipeline.failed(batches[1], refusal, expired=False) is AttemptVerdict.RETRY
    assert not pipeline.gap
    pipeline.retry_after(0.0, 0.0)
    assert pipeline.due(0.0) == batches


REFUSALS = (NotEnoughReplicasError, ServerBusyError, StorageError)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_gap_counts_only_where_nothing_in_front_is_still_to_be_sent(data: st.DataObject) -> None:
    """The log does not contain the producer, so it accepts the first batch only; what it answers comes in any order."""
    pipeline, batches = pipeline_with(data.draw(st.integers(2, 5)))
    log = 0
    for _ in range(12):
        under_way = [batch for batch in pipeline.in_flight if batch.attempt is not None]
        if not under_way:
            pipeline.retry_after(0.0, 0.0)
            under_way = pipeline.due(0.0)
            for batch in under_way:
                batch.attempt = object()
        # The leader looks at them in the order in which they were sent; its answers need not come so.
        answers: list[tuple[ProducerBatch, QuorumlogError | None]] = []
        for batch in under_way:
            if batch.sequence != log:
                unknown = UnknownProducerIdError("who?") if log == 0 else OutOfOrderSequenceNumberError("gap")
                answers.append((batch, unknown))
            elif data.draw(st.booleans()):
                answers.append((batch, data.draw(st.sampled_from(REFUSALS))("not now")))
            else:
                answers.append((batch, None))
                log += 1
        for batch, refusal in data.draw(st.permutations(answers)):
            if refusal is None:
                pipeline.succeeded(batch, 0.0)
            else:
                assert pipeline.failed(batch, refusal, expired=False) is AttemptVerdict.RETRY
            assert not pipeline.gap, "a named producer would end here"
        if not pipeline.in_flight:
            break
    assert log == len(batches) - len(pipeline.in_flight)


@pytest.mark.parametrize("error", [UnknownProducerIdError, OutOfOrderSequenceNumberError])
def test_the_oldest_batch_that_the_log_cannot_take_is_a_gap(error: type[QuorumlogError]) -> None:
    pipeline, batches = pipeline_with(2)
    pipeline.succeeded(batches[0], 0.0)
    assert pipeline.failed(batches[1], error("forgotten"), expired=False) is AttemptVerdict.RETRY
    assert pipeline.gap


def test_a_sequence_wraps_at_2_to_the_31() -> None:
    pipeline = PartitionPipeline("t", 0, idempotent=True, max_in_flight=5, codec=Codec.NONE, first_sequence=2**31 - 1)
    pipeline.adopt(ProducerIdentity(7, 0), 0.0)
    batches = [new_batch(number) for number in range(3)]
    for batch in batches:
        pipeline.take_batch(batch)
        batch.attempt = object()
    assert [batch.sequence for batch in batches] == [2**31 - 1, 0, 1]
    assert pipeline.next_sequence == 2
    assert [parse_header(batch.entry or b"").base_sequence for batch in batches] == [2**31 - 1, 0, 1]


def test_a_node_that_may_not_lead_is_sent_only_the_oldest() -> None:
    pipeline, batches = pipeline_with(3)
    for batch in batches:
        pipeline.failed(batch, NetworkError("lost"), expired=False)
    pipeline.retry_after(0.0, 0.0)
    assert pipeline.due(0.0, only_oldest=True) == batches[:1]
    batches[0].attempt = object()
    pipeline.succeeded(batches[0], 0.5)
    assert pipeline.due(0.5) == batches[1:]


@pytest.mark.scenario("26")
def test_a_definite_refusal_after_a_time_out_is_not_believed() -> None:
    pipeline, (batch,) = pipeline_with(1)
    assert pipeline.failed(batch, RequestTimedOutError("no answer"), expired=False) is AttemptVerdict.RETRY
    refusal = InvalidTimestampError("too far ahead")
    assert (refusal.definite, refusal.retriable) == (True, False)
    assert pipeline.failed(batch, refusal, expired=False) is AttemptVerdict.RETRY
    assert pipeline.failed(batch, refusal, expired=True) is AttemptVerdict.FAIL
    reported = final_error(batch, refusal)
    assert isinstance(reported, InvalidTimestampError)
    assert not reported.definite
    assert "may have taken effect" in reported.message


def test_a_refusal_of_the_only_attempt_is_definite_and_its_number_is_used_again() -> None:
    pipeline, (batch,) = pipeline_with(1)
    assert pipeline.failed(batch, RecordTooLargeError("1 MiB"), expired=False) is AttemptVerdict.FAIL
    assert final_error(batch, RecordTooLargeError("1 MiB")).definite
    assert (pipeline.next_sequence, pipeline.gap) == (0, False)


def test_what_follows_a_definitely_failed_batch_goes_on_under_a_fresh_identity() -> None:
    pipeline, (first, second, third) = pipeline_with(3)
    assert pipeline.failed(first, RecordTooLargeError("1 MiB"), expired=False) is AttemptVerdict.FAIL
    assert pipeline.failed(second, OutOfOrderSequenceNumberError("gap"), expired=False) is AttemptVerdict.RETRY
    assert not pipeline.needs_identity  # The third may still be answered.
    assert pipeline.failed(third, NetworkError("lost"), expired=False) is AttemptVerdict.RETRY
    assert pipeline.needs_identity
    pipeline.adopt(ProducerIdentity(8, 0), 5.0)
    assert [(b.identity, b.sequence, b.maybe_applied) for b in (second, third)] == [
        (ProducerIdentity(8, 0), 0, False),
        (ProducerIdentity(8, 0), 1, False),
    ]
    assert pipeline.due(5.0) == [second, third]


def test_a_batch_that_may_be_in_the_log_is_never_given_another_sequence() -> None:
    pipeline, (first, second) = pipeline_with(2)
    assert pipeline.failed(first, NetworkError("lost"), expired=True) is AttemptVerdict.FAIL
    assert not final_error(first, NetworkError("lost")).definite
    assert pipeline.failed(second, NetworkError("lost"), expired=False) is AttemptVerdict.RETRY
    assert pipeline.gap
    assert not pipeline.needs_identity
    pipeline.retry_after(0.0, 0.0)
    assert pipeline.due(0.0) == [second]
    assert second.sequence == 1
    assert pipeline.failed(second, OutOfOrderSequenceNumberError("gap"), expired=False) is AttemptVerdict.FAIL
    assert not final_error(second, OutOfOrderSequenceNumberError("gap")).definite


def test_what_a_deleted_topic_may_have_taken_in_never_fails_for_certain() -> None:
    pipeline, (reported, under_way, refused) = pipeline_with(3)
    assert pipeline.failed(reported, NetworkError("lost"), expired=False) is AttemptVerdict.RETRY
    assert pipeline.failed(refused, NotEnoughReplicasError("wait"), expired=False) is AttemptVerdict.RETRY
    pipeline.begin_anew(b"another")
    # The new topic has none of the later records; it has no state of those that were read in the former one.
    error = NotEnoughReplicasError("wait")
    assert [final_error(batch, error).definite for batch in (reported, under_way, refused)] == [False, False, True]


def test_without_idempotence_a_definite_refusal_ends_it_but_is_said_to_be_indefinite() -> None:
    pipeline, (batch,) = pipeline_with(1, idempotent=False)
    assert batch.sequence == -1
    assert pipeline.failed(batch, RequestTimedOutError("no answer"), expired=False) is AttemptVerdict.RETRY
    assert pipeline.failed(batch, InvalidTimestampError("bad"), expired=False) is AttemptVerdict.FAIL
    assert not final_error(batch, InvalidTimestampError("bad")).definite


@dataclass
class Sent:
    """An attempt's bytes, somewhere between the client and the log."""

    batch: ProducerBatch
    token: object
    entry: bytes


class Storm:
    """A pipeline, a log, and a network in between that loses, delays and reorders attempts."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.pipeline = PartitionPipeline("t", 0, idempotent=True, max_in_flight=5, codec=Codec.NONE)
        self.log = Log()
        self.expected: list[Sent] = []
        self.astray: list[Sent] = []
        self.batches: list[ProducerBatch] = []
        self.acknowledged: dict[ProducerBatch, int] = {}
        self.failures: dict[ProducerBatch, QuorumlogError] = {}
        self.identities = 0

    def step(self) -> None:
        """Something happens."""
        pipeline, rng = self.pipeline, self.rng
        if pipeline.needs_identity:
            self.identities += 1
            pipeline.adopt(ProducerIdentity(self.identities, 0), 0.0)
        for batch in pipeline.due(0.0, only_oldest=rng.random() < 0.3):
            self.send(batch)
        what = rng.choice(["new", "new", "answer", "answer", "answer", "lose", "refuse", "late", "expire"])
        if what == "new" and pipeline.can_take():
            batch = new_batch(len(self.batches))
            self.batches.append(batch)
            pipeline.take_batch(batch)
            self.send(batch)
        elif what == "late" and self.astray:
            self.log.append(self.astray.pop(rng.randrange(len(self.astray))).entry)
        elif what == "expire" and rng.random() < 0.3:
            self.expire()
        elif self.expected:
            self.happen(what, self.expected.pop(0))

    def send(self, batch: ProducerBatch) -> None:
        assert batch.attempt is None
        assert batch.entry is not None
        batch.attempt = token = object()
        self.expected.append(Sent(batch, token, batch.entry))

    def happen(self, what: str, sent: Sent) -> None:
        """The oldest attempt under way is carried out and answered, or not."""
        if what == "answer":
            base, code = self.log.append(sent.entry)
            if code == Code.NONE:
                self.succeed(sent, base)
            else:
                self.fail(sent, OutOfOrderSequenceNumberError("gap"))
        elif what == "lose":
            if self.rng.random() < 0.5:
                self.log.append(sent.entry)
            else:
                self.astray.append(sent)
            self.fail(sent, NetworkError("lost"))
        elif what == "refuse":
            errors = [
                NotLeaderForPartitionError("elsewhere"),
                InvalidTimestampError("bad"),
                NotEnoughReplicasError("few"),
            ]
            self.fail(sent, self.rng.choice(errors))
        else:
            self.expected.insert(0, sent)

    def succeed(self, sent: Sent, base: int) -> None:
        if sent.batch in self.failures or sent.batch in self.acknowledged:
            return
        self.pipeline.succeeded(sent.batch, 0.0)
        self.acknowledged[sent.batch] = base

    def fail(self, sent: Sent, error: QuorumlogError, expired: bool = False) -> None:
        if sent.batch.attempt is not sent.token:
            return
        if self.pipeline.failed(sent.batch, error, expired=expired) is AttemptVerdict.FAIL:
            self.failures[sent.batch] = final_error(sent.batch, error)
        else:
            self.pipeline.retry_after(0.0, 0.0)

    def expire(self) -> None:
        """The delivery time of the oldest batch is over."""
        if not self.pipeline.in_flight:
            return
        batch = self.pipeline.in_flight[0]
        for sent in [sent for sent in self.expected if sent.token is batch.attempt]:
            self.expected.remove(sent)
            self.astray.append(sent)
            self.fail(sent, RequestTimedOutError("too late"), expired=True)
            return
        batch.created_s = -1.0
        for late in self.pipeline.expired(0.0):
            self.failures[late] = final_error(late, RequestTimedOutError("too late"))

    def settle(self) -> None:
        """The network heals, and every straggler arrives."""
        for _ in range(200):
            if self.pipeline.needs_identity:
                self.identities += 1
                self.pipeline.adopt(ProducerIdentity(self.identities, 0), 0.0)
            for batch in self.pipeline.due(0.0):
                self.send(batch)
            while self.expected:
                self.happen("answer", self.expected.pop(0))
            if not self.pipeline.in_flight:
                break
        assert not self.pipeline.in_flight
        while self.astray:
            self.log.append(self.astray.pop().entry)


@pytest.mark.scenario("26")
@pytest.mark.parametrize("seed", range(60))
def test_in_any_storm_acknowledged_batches_are_there_once_and_in_order_and_definite_failures_never(seed: int) -> None:
    print(f"seed {seed}")
    storm = Storm(seed)
    for _ in range(150):
        storm.step()
    storm.settle()
    places: dict[int, int] = {}
    for entry in storm.log.entries:
        number = _number_in(entry)
        assert number not in places, f"batch {number} is in the log twice"
        places[number] = parse_header(entry).base_offset
    for batch, base in storm.acknowledged.items():
        assert places[storm.batches.index(batch)] == base
    acknowledged = sorted(storm.batches.index(batch) for batch in storm.acknowledged)
    offsets = [places[number] for number in acknowledged]
    assert offsets == sorted(offsets), "acknowledged batches are out of order"
    for batch, error in storm.failures.items():
        assert not (error.definite and storm.batches.index(batch) in places), "failed definitely, and yet in the log"
    assert len(storm.acknowledged) + len(storm.failures) == len(storm.batches)


def _number_in(entry: bytes) -> int:
    value: bytes = decode(entry).columns.column(1)[0].as_py()
    return int(value)
