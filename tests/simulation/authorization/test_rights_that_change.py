"""ACLs that change while clients are active: every node enforces the new ones, and they survive restarts."""

from __future__ import annotations

import pytest
from quiet_cluster import TOPIC
from restricted_cluster import Restricted
from rights import rule

from quorumlog.simulator.models.records import text_payload
from quorumlog.v1 import acls_pb2, admin_pb2
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1.acls_pb2 import (
    ACL_OPERATION_ALL,
    ACL_OPERATION_ALTER,
    ACL_OPERATION_DELETE,
    ACL_OPERATION_DESCRIBE,
    ACL_OPERATION_READ,
    ACL_OPERATION_WRITE,
    ACL_PATTERN_PREFIXED,
    ACL_PERMISSION_DENY,
    ACL_RESOURCE_CLUSTER,
    ACL_RESOURCE_GROUP,
    ACL_RESOURCE_PRODUCER_NAME,
    ACL_RESOURCE_TOPIC,
)
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import Codec, build_batch

READS = rule("User:alice", ACL_OPERATION_READ, ACL_RESOURCE_TOPIC, TOPIC)


class Reading(Restricted):
    """A cluster with a reader on a stream of the leader's node."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.allow(READS)
        self.node = self.leader().node_id
        self.stream = self.cluster.open_stream(self.node)
        self.epoch = 0

    def fetch(self, max_wait_ms: int = 0) -> list[object]:
        """Sends the next request of the session; its answer comes into the list."""
        self.epoch += 1
        named = [pb.FetchPartition(topic_id=self.topic_id(TOPIC), leader_epoch=-1)] if self.epoch == 1 else []
        request = pb.FetchRequest(
            correlation_id=self.epoch, session_epoch=self.epoch, max_wait_ms=max_wait_ms, partitions=named
        )
        answers: list[object] = []
        self.cluster.request("alice", self.node, request, answers.append, stream=self.stream)
        return answers

    def write(self) -> None:
        batch = build_batch(
            text_payload(["hope"]),
            record_count=1,
            codec=Codec.NONE,
            base_timestamp_ms=1_700_000_000_000,
            max_timestamp_ms=1_700_000_000_000,
        )
        body = pb.PartitionBatch(topic_id=self.topic_id(TOPIC), partition=0, batch=batch)
        request = pb.ProduceRequest(correlation_id=1, acks=-1, timeout_ms=5_000, batches=[body])
        answer = self.ask("admin", request, pb.ProduceResponse, self.node)
        assert not answer.results[0].HasField("error"), answer

    def answer(self, answers: list[object]) -> pb.FetchResponse:
        self.until(lambda: bool(answers), 5)
        assert isinstance(answers[0], pb.FetchResponse)
        return answers[0]


def test_a_fetch_that_waits_is_answered_when_its_client_may_not_read_any_more() -> None:
    cluster = Reading(3)
    assert not cluster.answer(cluster.fetch()).results[0].HasField("error")
    waiting = cluster.fetch(max_wait_ms=60_000)
    cluster.run(0.5)
    assert not waiting
    cluster.withdraw("User:alice")
    (result,) = cluster.answer(waiting).results
    assert result.error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_session_hands_out_nothing_that_was_written_after_its_client_lost_the_right() -> None:
    cluster = Reading(4)
    cluster.write()
    assert cluster.answer(cluster.fetch()).results[0].entries
    cluster.withdraw("User:alice")
    cluster.write()
    (result,) = cluster.answer(cluster.fetch()).results
    assert result.error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not result.entries
    cluster.allow(READS)
    assert not cluster.answer(cluster.fetch()).results, "a partition with an error has left the session"


def test_other_rules_that_change_do_not_disturb_a_session() -> None:
    cluster = Reading(5)
    cluster.answer(cluster.fetch())
    waiting = cluster.fetch(max_wait_ms=60_000)
    cluster.allow(rule("User:bob", ACL_OPERATION_READ, ACL_RESOURCE_TOPIC, TOPIC))
    cluster.run(0.5)
    assert not waiting
    cluster.write()
    assert cluster.answer(waiting).results[0].entries


@pytest.mark.parametrize("node", [1, 2, 3])
def test_the_controller_knows_who_asks_whichever_node_they_ask(node: int) -> None:
    cluster = Restricted(11)
    cluster.allow(rule("User:alice", ACL_OPERATION_ALL, ACL_RESOURCE_TOPIC, "mine", ACL_PATTERN_PREFIXED))

    def create(client: str, *names: str) -> list[int]:
        request = admin_pb2.CreateTopicsRequest(timeout_ms=5_000)
        for name in names:
            request.topics.add(name=name, num_partitions=1, replication_factor=3)
        answer = cluster.ask(client, request, admin_pb2.CreateTopicsResponse, node)
        assert [each.name for each in answer.results] == list(names)
        return [each.error.code for each in answer.results]

    forbidden = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert create("alice", "yours", "mine-1", "mine-2", "x") == [forbidden, ErrorCode.NONE, ErrorCode.NONE, forbidden]
    assert create("bob", "mine-3") == [forbidden]
    image = cluster.cluster.processes[node].image
    assert image is not None
    assert set(image.topics) == {TOPIC, "mine-1", "mine-2"}
    request = admin_pb2.DeleteTopicsRequest(names=["mine-1", TOPIC], timeout_ms=5_000)
    deleted = cluster.ask("alice", request, admin_pb2.DeleteTopicsResponse, node)
    codes = [each.error.code for each in deleted.results]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_name_is_claimed_only_by_who_may_write_under_it() -> None:
    cluster = Restricted(12)
    cluster.allow(rule("User:alice", ACL_OPERATION_WRITE, ACL_RESOURCE_PRODUCER_NAME, "etl"))

    def claim(client: str, name: str) -> int:
        request = pb.InitProducerIdRequest(timeout_ms=5_000, name=name, epoch=-1, known_epoch=-1)
        return cluster.ask(client, request, pb.InitProducerIdResponse).error.code

    assert claim("alice", "etl") == ErrorCode.NONE
    assert claim("alice", "other") == ErrorCode.PRODUCER_NAME_AUTHORIZATION_FAILED
    assert claim("bob", "etl") == ErrorCode.PRODUCER_NAME_AUTHORIZATION_FAILED
    assert claim("alice", "") == ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "she may write to no topic"
    cluster.allow(rule("User:alice", ACL_OPERATION_WRITE, ACL_RESOURCE_TOPIC, TOPIC))
    assert claim("alice", "") == ErrorCode.NONE


def test_rules_outlive_restarts_and_snapshots() -> None:
    cluster = Restricted(13, checkpoint_entries=2)
    cluster.allow(READS, rule("User:bob", ACL_OPERATION_ALL, ACL_RESOURCE_TOPIC, "*", permission=ACL_PERMISSION_DENY))
    cluster.allow(rule("User:alice", ACL_OPERATION_READ, ACL_RESOURCE_GROUP, "g"))
    cluster.run(2)
    for node in (1, 2, 3):
        cluster.cluster.processes[node].die(silent=False)
        cluster.run(1)
        cluster.cluster.start(node)
        cluster.run(3)
    for node in (1, 2, 3):
        image = cluster.cluster.processes[node].image
        assert image is not None
        assert len(image.acls) == 3
        question = acls_pb2.CheckAclsRequest(
            operation=ACL_OPERATION_READ, resource_type=ACL_RESOURCE_TOPIC, resource_name=TOPIC
        )
        assert cluster.ask("alice", question, acls_pb2.CheckAclsResponse, node).allowed
        assert not cluster.ask("bob", question, acls_pb2.CheckAclsResponse, node).allowed


def test_a_deletion_that_comes_late_takes_no_rule_that_was_made_since() -> None:
    cluster = Restricted(14)
    cluster.allow(READS)
    wanted = acls_pb2.AclFilter(
        resource_type=acls_pb2.ACL_RESOURCE_ANY,
        pattern_type=acls_pb2.ACL_PATTERN_ANY,
        principal="User:alice",
        operation=acls_pb2.ACL_OPERATION_ANY,
        permission=acls_pb2.ACL_PERMISSION_ANY,
    )
    listed = cluster.ask(
        "admin", acls_pb2.DescribeAclsRequest(filter=wanted, timeout_ms=5_000), acls_pb2.DescribeAclsResponse
    )
    late = acls_pb2.DeleteAclsRequest(filters=[wanted], timeout_ms=5_000, created_up_to=listed.applied_index)
    assert cluster.withdraw("User:alice") == 1
    cluster.allow(READS)
    assert cluster.ask("admin", late, acls_pb2.DeleteAclsResponse, 2).deleted == 0
    assert cluster.withdraw("User:alice") == 1


def test_the_super_user_cannot_be_locked_out() -> None:
    cluster = Restricted(15)
    everything = (ACL_RESOURCE_TOPIC, "*"), (ACL_RESOURCE_GROUP, "*"), (ACL_RESOURCE_CLUSTER, "kafka-cluster")
    for who in ("User:*", "User:root"):
        cluster.allow(
            *(rule(who, ACL_OPERATION_ALL, kind, name, permission=ACL_PERMISSION_DENY) for kind, name in everything)
        )
    assert cluster.withdraw("User:*") == 3
    assert cluster.withdraw("User:root") == 3


def test_who_may_alter_the_cluster_makes_rules_and_who_may_not_makes_none() -> None:
    cluster = Restricted(16)
    request = acls_pb2.CreateAclsRequest(acls=[READS], timeout_ms=5_000)
    for node in (1, 2, 3):
        refused = cluster.ask("alice", request, acls_pb2.CreateAclsResponse, node)
        assert refused.error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    cluster.allow(rule("User:alice", ACL_OPERATION_ALTER, ACL_RESOURCE_CLUSTER, "kafka-cluster"))
    assert cluster.ask("alice", request, acls_pb2.CreateAclsResponse, 3).created == 1
    question = acls_pb2.CheckAclsRequest(
        operation=ACL_OPERATION_READ, resource_type=ACL_RESOURCE_TOPIC, resource_name=TOPIC, principal="User:bob"
    )
    reported = cluster.ask("alice", question, acls_pb2.CheckAclsResponse)
    assert not reported.HasField("error"), "Alter implies Describe"
    refused_question = cluster.ask(
        "bob",
        acls_pb2.CheckAclsRequest(
            operation=ACL_OPERATION_DELETE,
            resource_type=ACL_RESOURCE_TOPIC,
            resource_name=TOPIC,
            principal="User:alice",
        ),
        acls_pb2.CheckAclsResponse,
    )
    assert refused_question.error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_groups_are_listed_to_those_who_may_describe_them() -> None:
    from quorumlog.v1 import groups_pb2

    cluster = Restricted(17)
    cluster.allow(rule("User:alice", ACL_OPERATION_DESCRIBE, ACL_RESOURCE_GROUP, "mine"))

    def find(client: str, *groups: str) -> list[int]:
        request = groups_pb2.FindCoordinatorsRequest(group_ids=groups)
        answer = cluster.ask(client, request, groups_pb2.FindCoordinatorsResponse)
        return [each.error.code for each in answer.coordinators]

    refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert find("bob", "mine") == [refused], "a user who may use no coordinator creates none"
    image = cluster.cluster.processes[1].image
    assert image is not None
    assert list(image.topics) == [TOPIC]
    cluster.until(lambda: find("alice", "mine", "other") == [ErrorCode.NONE, refused], 20)
