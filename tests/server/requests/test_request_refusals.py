"""Refused requests: each reason has the same wording wherever it is detected."""

from __future__ import annotations

from types import SimpleNamespace

import grpc
import pytest
from rights import RESTRICTED, allow, holder, refusals_by, rule, withdraw

from quorumlog.server.config.options import NodeLimits
from quorumlog.server.hosting.read_index import HeartbeatRounds
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.observability.metrics import Meters
from quorumlog.server.requests.batch_appends import BatchAppends
from quorumlog.server.requests.delete_records import RecordDeletions
from quorumlog.server.requests.list_offsets import OffsetRequests
from quorumlog.server.requests.partition_errors import PartitionErrors
from quorumlog.server.requests.produce import TELL_EVERY_US, ProduceRequests, SilentRefusals
from quorumlog.server.requests.produce_traces import ProduceTraces
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import StepTime
from quorumlog.server.step.replies import Replies
from quorumlog.server.step.request_context import RequestContext
from quorumlog.server.step.wire_errors import error
from quorumlog.server.transport.clients.client_requests import ClientRequests
from quorumlog.server.transport.clients.data_plane_service import DataPlaneService
from quorumlog.v1 import admin_pb2, metadata_log_pb2
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1.acls_pb2 import ACL_OPERATION_DESCRIBE, ACL_RESOURCE_TOPIC, AclFilter
from quorumlog.v1.errors_pb2 import Error, ErrorCode
from quorumlog.v1.partition_log_pb2 import PartitionCommand

TOPIC = b"t" * 16
TIME = StepTime(1_000, 1_700_000_000_000)
NO_TRACES = ProduceTraces(TIME, SimpleNamespace())


class Led:
    """A partition that this node leads, with 100 records, and the way to it."""

    def __init__(self) -> None:
        self.group, self.name = 1_000, "t-0"
        self.high_watermark, self.log_start_offset = 100, 0
        self.leads, self.restoring = True, False
        self.config = SimpleNamespace(deletes=True)
        self.raft = SimpleNamespace(term=3, confirmed_round=0)
        self.proposed: list[int] = []

    def find(self, topic_id: bytes, number: int) -> Led:
        return self

    def check_readable(self, leader_epoch: int) -> Error | None:
        return None

    def propose_command(self, now: int, command: PartitionCommand) -> bool:
        self.proposed.append(command.trim_log.log_start_offset)
        return True

    def not_leader(self) -> Error:
        return error(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead t-0; ask its leader")

    def touch(self, group: int) -> None:
        """Does nothing: the group is not stepped."""


def absent_partitions() -> PartitionErrors:
    """Returns partition errors of a node that permits everything and has no topics."""
    image = MetadataImage()
    return PartitionErrors(holder(image), refusals_by(image))


def look_up(service: OffsetRequests, number: int) -> None:
    request = pb.ListOffsetsRequest(timeout_ms=1_000)
    request.partitions.add(topic_id=TOPIC, partition=0, timestamp_ms=-1)
    service.list_offsets(TIME, ClientRequest(number, request), request)


def test_a_look_up_beyond_the_limit_hears_of_the_limit_and_costs_no_heartbeats() -> None:
    led, replies, rounds = Led(), Replies(), list[int]()

    def confirm(group: int) -> int:
        rounds.append(group)
        return len(rounds)

    service = OffsetRequests(led, SimpleNamespace(), 1, replies, absent_partitions(), HeartbeatRounds(confirm))
    look_up(service, 1)
    assert (len(rounds), replies.take_gathered()) == (1, [])
    service_time = StepTime(TIME.now + 1, TIME.wall_ms)
    request = pb.ListOffsetsRequest(timeout_ms=1_000)
    request.partitions.add(topic_id=TOPIC, partition=0, timestamp_ms=-1)
    service.list_offsets(service_time, ClientRequest(2, request), request)
    (reply,) = replies.take_gathered()
    assert isinstance(reply.message, pb.ListOffsetsResponse)
    problem = reply.message.results[0].error
    assert (problem.code, problem.retriable, problem.definite) == (ErrorCode.SERVER_BUSY, True, True)
    assert "1 lookups wait here" in problem.message
    assert len(rounds) == 1


@pytest.mark.parametrize("gone", [False, True])
def test_a_look_up_that_lost_its_leader_tells_nothing_to_whom_rules_hide_the_topic_by_then(gone: bool) -> None:
    image = MetadataImage()
    body = metadata_log_pb2.CreateTopic(
        name="t", topic_id=TOPIC, partitions=[metadata_log_pb2.ReplicaSet(replicas=[1])]
    )
    image.apply(1, metadata_log_pb2.MetadataCommand(create_topic=body))
    allow(image, rule("User:alice", ACL_OPERATION_DESCRIBE, ACL_RESOURCE_TOPIC, "t"))
    led, replies = Led(), Replies()
    absent = PartitionErrors(holder(image), refusals_by(image, RESTRICTED))
    service = OffsetRequests(led, SimpleNamespace(), 5, replies, absent, HeartbeatRounds(lambda group: 1))
    request = pb.ListOffsetsRequest(timeout_ms=1_000)
    request.partitions.add(topic_id=TOPIC, partition=0, timestamp_ms=-1)
    for number, who in enumerate(("User:alice", "User:root"), 1):
        service.list_offsets(TIME, ClientRequest(number, request, client=RequestContext(principal=who)), request)
    withdraw(image, AclFilter(resource_type=1, pattern_type=1, operation=1, permission=1))
    led.leads = False
    if gone:
        service.raft_group_gone(TIME.now, led.group)
    else:
        service.after_round(led)
    hidden, reported = (reply.message.results[0] for reply in replies.take_gathered())  # type: ignore[attr-defined]
    assert hidden.error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "t-0" not in hidden.error.message
    assert hidden.leader_epoch == 0
    assert reported.error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_leader_that_cannot_write_is_called_stalled() -> None:
    replies = Replies()
    service = OffsetRequests(
        Led(), SimpleNamespace(), 5, replies, absent_partitions(), HeartbeatRounds(lambda group: None)
    )
    look_up(service, 1)
    (reply,) = replies.take_gathered()
    assert isinstance(reply.message, pb.ListOffsetsResponse)
    assert "stalled" in reply.message.results[0].error.message


def deletion(service: RecordDeletions, number: int, *before: int) -> None:
    request = admin_pb2.DeleteRecordsRequest(timeout_ms=1_000)
    for offset in before:
        request.partitions.add(topic_id=TOPIC, partition=0, before_offset=offset)
    service.delete(TIME, ClientRequest(number, request), request)


def test_a_deletion_that_names_a_partition_twice_hears_of_that_also_when_many_wait() -> None:
    led, replies = Led(), Replies()
    service = RecordDeletions(led, led, 1, replies, absent_partitions())
    deletion(service, 1, 10, 20)
    assert led.proposed == [10]
    deletion(service, 2, 30)
    assert led.proposed == [10], "nothing is done for what is refused"
    (refused,) = replies.take_gathered()
    assert isinstance(refused.message, admin_pb2.DeleteRecordsResponse)
    problem = refused.message.results[0].error
    assert (problem.code, problem.retriable) == (ErrorCode.SERVER_BUSY, True)
    assert "1 deletions wait here" in problem.message
    led.log_start_offset = 10
    service.after_round(led)
    (done,) = replies.take_gathered()
    assert isinstance(done.message, admin_pb2.DeleteRecordsResponse)
    first, second = done.message.results
    assert (first.log_start_offset, first.error.code) == (10, ErrorCode.NONE)
    assert second.error.code == ErrorCode.INVALID_REQUEST
    assert "named twice" in second.error.message


@pytest.mark.parametrize("why", ["deposed", "elected again", "gone"])
def test_a_deletion_whose_command_is_in_the_log_fails_indefinitely(why: str) -> None:
    led, replies, absent = Led(), Replies(), absent_partitions()
    service = RecordDeletions(led, led, 5, replies, absent)
    deletion(service, 1, 10, 20)
    assert led.proposed == [10]
    if why == "gone":
        service.raft_group_gone(TIME.now, led.group)
    else:
        led.leads, led.raft.term = why != "deposed", 4
        service.after_round(led)
    (failed,) = replies.take_gathered()
    assert isinstance(failed.message, admin_pb2.DeleteRecordsResponse)
    proposed, refused = failed.message.results
    assert proposed.error.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert not proposed.error.definite, "the next leader may commit it"
    assert refused.error.definite, "it was never proposed"


def test_look_ups_and_deletions_have_limits_of_their_own() -> None:
    limits = NodeLimits(parked_fetches=1)
    assert limits.waiting_look_ups > 1
    assert limits.waiting_deletions > 1


class Refused(Exception):
    """A call was ended by the service."""


class Caller:
    """A client's Produce stream, seen from the service."""

    def __init__(self) -> None:
        self.context = self
        self.answers: list[pb.ProduceResponse] = []

    async def abort(self, code: grpc.StatusCode, details: str, trailing: tuple[object, ...] = ()) -> None:
        raise Refused(details)

    def answer(self, message: pb.ProduceResponse) -> None:
        self.answers.append(message)


def silence(level: str, event: str, **fields: object) -> None:
    raise AssertionError(f"{event}: a refusal that the client receives is not logged")


def told_by_the_node(request: pb.ProduceRequest, limits: NodeLimits) -> Error:
    replies, led = Replies(), Led()
    conditions = SimpleNamespace(refusal=lambda: None, live_replicas=lambda partition: 3)
    silent = SilentRefusals(silence)
    appends = BatchAppends(led, led, conditions, SimpleNamespace(), SimpleNamespace())
    service = ProduceRequests(appends, limits, conditions, replies, silent, NO_TRACES)
    service.produce(TIME, ClientRequest(1, request), request)
    (reply,) = replies.take_gathered()
    assert isinstance(reply.message, pb.ProduceResponse)
    return reply.message.results[0].error


async def test_wrong_acks_are_refused_in_the_same_words_by_the_service_and_by_the_node() -> None:
    request = pb.ProduceRequest(acks=7, batches=[pb.PartitionBatch(topic_id=TOPIC, partition=0, batch=b"b")])
    service = DataPlaneService(ClientRequests(lambda event: None), NodeLimits(), Meters())
    with pytest.raises(Refused) as refused:
        await service._take_produce(request.SerializeToString(), Caller())
    reported = told_by_the_node(request, NodeLimits())
    assert reported.code == ErrorCode.INVALID_REQUIRED_ACKS
    assert str(refused.value) == reported.message == "acks is 7: use 0, 1 or -1 (all)"


async def test_a_request_too_large_is_refused_in_the_same_words_by_the_service_and_by_the_node() -> None:
    limits, caller = NodeLimits(request_bytes=1_000), Caller()
    request = pb.ProduceRequest(acks=-1, batches=[pb.PartitionBatch(topic_id=TOPIC, partition=0, batch=b"b" * 5_000)])
    service = DataPlaneService(ClientRequests(lambda event: None), limits, Meters())
    await service._take_produce(request.SerializeToString(), caller)
    by_service = caller.answers[0].results[0].error
    by_node = told_by_the_node(request, limits)
    assert by_service.code == by_node.code == ErrorCode.RECORD_TOO_LARGE
    for reported, size in ((by_service, len(request.SerializeToString())), (by_node, 5_000)):
        what = "send fewer or smaller batches in one request"
        assert reported.message == f"the request has {size} bytes, the node accepts 1000: {what}"


def test_the_operator_is_told_of_refusals_that_nobody_is_answered() -> None:
    """Refusals without a response are logged once for each reason, then at intervals, with their number."""
    lines: list[tuple[str, str, dict[str, object]]] = []
    refused: list[Error] = []
    replies, led = Replies(), Led()
    conditions = SimpleNamespace(refusal=lambda: refused[-1] if refused else None, live_replicas=lambda partition: 3)
    silent = SilentRefusals(lambda level, event, **fields: lines.append((level, event, fields)))
    appends = BatchAppends(led, led, conditions, SimpleNamespace(), SimpleNamespace())
    service = ProduceRequests(appends, NodeLimits(), conditions, replies, silent, NO_TRACES)
    batches = [pb.PartitionBatch(topic_id=TOPIC, partition=number, batch=b"b") for number in range(3)]

    def produce(after_us: int, acks: int = 0) -> None:
        request = pb.ProduceRequest(acks=acks, batches=batches)
        time = StepTime(TIME.now + after_us, TIME.wall_ms)
        service.produce(time, ClientRequest(1, request), request)

    refused.append(error(ErrorCode.STORAGE_ERROR, "the disk is full"))
    produce(0)
    reported = {"error": "STORAGE_ERROR", "batches": 1, "reason": "the disk is full"}
    assert lines == [("warning", "unanswered_produce_refused", reported)]
    produce(TELL_EVERY_US - 1)
    produce(TELL_EVERY_US - 1, acks=1)
    assert len(lines) == 1
    refused.append(error(ErrorCode.SERVER_BUSY, "busy"))
    produce(TELL_EVERY_US - 1)
    assert [fields["error"] for _, _, fields in lines] == ["STORAGE_ERROR", "SERVER_BUSY"], "each reason separately"
    refused.pop()
    produce(TELL_EVERY_US)
    assert lines[-1][2] == reported | {"batches": 6}, "two of the first request, three of the second, and one more"
    assert len(replies.take_gathered()) == 1
