"""Fetch sessions on the node: positions advance automatically, and only changed partitions are read and reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import pytest
from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.config.options import NodeLimits
from quorumlog.server.replicas.replicas import Replicas
from quorumlog.server.requests.fetch import FetchRequests
from quorumlog.server.requests.partition_errors import PartitionErrors
from quorumlog.server.step.events import ClientRequest, Reply
from quorumlog.server.step.node_service import StepTime
from quorumlog.server.step.replies import Replies
from quorumlog.server.step.request_context import RequestContext
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import Codec, build_batch, parse_header, seal_batch

TOPIC = b"t" * 16
STREAM = 7
MS = 1_000


class Log:
    """A partition as a fetch sees it."""

    def __init__(self, group: int) -> None:
        self.group = group
        self.name = f"orders-{group - 1}"
        self.entries: list[bytes] = []
        self.high_watermark = self.log_start_offset = self.compacted_offset = 0
        self.restoration = self.transactions = None
        self.leads, self.follows = True, False
        self.raft = self
        self.term = 1
        self.reads = self.read_bytes = 0

    def append(self, count: int = 1, size: int = 100) -> None:
        batch = build_batch(b"x" * size, record_count=count, codec=Codec.NONE, base_timestamp_ms=1, max_timestamp_ms=1)
        self.entries.append(
            seal_batch(batch, group=self.group, term=1, index=1, previous_hash=0, base_offset=self.high_watermark)
        )
        self.high_watermark += count

    def check_readable(self, leader_epoch: int) -> errors_pb2.Error | None:
        self.reads += 1
        return None if self.leads else error(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved")

    def check_follower(self, leader_epoch: int) -> None:
        """It is in contact with a leader."""

    def set_readers(self, has_readers: bool) -> None:
        self.has_readers = has_readers

    def check_offset(self, offset: int) -> errors_pb2.Error | None:
        inside = self.log_start_offset <= offset and (self.follows or offset <= self.high_watermark)
        return None if inside else error(ErrorCode.OFFSET_OUT_OF_RANGE, "outside")

    def read(self, offset: int, max_bytes: int) -> list[bytes]:
        found: list[bytes] = []
        for entry in self.entries:
            if parse_header(entry).last_offset >= offset:
                if found and sum(map(len, found)) + len(entry) > max_bytes:
                    break
                found.append(entry)
        return found


class Rig:
    """A node's fetches over some logs."""

    def __init__(self, partitions: int = 3, **limits: int) -> None:
        self.logs = [Log(number + 1) for number in range(partitions)]
        self.replies: dict[int, pb.FetchResponse] = {}
        self.order: list[int] = []
        self.requests = 0
        self.now = 0
        self.fetches = FetchRequests(
            cast(Replicas, self),
            NodeLimits(**cast(Any, limits)),
            cast(Replies, self),
            cast(PartitionErrors, self),
            self,
        )

    def find(self, topic_id: bytes, number: int) -> Log | None:
        return self.logs[number] if number < len(self.logs) else None

    in_sync = True

    def is_in_sync(self, log: object) -> bool:
        return self.in_sync

    rights_version = 0
    handed_out_bytes = 0

    def most_bytes(self, principal: str, wanted: int) -> int:
        """Returns the requested size: no client is limited."""
        return wanted

    def handed_out(self, principal: str, size_bytes: int) -> None:
        self.handed_out_bytes += size_bytes

    def too_old(self, client: object) -> None:
        return None

    def read_as_empty(self, client: object, topic_id: bytes, number: int) -> None:
        return None

    def refusal(self, client: RequestContext, operation: int, topic_id: bytes) -> None:
        """Returns None: every client may read everything."""

    def problem(self, topic_id: bytes, number: int) -> errors_pb2.Error:
        return error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "gone")

    def reply(self, request_id: int, message: ProtoMessage, entries: Sequence[Sequence[bytes]] = ()) -> None:
        answer = Reply(request_id, message, entries).message
        assert isinstance(answer, pb.FetchResponse) and request_id not in self.replies
        self.replies[request_id] = answer
        self.order.append(request_id)

    def ask(
        self,
        epoch: int,
        wanted: dict[int, int] | Iterable[int] = (),
        *,
        forgotten: Iterable[int] = (),
        stream: int = STREAM,
        **fields: int,
    ) -> int:
        self.requests += 1
        offsets = wanted if isinstance(wanted, dict) else dict.fromkeys(wanted, 0)
        request = pb.FetchRequest(
            correlation_id=self.requests,
            max_wait_ms=500,
            session_epoch=epoch,
            partitions=[
                pb.FetchPartition(topic_id=TOPIC, partition=number, fetch_offset=offset, leader_epoch=-1)
                for number, offset in offsets.items()
            ],
            forgotten=[pb.ForgottenPartition(topic_id=TOPIC, partition=number) for number in forgotten],
        )
        for name, value in fields.items():
            setattr(request, name, value)
        self.fetches.fetch(StepTime(self.now, 0), ClientRequest(self.requests, request, stream=stream), request)
        return self.requests

    def answered(self, request_id: int) -> dict[int, list[int]]:
        """Returns the base offsets of the entries that were sent, by partition."""
        return {
            result.partition: [parse_header(entry).base_offset for entry in result.entries]
            for result in self.replies[request_id].results
        }

    def changed(self, number: int) -> None:
        if self.logs[number].group in self.fetches.watches:
            self.fetches.after_round(self.now, cast(Any, self.logs[number]))

    def append(self, number: int, **of: int) -> None:
        self.logs[number].append(**of)
        self.changed(number)

    def pass_ms(self, milliseconds: int) -> None:
        self.now += milliseconds * MS
        self.fetches.on_time(self.now, 0)


def test_positions_move_by_themselves_and_only_news_is_told() -> None:
    rig = Rig()
    for number in range(3):
        rig.logs[number].append()
    assert rig.answered(rig.ask(1, range(3))) == {0: [0], 1: [0], 2: [0]}
    waiting = rig.ask(2)
    rig.append(1)
    assert rig.answered(waiting) == {1: [1]}
    idle = rig.ask(3)
    rig.pass_ms(499)
    assert idle not in rig.replies
    rig.pass_ms(1)
    assert rig.replies[idle] == pb.FetchResponse(correlation_id=idle)


def test_a_first_answer_tells_of_every_partition_even_if_there_is_nothing_to_read() -> None:
    rig = Rig()
    first = rig.ask(1, range(3))
    rig.pass_ms(500)
    assert rig.answered(first) == {0: [], 1: [], 2: []}


@pytest.mark.parametrize("epoch", [0, 1], ids=["alone", "in a session"])
def test_a_waiting_fetch_reads_only_what_changed(epoch: int) -> None:
    rig = Rig(1000)
    waiting = rig.ask(epoch, range(1000))
    read = [log.reads for log in rig.logs]
    rig.append(77)
    assert rig.answered(waiting)[77] == [0]
    assert [log.reads - before for log, before in zip(rig.logs, read, strict=True) if log.reads != before] == [1]
    for other in (5, 5, 77):
        rig.changed(other)
    assert sum(log.reads for log in rig.logs) == 1001


def test_changes_between_requests_are_not_lost_and_cost_one_look() -> None:
    rig = Rig(100)
    first = rig.ask(1, range(100))
    rig.pass_ms(500)
    assert len(rig.answered(first)) == 100
    before = sum(log.reads for log in rig.logs)
    for _ in range(3):
        rig.append(9)
    rig.append(3)
    assert rig.answered(rig.ask(2)) == {9: [0, 1, 2], 3: [0]}
    assert sum(log.reads for log in rig.logs) == before + 2


def test_who_has_waited_longest_comes_first_when_an_answer_is_full() -> None:
    rig = Rig()
    for number in range(3):
        for _ in range(4):
            rig.logs[number].append(size=900)
    served = [rig.answered(rig.ask(1, range(3), max_bytes=900))]
    served += [rig.answered(rig.ask(epoch, max_bytes=900)) for epoch in range(2, 13)]
    assert [next(iter(answer)) for answer in served] == [0, 1, 2] * 4
    assert [offsets for answer in served for offsets in answer.values()] == [[n] for n in range(4) for _ in range(3)]


def test_the_next_request_takes_the_place_of_the_one_that_waits() -> None:
    rig = Rig()
    first = rig.ask(1, [0])
    second = rig.ask(2, [1], forgotten=[0])
    assert rig.replies[first] == pb.FetchResponse(correlation_id=first)
    rig.append(0)
    assert second not in rig.replies
    rig.append(1)
    assert rig.answered(second) == {1: [0]}
    assert rig.order == [first, second]


def test_what_a_superseded_request_would_have_said_is_said_by_the_next() -> None:
    rig = Rig()
    first = rig.ask(1, range(2), min_bytes=10_000)
    rig.append(0)
    second = rig.ask(2, [2])
    assert not rig.replies[first].results
    assert rig.answered(second) == {0: [0], 1: [], 2: []}


def test_a_fetch_waits_for_enough_bytes_and_then_sends_them() -> None:
    rig = Rig()
    waiting = rig.ask(1, range(3), min_bytes=750)
    rig.append(0)
    rig.append(1)
    rig.append(0)
    assert not rig.replies
    rig.append(2)
    assert rig.answered(waiting) == {0: [0, 1], 1: [0], 2: [0]}
    late = rig.ask(2, min_bytes=5000)
    rig.append(1)
    rig.pass_ms(500)
    assert rig.answered(late) == {1: [1]}


@pytest.mark.parametrize(("batches", "max_bytes"), [(1, 1), (10, 1), (10, 400), (10, 1_000), (10, 1_100)])
def test_full_answers_do_not_wait(batches: int, max_bytes: int) -> None:
    """A consumer may want more at least than at most, and batches seldom add up to the most."""
    rig = Rig()
    for _ in range(batches):
        rig.append(0)
    request = rig.ask(1, [0], min_bytes=50_000, max_bytes=max_bytes)
    assert rig.answered(request)[0][:1] == [0]


def test_answers_with_room_wait() -> None:
    rig = Rig()
    rig.append(0)
    request = rig.ask(1, [0], min_bytes=50_000, max_bytes=100_000)
    assert request not in rig.replies
    rig.pass_ms(500)
    assert rig.answered(request) == {0: [0]}


def test_an_error_is_said_at_once_and_once() -> None:
    rig = Rig()
    waiting = rig.ask(1, range(3))
    rig.logs[1].leads = False
    rig.changed(1)
    assert [r.error.code for r in rig.replies[waiting].results if r.partition == 1] == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER
    ]
    following = rig.ask(2)
    rig.logs[1].leads = True
    rig.append(1)
    assert following not in rig.replies
    rig.pass_ms(500)
    again = rig.ask(3, [1])
    assert rig.answered(again) == {1: [0]}


def test_a_log_start_that_passes_the_position_is_told() -> None:
    rig = Rig()
    for _ in range(3):
        rig.logs[0].append()
    rig.ask(1, {0: 1}, max_bytes=1)
    rig.logs[0].log_start_offset = 3
    rig.changed(0)
    (result,) = rig.replies[rig.ask(2)].results
    assert (result.error.code, result.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 3)


def test_who_asks_beyond_the_log_is_told_what_there_is() -> None:
    rig = Rig()
    for _ in range(3):
        rig.logs[0].append()
    (result,) = rig.replies[rig.ask(1, {0: 99})].results
    assert result.error.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (result.log_start_offset, result.high_watermark) == (0, 3)


def test_a_replica_that_leaves_the_node_is_told() -> None:
    rig = Rig()
    waiting = rig.ask(1, [2])
    gone = rig.logs.pop()
    rig.fetches.raft_group_gone(rig.now, gone.group)
    (result,) = rig.replies[waiting].results
    assert result.error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_request_that_does_not_go_on_ends_the_session() -> None:
    rig = Rig()
    first = rig.ask(1, [0])
    wrong = rig.ask(3)
    assert rig.replies[wrong].error.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert first in rig.replies and len(rig.fetches.sessions) == 0
    assert rig.replies[rig.ask(2)].error.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    rig.logs[0].append()
    assert rig.answered(rig.ask(1, [0])) == {0: [0]}


def test_a_new_session_on_the_same_stream_forgets_the_old_one() -> None:
    rig = Rig()
    old = rig.ask(1, [0])
    new = rig.ask(1, [1])
    assert not rig.replies[old].results
    rig.append(0)
    assert new not in rig.replies
    rig.append(1)
    assert rig.answered(new) == {1: [0]}


@pytest.mark.parametrize(
    ("limits", "act"),
    [
        ({"fetch_sessions": 2}, lambda rig: rig.ask(1, [0], stream=3)),
        ({"fetch_session_partitions": 4}, lambda rig: rig.ask(1, [0, 1, 2], stream=3)),
        ({"fetch_session_partitions": 4}, lambda rig: rig.ask(2, [1, 2, 0], stream=1)),
    ],
    ids=["sessions", "partitions", "partitions added"],
)
def test_sessions_are_bounded_and_who_is_over_is_told_to_fetch_without(
    limits: dict[str, int], act: Callable[[Rig], int]
) -> None:
    rig = Rig(**limits)
    rig.ask(1, [0], stream=1)
    rig.ask(1, [1], stream=2)
    refused = rig.replies[act(rig)].error
    assert refused.code == ErrorCode.TOO_MANY_FETCH_SESSIONS and "fetch" in refused.message
    rig.logs[0].append()
    assert rig.answered(rig.ask(0, [0], stream=3)) == {0: [0]}


def test_nothing_is_left_of_streams_that_end_and_of_fetches_that_were_answered() -> None:
    rig = Rig()
    for stream in range(1, 50):
        waiting = rig.ask(1, range(3), stream=stream)
        if stream % 2:
            rig.fetches.client_gone(waiting)
        rig.fetches.stream_closed(stream)
        rig.fetches.client_gone(rig.ask(0, range(3), stream=stream))
    rig.ask(0, range(3))
    rig.pass_ms(500)
    assert (len(rig.fetches), len(rig.fetches.sessions), rig.fetches.watches) == (0, 0, {})


def test_when_too_many_fetches_wait_a_session_goes_on_after_the_refusal() -> None:
    rig = Rig(parked_fetches=1)
    rig.ask(0, [0], stream=1)
    refused = rig.ask(1, [1])
    assert [result.error.code for result in rig.replies[refused].results] == [ErrorCode.SERVER_BUSY]
    rig.logs[1].append()
    assert rig.answered(rig.ask(2, [1])) == {1: [0]}


def test_an_answer_may_tell_of_all_partitions_and_those_without_room_keep_their_news() -> None:
    rig = Rig()
    for number in range(3):
        rig.logs[number].append(size=900)
    first = rig.ask(1, range(3), max_bytes=900, tells_all=True)
    assert rig.answered(first) == {0: [0], 1: [], 2: []}
    assert [each.high_watermark for each in rig.replies[first].results] == [1, 1, 1]
    assert [rig.answered(rig.ask(epoch, max_bytes=900)) for epoch in (2, 3)] == [{1: [0]}, {2: [0]}]


def test_a_session_ends_when_its_client_says_so() -> None:
    rig = Rig()
    rig.ask(1, [0])
    ended = rig.ask(0, ends_session=True)
    assert (ended in rig.replies, len(rig.fetches.sessions)) == (True, 0)
    rig.replies.clear()
    assert rig.replies.get(rig.ask(2)) is not None


def test_sessions_that_nobody_uses_make_way_and_others_do_not() -> None:
    rig = Rig(fetch_sessions=2, fetch_session_partitions=4)
    for stream in (1, 2):
        rig.logs[stream].append()
        rig.ask(1, [stream], stream=stream)
    rig.now += 119_999 * MS
    refused = rig.ask(1, [0], stream=3)
    assert rig.replies[refused].error.code == ErrorCode.TOO_MANY_FETCH_SESSIONS
    waiting = rig.ask(2, stream=2)
    rig.now += MS
    assert not rig.replies[rig.ask(1, [0, 1], stream=3, max_wait_ms=0)].HasField("error")
    # Of the two sessions, the one without a waiting request was evicted.
    gone = rig.ask(2, stream=1)
    assert rig.replies[gone].error.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert waiting not in rig.replies
    assert {each.stream for each in rig.fetches.sessions} == {2, 3}


def test_a_session_with_a_request_that_waits_is_in_use_however_long_it_waits() -> None:
    rig = Rig(fetch_sessions=1)
    waiting = rig.ask(1, [0], stream=1, max_wait_ms=300_000)
    waiting = rig.ask(2, stream=1, max_wait_ms=300_000)
    rig.pass_ms(200_000)
    assert rig.replies[rig.ask(1, [0], stream=2)].error.code == ErrorCode.TOO_MANY_FETCH_SESSIONS
    rig.append(0)
    assert rig.answered(waiting) == {0: [0]}


def test_sessions_that_nobody_uses_make_way_for_partitions_too() -> None:
    rig = Rig(fetch_session_partitions=3)
    rig.ask(1, [0, 1], stream=1, max_wait_ms=0)
    rig.pass_ms(119_999)
    assert rig.replies[rig.ask(1, [0, 1], stream=2)].error.code == ErrorCode.TOO_MANY_FETCH_SESSIONS
    rig.pass_ms(1)
    assert rig.ask(1, [0, 1], stream=2) not in rig.replies
    assert {each.stream for each in rig.fetches.sessions} == {2}


def test_follower_out_of_sync_refuses() -> None:
    """A follower outside of the ISR could stay behind for long: its readers go to the leader."""
    rig = Rig(1)
    rig.append(0)
    rig.logs[0].leads, rig.logs[0].follows = False, True
    assert rig.answered(rig.ask(0, [0], from_replicas=True)) == {0: [0]}
    rig.in_sync = False
    (result,) = rig.replies[rig.ask(0, [0], from_replicas=True)].results
    assert result.error.code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert not result.entries


def test_follower_has_readers_while_they_read() -> None:
    """Its leader notifies it of each commit at once only for as long as a client reads there."""
    rig = Rig(1)
    rig.append(0)
    log = rig.logs[0]
    log.leads, log.follows = False, True
    rig.ask(1, [0], from_replicas=True)
    assert log.has_readers
    rig.ask(2, forgotten=[0], from_replicas=True)
    assert not log.has_readers


def test_session_ahead_of_a_follower_is_sent_away() -> None:
    """A session that other partitions keep busy never waits until its deadline: after a second, it is sent away."""
    rig = Rig(2)
    rig.append(0)
    rig.logs[0].leads, rig.logs[0].follows = False, True
    codes = []
    for number in range(1, 5):
        rig.append(1)
        wanted = {0: 10, 1: 0} if number == 1 else {}
        results = rig.replies[rig.ask(number, wanted, from_replicas=True)].results
        codes += [result.error.code for result in results if result.partition == 0]
        rig.pass_ms(400)
    assert codes == [ErrorCode.NONE] * 3 + [ErrorCode.OFFSET_NOT_AVAILABLE]
