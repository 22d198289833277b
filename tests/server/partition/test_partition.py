"""One partition's state machine over a real Raft core and a log in memory."""

import pytest
from partition_rig import GROUP, NOW_MS, Rig, batch

from quorumlog.raft.options import RaftOptions
from quorumlog.raft.types import (
    EntryKind,
    VoteRequest,
)
from quorumlog.server.config.options import NodeLimits
from quorumlog.server.hosting.sealing import GroupSealer
from quorumlog.server.metadata.records import FEATURE_LEVEL, FIRST_FEATURE_LEVEL
from quorumlog.server.metadata.topic_config import TopicConfig
from quorumlog.server.partition.acknowledgements import ACKS_ALL, ACKS_LEADER, ACKS_NONE, ProduceCall
from quorumlog.server.partition.batch_admission import MAX_AHEAD_MS
from quorumlog.server.partition.partition import MAX_OFFSET, Partition
from quorumlog.v1 import data_plane_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.partition_log_pb2 import PartitionSnapshot
from quorumlog.wire.entry import SEQUENCE_MODULUS, Codec, TimestampType, build_batch, parse_header, verify


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.lead()
    return rig


def test_offsets_are_dense_and_independent_of_raft_indexes(rig: Rig) -> None:
    results = []
    for count in (3, 1, 5):
        problem, result = rig.produce(batch(count))
        assert problem is None
        results.append(result)
    rig.settle()
    assert [result.base_offset for result in results] == [0, 3, 4]
    assert rig.partition.high_watermark == 9


def test_an_acknowledgement_waits_for_the_disk(rig: Rig) -> None:
    problem, result = rig.produce(batch())
    assert problem is None
    ready = rig.raft.take_ready()
    assert rig.partition.resolve_acknowledgements() == []
    assert rig.partition.high_watermark == 0
    rig.log.log.update((entry.index, entry) for entry in ready.entries)
    assert ready.durable is not None
    rig.raft.on_durable(5, ready.durable)
    assert len(rig.settle()) == 1
    assert result.base_offset == 0


@pytest.mark.scenario("22a")
def test_a_retry_waits_for_its_original_and_gets_its_offset(rig: Rig) -> None:
    first, second = batch(sequence=0, producer=7), batch(sequence=3, producer=7)
    rig.produce(first)
    rig.produce(second)
    problem, result = rig.produce(first)
    assert problem is None
    assert rig.partition.resolve_acknowledgements() == []
    assert len(rig.settle()) == 3
    assert result.base_offset == 0
    assert rig.partition.high_watermark == 6


def test_entries_are_stored_sealed_and_chained(rig: Rig) -> None:
    for _ in range(3):
        rig.produce(batch())
    rig.settle()
    envelopes = [verify(entry.data) for _, entry in sorted(rig.log.log.items())]
    assert [envelope.index for envelope in envelopes] == [1, 2, 3, 4]
    hashes = [0, *(entry.hash for _, entry in sorted(rig.log.log.items()))]
    assert [envelope.previous_hash for envelope in envelopes] == hashes[:-1]


def test_reading_starts_with_the_batch_that_holds_the_offset(rig: Rig) -> None:
    for _ in range(3):
        rig.produce(batch(count=4))
    rig.settle()
    assert [parse_header(entry).base_offset for entry in rig.partition.read(5, 1 << 20)] == [4, 8]
    assert [parse_header(entry).base_offset for entry in rig.partition.read(5, 1)] == [4]
    assert rig.partition.read(12, 1 << 20) == []


def test_a_time_of_just_an_hour_ahead_is_taken(rig: Rig) -> None:
    assert rig.produce(batch(timestamp_ms=NOW_MS + MAX_AHEAD_MS))[0] is None


def test_append_time_is_the_leaders(rig: Rig) -> None:
    rig.partition.config = TopicConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    _, result = rig.produce(batch(timestamp_ms=5))
    rig.settle()
    header = parse_header(rig.partition.read(0, 1)[0])
    assert (header.timestamp_type, header.max_timestamp_ms) == (TimestampType.LOG_APPEND_TIME, NOW_MS)
    assert result.log_append_time_ms == NOW_MS


@pytest.mark.parametrize(
    ("bad", "acks", "live", "code"),
    [
        (batch(size=2 << 20), ACKS_ALL, 1, ErrorCode.RECORD_TOO_LARGE),
        (b"nonsense", ACKS_ALL, 1, ErrorCode.CORRUPT_MESSAGE),
        (batch()[:-1] + b"y", ACKS_ALL, 1, ErrorCode.CORRUPT_MESSAGE),
        (batch()[:-3], ACKS_ALL, 1, ErrorCode.CORRUPT_MESSAGE),
        (batch(timestamp_ms=NOW_MS + MAX_AHEAD_MS + 1), ACKS_ALL, 1, ErrorCode.INVALID_TIMESTAMP),
        (batch(sequence=0, producer=7), ACKS_LEADER, 1, ErrorCode.INVALID_REQUIRED_ACKS),
        (batch(sequence=9, producer=7), ACKS_ALL, 1, ErrorCode.UNKNOWN_PRODUCER_ID),
        (batch(sequence=4), ACKS_ALL, 1, ErrorCode.INVALID_RECORD),
        (batch(count=SEQUENCE_MODULUS), ACKS_ALL, 1, ErrorCode.INVALID_RECORD),
        (batch(count=(1 << 32) - 1, sequence=0, producer=7), ACKS_ALL, 1, ErrorCode.INVALID_RECORD),
        (batch(), ACKS_ALL, 0, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
def test_what_is_refused_changes_nothing(rig: Rig, bad: bytes, acks: int, live: int, code: ErrorCode.ValueType) -> None:
    problem, _ = rig.produce(bad, acks, live)
    assert problem is not None
    assert problem.code == code
    assert problem.definite
    assert "\n" not in problem.message
    assert rig.partition.log_end_offset == 0
    assert not rig.raft.has_ready()


def test_offsets_end_where_64_bits_end(rig: Rig) -> None:
    rig.partition.log_end_offset = MAX_OFFSET - 3
    problem, _ = rig.produce(batch(count=4))
    assert problem is not None
    assert (problem.code, problem.definite, problem.retriable) == (ErrorCode.INVALID_RECORD, True, False)
    assert rig.produce(batch(count=3))[0] is None
    assert rig.partition.log_end_offset == MAX_OFFSET
    assert rig.produce(batch(count=1))[0] is not None


def test_a_follower_refuses_and_says_who_leads() -> None:
    problem, _ = Rig().produce(batch())
    assert problem is not None
    assert problem.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_whoever_waits_when_a_leadership_ends_is_told_that_nobody_knows(rig: Rig) -> None:
    refused, result = rig.produce(batch())
    assert refused is None
    last = rig.raft.last_id
    rig.raft.step(3, VoteRequest(2, 1, rig.raft.term + 1, last.index, last.term, transfer=True))
    done = rig.settle(durable=False)
    assert [call.request_id for call in done] == [rig.calls]
    assert result.error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not result.error.definite


def test_whoever_waits_when_the_replica_ends_is_told_that_nobody_knows(rig: Rig) -> None:
    _, result = rig.produce(batch())
    (call,) = rig.partition.end()
    assert call.done
    assert result.error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not result.error.definite, "the other replicas may have it"
    assert not rig.partition.leads


def test_acks_none_is_answered_by_nobody(rig: Rig) -> None:
    problem, result = rig.produce(batch(), ACKS_NONE)
    assert problem is None
    assert result.base_offset == -1
    assert rig.settle() == []
    assert rig.partition.high_watermark == 3


@pytest.mark.parametrize("acks", [ACKS_NONE, ACKS_LEADER, ACKS_ALL])
def test_a_leader_takes_no_more_than_so_much_that_is_not_committed_whatever_the_acks(acks: int) -> None:
    rig = Rig(RaftOptions(max_uncommitted_bytes=1_000))
    rig.lead()
    taken = 0
    while (problem := rig.produce(batch(count=1, size=200), acks)[0]) is None:
        taken += 1
        assert taken < 10
    assert (problem.code, problem.retriable, problem.definite) == (ErrorCode.SERVER_BUSY, True, True)
    rig.settle()
    assert rig.partition.high_watermark == taken, "what was refused is not there"
    assert rig.produce(batch(count=1), acks)[0] is None, "what was committed makes room"


def test_batches_that_nobody_waits_for_are_not_remembered_for_ever(rig: Rig) -> None:
    for _ in range(100):
        assert rig.produce(batch(), ACKS_NONE)[0] is None
        rig.settle()
    assert len(rig.partition._not_durable) == 0


def test_a_negative_producer_id_is_refused_since_it_would_never_be_recognised_again(rig: Rig) -> None:
    for producer in (-2, -5):
        bad = build_batch(
            b"x",
            record_count=1,
            codec=Codec.NONE,
            base_timestamp_ms=NOW_MS,
            max_timestamp_ms=NOW_MS,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
        )
        problem, _ = rig.produce(bad)
        assert problem is not None
        assert problem.code == ErrorCode.INVALID_RECORD


def test_a_client_of_another_epoch_is_fenced(rig: Rig) -> None:
    term = rig.raft.term
    for epoch, code in ((term - 1, ErrorCode.FENCED_LEADER_EPOCH), (term + 1, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        problem = rig.partition.check_readable(epoch)
        assert problem is not None
        assert problem.code == code
    assert rig.partition.check_readable(term) is None


def test_offsets_outside_the_log_are_refused(rig: Rig) -> None:
    rig.produce(batch(count=4))
    rig.settle()
    assert rig.partition.check_offset(4) is None
    for offset in (-1, 5):
        problem = rig.partition.check_offset(offset)
        assert problem is not None
        assert problem.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_table_brings_the_state_back(rig: Rig) -> None:
    rig.produce(batch(sequence=0, producer=7))
    rig.settle()
    rows = {key: row for key, row in rig.partition.take_rows().items() if row is not None}
    again = Partition(rig.partition.identity, rig.raft, GroupSealer(GROUP), rig.log, rows, NodeLimits())
    assert again.high_watermark == 3
    again.update_leadership()
    call = ProduceCall(1, data_plane_pb2.ProduceResponse(results=[data_plane_pb2.ProduceResult()]), 1 << 60, 1, {0})
    assert again.append(3, NOW_MS, batch(sequence=0, producer=7), ACKS_ALL, call, 0, 1) is None
    assert again.log_end_offset == 3, "the retry was taken for a duplicate"


def test_the_log_says_once_and_before_the_first_named_batch_that_those_are_counted_apart(rig: Rig) -> None:
    rig.level = FIRST_FEATURE_LEVEL
    rig.produce(batch(1, sequence=0, producer=7))
    rig.produce(batch(1, sequence=0, producer=rig.named))
    rig.settle()
    assert rig.commands() == [], "a node of the former version would stop at it"
    assert not rig.partition.producers.named_apart
    rig.level = FEATURE_LEVEL
    rig.produce(batch(1, sequence=1, producer=7))
    rig.settle()
    assert rig.commands() == [], "without named producers it makes no difference"
    for sequence in (1, 2):
        rig.produce(batch(1, sequence=sequence, producer=rig.named))
    rig.settle()
    rig.produce(batch(1, sequence=3, producer=rig.named))
    rig.settle()
    assert rig.commands() == ["count_named_apart"]
    assert rig.partition.producers.named_apart
    kinds = [entry.kind for _, entry in sorted(rig.log.log.items())][-4:]
    assert kinds == [EntryKind.COMMAND, *[EntryKind.BATCH] * 3]


def test_a_state_is_not_cut_while_a_node_would_take_its_last_slice_for_all(rig: Rig) -> None:
    rig.partition._limits = NodeLimits(snapshot_slice_bytes=60)
    for producer in range(5):
        rig.produce(batch(1, sequence=0, producer=producer))
    rig.settle()
    assert len(rig.partition.state_slices(5)) > 1
    rig.level = FIRST_FEATURE_LEVEL
    (whole,) = rig.partition.state_slices(5)
    assert len(PartitionSnapshot.FromString(whole).rows) == 5
