"""Clients that need permission, in clusters with faults: nothing is served that the node's own metadata refuse."""

from __future__ import annotations

from collections import Counter

import pytest
from google.protobuf.message import Message as ProtoMessage
from rights import allow, rule

from quorumlog.server.metadata.acl_rules import rule_of
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.step.events import ClientRequest, Effects, Reply
from quorumlog.server.step.request_context import RequestContext
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.seeds.simulation import Simulation
from quorumlog.simulator.world.rights_judge import RightsJudge, is_allowed
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1 import groups_pb2, transactions_pb2
from quorumlog.v1.acls_pb2 import (
    ACL_OPERATION_DESCRIBE,
    ACL_OPERATION_READ,
    ACL_OPERATION_WRITE,
    ACL_PERMISSION_DENY,
    ACL_RESOURCE_GROUP,
    ACL_RESOURCE_PRODUCER_NAME,
    ACL_RESOURCE_TOPIC,
)
from quorumlog.v1.errors_pb2 import ErrorCode

SEEDS = range(1, 13)
TOPIC = b"t" * 16
GROUP_REFUSED, NAME_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.PRODUCER_NAME_AUTHORIZATION_FAILED
READS = rule("User:alice", ACL_OPERATION_READ, ACL_RESOURCE_TOPIC, "t")


@pytest.mark.thorough
def test_nodes_serve_what_acls_and_quotas_allow() -> None:
    """Nothing is served that a node's own ACLs refuse, nothing passes beyond quotas, and no other client waits."""
    rights: Counter[str] = Counter()
    quotas: Counter[str] = Counter()
    for seed in SEEDS:
        simulation = Simulation(seed, with_rights=True)
        result = simulation.run()
        assert result.violation is None, (
            f"python -m quorumlog.simulator.simulate --seed {seed} --rights: {result.violation}"
        )
        rights += simulation.cluster.rights.judged
        quotas += simulation.cluster.quotas.judged
    assert min(rights["allowed"], rights["refused"]) > 500, rights
    assert min(quotas[key] for key in ("producer_byte_rate", "consumer_byte_rate", "request_rate", "at once")) > 50


def judge(*rules: object, answer: pb.FetchResult | None = None, who: str = "User:alice") -> RightsJudge:
    """A judge that has seen one fetch of a node with these rules."""
    response = pb.FetchResponse(results=[answer or pb.FetchResult(topic_id=TOPIC, entries=[b"x"])])
    return judge_of(pb.FetchRequest(), response, *rules, who=who)


def judge_of(asked: ProtoMessage, response: ProtoMessage, *rules: object, who: str = "User:alice") -> RightsJudge:
    """A judge that has seen a node with these rules answer one request."""
    image = MetadataImage()
    if rules:
        allow(image, *rules)  # type: ignore[arg-type]
    made = RightsJudge(frozenset({"User:root"}), lambda topic_id: "t" if topic_id == TOPIC else None)
    made.stepped(1, 1, image, [], Effects())
    request = ClientRequest(1, asked, client=RequestContext(principal=who))
    made.stepped(1, 1, image, [request], Effects(replies=[Reply(1, response)]))
    return made


def test_the_judge_notices_what_is_served_without_permission_and_what_is_refused_with_it() -> None:
    assert judge(READS).judged == {"allowed": 1}
    denied = rule("User:*", ACL_OPERATION_READ, ACL_RESOURCE_TOPIC, "t", permission=ACL_PERMISSION_DENY)
    for rules in ((), (READS, denied), (rule("User:alice", ACL_OPERATION_WRITE, ACL_RESOURCE_TOPIC, "t"),)):
        with pytest.raises(Violation, match="serves User:alice"):
            judge(*rules)
    refused = pb.FetchResult(topic_id=TOPIC)
    refused.error.code = 80  # TOPIC_AUTHORIZATION_FAILED
    assert judge(answer=refused).judged == {"refused": 1}
    with pytest.raises(Violation, match="refuses User:alice"):
        judge(READS, answer=refused)
    assert judge(who="User:root").judged == {}, "for whom no rule counts"


@pytest.mark.parametrize("kind", [groups_pb2.COORDINATOR_TYPE_GROUP, groups_pb2.COORDINATOR_TYPE_TRANSACTION])
def test_coordinators_are_judged_by_type(kind: groups_pb2.CoordinatorType.ValueType) -> None:
    """The keys of FindCoordinators are groups or transactional ids: only ACLs for these count."""
    resources = [(ACL_RESOURCE_GROUP, GROUP_REFUSED), (ACL_RESOURCE_PRODUCER_NAME, NAME_REFUSED)]
    (resource, code), (other, _) = resources if kind == groups_pb2.COORDINATOR_TYPE_GROUP else reversed(resources)
    asked = groups_pb2.FindCoordinatorsRequest(group_ids=["etl"], type=kind)
    found = groups_pb2.FindCoordinatorsResponse()
    problem = found.coordinators.add(group_id="etl", node_id=1).error
    allowing, unrelated = (rule("User:alice", ACL_OPERATION_DESCRIBE, each, "etl") for each in (resource, other))
    for problem.code in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE):
        assert judge_of(asked, found, allowing).judged == {"allowed": 1}
        with pytest.raises(Violation, match="serves User:alice"):
            judge_of(asked, found, unrelated)
    problem.code = code
    assert judge_of(asked, found, unrelated).judged == {"refused": 1}
    with pytest.raises(Violation, match="refuses User:alice"):
        judge_of(asked, found, allowing)


def test_transactional_writes_are_judged() -> None:
    """A request that writes with a transactional id needs Write on it."""
    writes = rule("User:alice", ACL_OPERATION_WRITE, ACL_RESOURCE_PRODUCER_NAME, "etl")
    topic = rule("User:alice", ACL_OPERATION_WRITE, ACL_RESOURCE_TOPIC, "t")
    end = transactions_pb2.EndTransactionRequest(transactional_id="etl")
    produce = pb.ProduceRequest(transactional_id="etl")
    commit = groups_pb2.CommitOffsetsRequest(transactional_id="etl")
    answers: list[tuple[ProtoMessage, ProtoMessage, int]] = [
        (end, transactions_pb2.EndTransactionResponse(), 1),
        (produce, pb.ProduceResponse(results=[pb.ProduceResult(topic_id=TOPIC)]), 2),
        (commit, groups_pb2.CommitOffsetsResponse(results=[groups_pb2.PartitionOutcome(topic_id=TOPIC)]), 1),
    ]
    for asked, answer, claims in answers:
        assert judge_of(asked, answer, writes, topic).judged == {"allowed": claims}
        with pytest.raises(Violation, match="serves User:alice operation 4 on etl"):
            judge_of(asked, answer, topic)
    refused = pb.ProduceResponse(results=[pb.ProduceResult(topic_id=TOPIC)])
    refused.results[0].error.code = NAME_REFUSED
    assert judge_of(produce, refused, topic).judged == {"refused": 1}
    with pytest.raises(Violation, match="refuses User:alice operation 4 on etl"):
        judge_of(produce, refused, topic, writes)


def test_the_judge_reads_rules_plainly() -> None:
    rules = [rule_of(READS)]
    assert is_allowed(rules, "User:alice", ACL_OPERATION_READ, ACL_RESOURCE_TOPIC, "t")
    assert not is_allowed(rules, "User:bob", ACL_OPERATION_READ, ACL_RESOURCE_TOPIC, "t")
    assert not is_allowed(rules, "User:alice", ACL_OPERATION_WRITE, ACL_RESOURCE_TOPIC, "t")
