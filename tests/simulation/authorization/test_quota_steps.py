"""Quotas in the steps of simulated nodes: which users wait, and the controller's answers."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import Message as ProtoMessage
from quiet_cluster import TOPIC, Quiet

from quorumlog.server.step.request_context import Listener, RequestContext
from quorumlog.simulator.models.records import text_payload
from quorumlog.simulator.world.clients import Unanswered
from quorumlog.v1 import admin_pb2, credentials_pb2, groups_pb2
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.quotas_pb2 import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ClientQuotaAlteration,
    ClientQuotaOp,
)
from quorumlog.wire.entry import Codec, build_batch

ResponseT = TypeVar("ResponseT", bound=ProtoMessage)
ALICE, BOB = "User:alice", "User:bob"
#: Bytes of a batch, very nearly.
SIZE = 4_000


class Limited(Quiet):
    """A quiet cluster with alice, bob, and an administrator."""

    def __init__(self, seed: int, nodes: int = 3, checkpoint_entries: int = 2_000) -> None:
        clients = {"alice": ALICE, "bob": BOB}
        super().__init__(seed, nodes=nodes, clients=clients, checkpoint_entries=checkpoint_entries)
        self.run(1)

    def ask(self, client: str, request: ProtoMessage, kind: type[ResponseT], node: int = 1) -> ResponseT:
        answers = self.send(client, request, node)
        self.until(lambda: bool(answers), 20)
        assert isinstance(answers[0], kind), answers
        return answers[0]

    def send(self, client: str, request: ProtoMessage, node: int, stream: int = 0) -> list[object]:
        """Sends a request; its answer comes into the list."""
        answers: list[object] = []
        self.cluster.request(client, node, request, answers.append, stream=stream)
        return answers

    def limit(self, principal: str, **values: float | None) -> None:
        """Sets quotas; every node has them afterwards."""
        ops = [ClientQuotaOp(key=key, value=value) for key, value in values.items()]
        wanted = ClientQuotaAlteration(principal=principal, ops=ops)
        request = AlterClientQuotasRequest(alterations=[wanted], timeout_ms=5_000)
        answer = self.ask("admin", request, AlterClientQuotasResponse, node=2 if len(self.cluster.node_ids) > 1 else 1)
        assert not answer.HasField("error"), answer
        self.run(0.3)

    def topic_id(self) -> bytes:
        image = self.cluster.processes[1].image
        assert image is not None
        return image.topics[TOPIC].topic_id

    def batch(self) -> pb.ProduceRequest:
        batch = build_batch(
            text_payload(["hope " + "x" * SIZE]),
            record_count=1,
            codec=Codec.NONE,
            base_timestamp_ms=1_700_000_000_000,
            max_timestamp_ms=1_700_000_000_000,
        )
        body = pb.PartitionBatch(topic_id=self.topic_id(), partition=0, batch=batch)
        return pb.ProduceRequest(correlation_id=1, acks=-1, timeout_ms=60_000, batches=[body])

    def write(self, client: str, stream: int = 0) -> list[object]:
        return self.send(client, self.batch(), self.leader().node_id, stream)

    def fetch(self, client: str, epoch: int, stream: int, max_wait_ms: int = 0) -> list[object]:
        named = [pb.FetchPartition(topic_id=self.topic_id(), leader_epoch=-1)] if epoch == 1 else []
        request = pb.FetchRequest(correlation_id=epoch, session_epoch=epoch, max_wait_ms=max_wait_ms, partitions=named)
        return self.send(client, request, self.leader().node_id, stream)


def offsets(answers: list[list[object]]) -> list[int]:
    """Those of the batches that are acknowledged."""
    given = [each for answer in answers for each in answer]
    assert all(isinstance(each, pb.ProduceResponse) for each in given), given
    results = [each.results[0] for each in given]  # type: ignore[attr-defined]  # the line above says that it has some
    assert all(result.error.code == ErrorCode.NONE for result in results), results
    return [result.base_offset for result in results]


def test_a_producer_gets_its_rate_beside_others_that_get_what_they_want_and_copies_are_made_all_the_while() -> None:
    cluster = Limited(3)
    cluster.limit("User:*", producer_byte_rate=2 * SIZE)
    cluster.limit(BOB, producer_byte_rate=1e12)
    alice = [cluster.write("alice") for _ in range(20)]
    bob = [cluster.write("bob") for _ in range(20)]
    cluster.run(0.5)
    assert len(offsets(bob)) == 20
    before = len(offsets(alice))
    assert 2 <= before <= 4
    cluster.run(4)
    assert 7 <= len(offsets(alice)) - before <= 9
    ends = {raft.last_id.index for raft in cluster.replicas_of(cluster.groups()[0]).values()}
    assert len(ends) == 1, "followers are not clients"
    cluster.until(lambda: len(offsets(alice)) == 20, 10)
    assert offsets(alice) == sorted(offsets(alice))


def test_a_quota_that_is_removed_counts_no_more_for_what_waits_on_an_open_stream() -> None:
    cluster = Limited(5)
    cluster.limit(ALICE, producer_byte_rate=1_024)
    stream = cluster.cluster.open_stream(cluster.leader().node_id)
    answers = [cluster.write("alice", stream) for _ in range(6)]
    cluster.run(2)
    assert len(offsets(answers)) == 1
    cluster.limit(ALICE, producer_byte_rate=None)
    assert len(offsets(answers)) == 6
    assert offsets(answers) == sorted(offsets(answers))


def test_a_session_goes_on_after_answers_without_records() -> None:
    cluster = Limited(7)
    for _ in range(6):
        cluster.write("bob")
    cluster.limit(ALICE, consumer_byte_rate=SIZE)
    stream = cluster.cluster.open_stream(cluster.leader().node_id)
    sizes, began = [], cluster.scheduler.now
    for epoch in range(1, 60):
        answers = cluster.fetch("alice", epoch, stream)
        cluster.until(lambda answers=answers: bool(answers), 3)  # type: ignore[misc]
        answer = answers[0]
        assert isinstance(answer, pb.FetchResponse)
        assert not answer.HasField("error"), answer
        sizes.append(sum(len(entry) for result in answer.results for entry in result.entries))
        if sum(map(bool, sizes)) == 6:
            break
    assert max(sizes) < 2 * SIZE, "one batch at a time, for the bucket holds no more"
    took_s = (cluster.scheduler.now - began) / 1e6
    assert sum(sizes) / SIZE - 2.5 <= took_s <= 12


def test_a_membership_is_not_lost_over_data() -> None:
    cluster = Limited(9)
    cluster.ask("alice", groups_pb2.FindCoordinatorsRequest(group_ids=["readers"]), groups_pb2.FindCoordinatorsResponse)
    cluster.limit(ALICE, request_rate=1)
    calls = [cluster.send("alice", pb.MetadataRequest(all_topics=True), 1) for _ in range(10)]
    beat = groups_pb2.GroupHeartbeatRequest(group_id="readers", member_id="m1")
    reported = [cluster.send("alice", beat, node) for node in cluster.cluster.node_ids]
    cluster.until(lambda: all(reported), 0.2)
    assert sum(map(bool, calls)) <= 4


def test_the_controller_says_how_long_to_wait_by_way_of_any_node() -> None:
    cluster = Limited(11)
    cluster.limit("User:*", controller_mutation_rate=2)
    codes = []
    for number in range(2):
        wanted = admin_pb2.NewTopic(name=f"more{number}", num_partitions=12, replication_factor=3)
        request = admin_pb2.CreateTopicsRequest(topics=[wanted], timeout_ms=5_000)
        for node in cluster.cluster.node_ids:
            answer = cluster.ask("alice", request, admin_pb2.CreateTopicsResponse, node)
            codes.append(answer.results[0].error)
    assert codes[0].code == ErrorCode.NONE
    assert {each.code for each in codes[1:]} == {ErrorCode.THROTTLING_QUOTA_EXCEEDED}
    assert all(3_000 < each.throttle_time_ms <= 5_000 for each in codes[1:])
    cluster.run(5)
    answer = cluster.ask("alice", request, admin_pb2.CreateTopicsResponse, 3)
    assert answer.results[0].error.code == ErrorCode.NONE


def test_quotas_outlive_restarts_with_and_without_a_snapshot() -> None:
    for checkpoint_entries in (2, 2_000):
        cluster = Limited(13, nodes=1, checkpoint_entries=checkpoint_entries)
        cluster.limit(ALICE, producer_byte_rate=1_024)
        cluster.cluster.processes[1].die(silent=False)
        cluster.cluster.start(1)
        cluster.run(3)
        cluster.write("alice")
        late = cluster.write("alice")
        cluster.run(1)
        assert late == [], checkpoint_entries


def test_what_waited_for_somebody_who_was_revoked_meanwhile_is_not_done() -> None:
    cluster = Limited(15)
    cluster.cluster.clients["alice"] = RequestContext(
        host="10.0.0.7", principal=ALICE, listener=Listener.CLIENT, serial="1f"
    )
    cluster.limit(ALICE, producer_byte_rate=2_000, request_rate=1)
    node = cluster.leader().node_id
    stream = cluster.cluster.open_stream(node)
    first, second = (cluster.write("alice", stream) for _ in range(2))
    calls = [cluster.send("alice", pb.MetadataRequest(all_topics=True), node) for _ in range(6)]
    cluster.run(0.1)
    assert len(offsets([first])) == 1
    assert not second
    revocation = credentials_pb2.Revocation(serial="1f")
    request = credentials_pb2.AlterRevocationsRequest(revoke=[revocation], timeout_ms=5_000)
    cluster.ask("admin", request, credentials_pb2.AlterRevocationsResponse)
    answered = sum(map(bool, calls))
    cluster.run(10)
    assert second == [Unanswered.LOST]
    late = [each for call in calls[answered:] for each in call]
    assert len(late) >= 2
    assert all(getattr(each, "code", None) == ErrorCode.SASL_AUTHENTICATION_FAILED for each in late), late
    look_up = pb.ListOffsetsRequest(timeout_ms=5_000)
    look_up.partitions.add(topic_id=cluster.topic_id(), timestamp_ms=-1, leader_epoch=-1)
    found = cluster.ask("admin", look_up, pb.ListOffsetsResponse, node)
    assert found.results[0].offset == 1, "the second batch was appended"
