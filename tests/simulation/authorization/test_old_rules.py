"""ACLs older than ``acl_image_max_age_ms``: nodes serve no records, and return a retriable error, not a denial."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from restricted_cluster import Restricted
from rights import rule

from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.models.records import text_payload
from quorumlog.v1 import admin_pb2
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1.acls_pb2 import (
    ACL_OPERATION_DELETE,
    ACL_OPERATION_READ,
    ACL_OPERATION_WRITE,
    ACL_RESOURCE_TOPIC,
)
from quorumlog.v1.errors_pb2 import Error, ErrorCode
from quorumlog.wire.entry import Codec, build_batch

TOPIC = "elsewhere"
LIMIT_MS = 3_000
BATCH = build_batch(
    text_payload(["hope"]),
    record_count=1,
    codec=Codec.NONE,
    base_timestamp_ms=1_700_000_000_000,
    max_timestamp_ms=1_700_000_000_000,
)


class WithoutQuorum(Restricted):
    """Four nodes, of which three vote on the metadata, and a partition that can do without two of those."""

    def __init__(self, limit_ms: int) -> None:
        super().__init__(7, 4, image_max_age_ms=limit_ms)
        request = admin_pb2.CreateTopicsRequest(timeout_ms=5_000)
        placed = request.topics.add(name=TOPIC, num_partitions=-1, replication_factor=-1)
        placed.replica_assignments.add(replicas=[4, 1, 2])
        made = self.ask("admin", request, admin_pb2.CreateTopicsResponse)
        assert not made.results[0].error.code, made
        self.allow(
            *(
                rule("User:alice", operation, ACL_RESOURCE_TOPIC, TOPIC)
                for operation in (ACL_OPERATION_READ, ACL_OPERATION_WRITE, ACL_OPERATION_DELETE)
            )
        )
        self.until(lambda: self.leads() is not None, 10)

    def lose_quorum(self) -> None:
        for controller in (2, 3):
            self.cluster.processes[controller].die(silent=False)

    def leads(self) -> int | None:
        image = self.cluster.processes[4].image
        assert image is not None
        (record,) = image.topics[TOPIC].partitions
        return self.led_by(record.group)

    def produce(self, client: str = "alice") -> Error:
        body = pb.PartitionBatch(topic_id=self.topic_id(TOPIC), partition=0, batch=BATCH)
        request = pb.ProduceRequest(correlation_id=1, acks=-1, timeout_ms=2_000, batches=[body])
        return self.ask(client, request, pb.ProduceResponse, self.leads() or 4).results[0].error

    def fetch(self, client: str = "alice") -> pb.FetchResult:
        request = pb.FetchRequest(correlation_id=1, max_wait_ms=0)
        request.partitions.add(topic_id=self.topic_id(TOPIC), partition=0, leader_epoch=-1)
        return self.ask(client, request, pb.FetchResponse, self.leads() or 4).results[0]

    def look_up(self) -> Error:
        request = pb.ListOffsetsRequest(timeout_ms=2_000)
        request.partitions.add(topic_id=self.topic_id(TOPIC), partition=0, timestamp_ms=-1, leader_epoch=-1)
        return self.ask("alice", request, pb.ListOffsetsResponse, self.leads() or 4).results[0].error

    def delete(self) -> Error:
        request = admin_pb2.DeleteRecordsRequest(timeout_ms=2_000)
        request.partitions.add(topic_id=self.topic_id(TOPIC), partition=0, before_offset=0)
        return self.ask("alice", request, admin_pb2.DeleteRecordsResponse, self.leads() or 4).results[0].error


def test_whoever_needs_permission_waits_while_the_metadata_quorum_is_lost() -> None:
    cluster = WithoutQuorum(LIMIT_MS)
    every: tuple[Callable[[], Error], ...] = (
        cluster.produce,
        lambda: cluster.fetch().error,
        cluster.look_up,
        cluster.delete,
    )
    assert [each().code for each in every] == [ErrorCode.NONE] * 4
    cluster.lose_quorum()
    cluster.run(LIMIT_MS / 2_000)
    assert [each().code for each in every] == [ErrorCode.NONE] * 4, "it is not too old yet"
    cluster.run(LIMIT_MS / 1_000)
    for each in every:
        refused = each()
        assert refused.code == ErrorCode.SERVER_BUSY and refused.retriable and refused.definite
        assert "acl_image_max_age_ms" in refused.message and "\n" not in refused.message
    # The super user needs no permission and is still served, and so are metadata requests.
    assert not cluster.produce("admin").code
    assert len(cluster.fetch("admin").entries) == 3
    described = cluster.ask("alice", pb.MetadataRequest(topics=[TOPIC]), pb.MetadataResponse, 4)
    assert described.topics[0].name == TOPIC and not described.topics[0].HasField("error")
    for controller in (2, 3):
        cluster.cluster.start(controller)
    cluster.until(lambda: not cluster.produce().code, 20)
    assert len(cluster.fetch().entries) == 4


def test_a_fetch_that_waits_hands_out_nothing_by_rules_that_have_become_too_old() -> None:
    cluster = WithoutQuorum(LIMIT_MS)
    node, answers = cluster.leads() or 4, list[object]()
    cluster.lose_quorum()
    stream = cluster.cluster.open_stream(node)
    request = pb.FetchRequest(correlation_id=1, session_epoch=1, max_wait_ms=20_000)
    request.partitions.add(topic_id=cluster.topic_id(TOPIC), partition=0, leader_epoch=-1)
    cluster.cluster.request("alice", node, request, answers.append, stream=stream)
    cluster.run(2 * LIMIT_MS / 1_000)
    assert not answers, "it waits"
    assert not cluster.produce("admin").code
    cluster.until(lambda: bool(answers), 5)
    (answer,) = answers
    assert isinstance(answer, pb.FetchResponse)
    assert [each.error.code for each in answer.results] == [ErrorCode.SERVER_BUSY]
    assert not answer.results[0].entries


def test_without_a_limit_nodes_decide_by_what_they_know() -> None:
    cluster = WithoutQuorum(0)
    cluster.lose_quorum()
    cluster.run(10)
    assert not cluster.produce().code
    assert len(cluster.fetch().entries) == 1


def test_the_simulator_notices_records_that_are_served_by_old_rules() -> None:
    cluster = WithoutQuorum(LIMIT_MS)
    invariants = cluster.cluster.invariants
    image = cluster.cluster.processes[4].image
    assert image is not None
    invariants.now_us = cluster.scheduler.now
    invariants.decided_by(4, image.applied_index, 0)
    with pytest.raises(Violation, match="serves records by ACLs"):
        invariants.decided_by(4, image.applied_index - 1, 0)
    invariants.decided_by(4, image.applied_index - 1, cluster.scheduler.now)
