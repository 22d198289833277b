"""Requests that nodes forward for clients: the controller authorizes them again, for the principal that they name."""

from __future__ import annotations

import pytest
from rights import RESTRICTED, UNRESTRICTED, allow, rule

from quorumlog.server.access.partial_denial import put_refused, without_refused
from quorumlog.server.controller.decision import ControllerDecision, answer_now
from quorumlog.server.controller.forwarded_requests import ForwardedRequests
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import acls_pb2, admin_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

ALTERS = rule("User:alice", acls_pb2.ACL_OPERATION_ALTER, acls_pb2.ACL_RESOURCE_CLUSTER, "kafka-cluster")
WRITES = rule("User:alice", acls_pb2.ACL_OPERATION_WRITE, acls_pb2.ACL_RESOURCE_PRODUCER_NAME, "etl")
CREATES = rule("User:alice", acls_pb2.ACL_OPERATION_CREATE, acls_pb2.ACL_RESOURCE_TOPIC, "mine")


def decided(principal: str, options: object = RESTRICTED, **body: object) -> list[peer_pb2.ControllerRequest]:
    """Returns the requests that are authorized and reach the decision of the controller."""
    image = MetadataImage()
    allow(image, ALTERS, WRITES, CREATES)
    reached: list[peer_pb2.ControllerRequest] = []

    def decide(request: peer_pb2.ControllerRequest) -> ControllerDecision:
        reached.append(request)
        return answer_now(
            request.request_id,
            peer_pb2.ControllerResponse(
                create_topics=admin_pb2.CreateTopicsResponse(
                    results=[admin_pb2.CreateTopicResult(name=each.name) for each in request.create_topics.topics]
                )
            ),
        )

    request = peer_pb2.ControllerRequest(request_id=7, principal=principal, **body)  # type: ignore[arg-type]
    decision = ForwardedRequests(options, image).decide(request, decide)  # type: ignore[arg-type]
    assert decision.request_id == 7
    decided.response = decision.response  # type: ignore[attr-defined]
    return reached


def response() -> peer_pb2.ControllerResponse:
    return decided.response  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize(("who", "may"), [("User:alice", True), ("User:root", True), ("User:bob", False), ("", False)])
def test_the_principal_decides_and_none_is_nobody(who: str, may: bool) -> None:
    assert bool(decided(who, alter_node=admin_pb2.AlterNodeRequest(node_id=1))) is may
    if not may:
        assert response().error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert bool(decided(who, create_acls=acls_pb2.CreateAclsRequest())) is may
    assert bool(decided(who, claim_producer=peer_pb2.ClaimProducer(name="etl"))) is may
    if not may:
        assert response().error.code == ErrorCode.PRODUCER_NAME_AUTHORIZATION_FAILED


def test_what_nodes_ask_for_themselves_needs_no_principal() -> None:
    assert decided("", heartbeat=peer_pb2.BrokerHeartbeat(node_id=1))
    assert decided("", create_coordinators=peer_pb2.CreateCoordinators())


def test_nobody_is_asked_for_permission_where_that_is_off() -> None:
    assert decided("", UNRESTRICTED, alter_node=admin_pb2.AlterNodeRequest(node_id=1))


def test_of_several_topics_those_that_may_be_created_are() -> None:
    topics = [admin_pb2.NewTopic(name=name) for name in ("yours", "mine", "theirs")]
    (reached,) = decided("User:alice", create_topics=admin_pb2.CreateTopicsRequest(topics=topics, timeout_ms=9))
    assert [each.name for each in reached.create_topics.topics] == ["mine"]
    assert reached.create_topics.timeout_ms == 9
    results = response().create_topics.results
    assert [each.name for each in results] == ["yours", "mine", "theirs"]
    forbidden = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert [each.error.code for each in results] == [forbidden, ErrorCode.NONE, forbidden]
    assert not decided("User:bob", create_topics=admin_pb2.CreateTopicsRequest(topics=topics))
    assert len(response().create_topics.results) == 3


def test_only_who_may_alter_the_cluster_says_which_id_a_topic_is_to_have() -> None:
    topics = [admin_pb2.NewTopic(name="mine", topic_id=b"i" * 16)]
    assert decided("User:alice", create_topics=admin_pb2.CreateTopicsRequest(topics=topics))
    image = MetadataImage()
    allow(image, CREATES)
    request = peer_pb2.ControllerRequest(
        request_id=1, principal="User:alice", create_topics=admin_pb2.CreateTopicsRequest(topics=topics)
    )
    decision = ForwardedRequests(RESTRICTED, image).decide(request, lambda _: pytest.fail("it is decided on"))
    assert decision.response is not None
    (result,) = decision.response.create_topics.results
    assert result.error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_ids_stay_beside_their_names_when_others_are_taken_out() -> None:
    no = error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no")
    topics = admin_pb2.DeleteTopicsRequest(names=["a", "b", "c"], topic_ids=[b"1" * 16, b"2" * 16, b"3" * 16])
    kept = without_refused(topics, [None, no, None])
    assert isinstance(kept, admin_pb2.DeleteTopicsRequest)
    assert (list(kept.names), list(kept.topic_ids)) == (["a", "c"], [b"1" * 16, b"3" * 16])
    claims = [admin_pb2.ProducerClaim(producer_id=number) for number in range(3)]
    producers = without_refused(admin_pb2.DeleteProducersRequest(names=["a", "b", "c"], claims=claims), [no, no, None])
    assert isinstance(producers, admin_pb2.DeleteProducersRequest)
    assert [each.producer_id for each in producers.claims] == [2]
    answer = admin_pb2.DeleteTopicsResponse(results=[admin_pb2.TopicResult(name=name) for name in ("a", "c")])
    put_refused(answer, ["a", "b", "c"], [None, no, None])
    assert [(each.name, each.error.code) for each in answer.results] == [("a", 0), ("b", no.code), ("c", 0)]
