"""ACLs in the metadata: validation, filters, limits and snapshots."""

from __future__ import annotations

import pytest
from rights import allow, rule

from quorumlog.server.controller.access_decisions import AclDecisions
from quorumlog.server.metadata.acl_rules import check_filter, check_rule, is_meant, rule_of, shown
from quorumlog.server.metadata.acls import MAX_ACLS
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.v1 import acls_pb2 as pb
from quorumlog.v1 import metadata_log_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

ALICE = "User:alice"
READ, WRITE, ALTER, ALL, ANY = (
    pb.ACL_OPERATION_READ,
    pb.ACL_OPERATION_WRITE,
    pb.ACL_OPERATION_ALTER,
    pb.ACL_OPERATION_ALL,
    pb.ACL_OPERATION_ANY,
)
TOPIC, GROUP, CLUSTER = pb.ACL_RESOURCE_TOPIC, pb.ACL_RESOURCE_GROUP, pb.ACL_RESOURCE_CLUSTER
LITERAL, PREFIXED, MATCH = pb.ACL_PATTERN_LITERAL, pb.ACL_PATTERN_PREFIXED, pb.ACL_PATTERN_MATCH
DENY = pb.ACL_PERMISSION_DENY


def wanted(name: str | None = None, **fields: object) -> pb.AclFilter:
    """Returns a filter that matches every ACL, except as restricted by these fields."""
    anything = {
        "resource_type": pb.ACL_RESOURCE_ANY,
        "pattern_type": pb.ACL_PATTERN_ANY,
        "operation": ANY,
        "permission": pb.ACL_PERMISSION_ANY,
    }
    return pb.AclFilter(resource_name=name, **{**anything, **fields})  # type: ignore[arg-type]


def deleted(image: MetadataImage, *filters: pb.AclFilter, up_to: int | None = None) -> pb.DeleteAclsResponse:
    body = metadata_log_pb2.AclsDeleted(filters=filters, created_up_to=image.applied_index if up_to is None else up_to)
    command = metadata_log_pb2.MetadataCommand(acls_deleted=body)
    return image.apply(image.applied_index + 1, command).response.delete_acls


@pytest.mark.parametrize(
    ("acl", "said"),
    [
        (rule("alice", READ, TOPIC, "t"), "'alice' is not User: and a name, or User:* for all users"),
        (rule("User:", READ, TOPIC, "t"), "is not User: and a name"),
        (rule("User:a\nb", READ, TOPIC, "t"), "printable"),
        (rule("User:" + "x" * 300, READ, TOPIC, "t"), "up to 255"),
        (rule(ALICE, READ, TOPIC, ""), "1 to 249 printable characters"),
        (rule(ALICE, READ, TOPIC, "x" * 250), "1 to 249 printable characters"),
        (rule(ALICE, READ, TOPIC, "no/name"), "use only letters"),
        (rule(ALICE, READ, TOPIC, "no/", PREFIXED), "use only letters"),
        (rule(ALICE, READ, GROUP, "*", PREFIXED), "for all of them give the literal pattern"),
        (rule(ALICE, ALTER, CLUSTER, "mine"), "its name is kafka-cluster"),
        (rule(ALICE, ALTER, CLUSTER, "kafka-cluster", PREFIXED), "its name is kafka-cluster"),
        (rule(ALICE, WRITE, GROUP, "g"), "no client can Write a Group: choose from All, Read, Delete, Describe"),
        (rule(ALICE, ANY, TOPIC, "t"), "no client can Any a Topic"),
        (rule(ALICE, 77, TOPIC, "t"), "operation 77"),  # type: ignore[arg-type]
        (rule(ALICE, READ, 9, "t"), "about Topic, Group, Cluster or ProducerName"),  # type: ignore[arg-type]
        (rule(ALICE, READ, TOPIC, "t", MATCH), "literal or prefixed"),
        (rule(ALICE, READ, TOPIC, "t", permission=pb.ACL_PERMISSION_ANY), "allows or denies"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_in_one_line(acl: pb.Acl, said: str) -> None:
    problem = check_rule(acl)
    assert problem is not None
    assert (problem.code, problem.definite, problem.retriable) == (ErrorCode.INVALID_REQUEST, True, False)
    assert said in problem.message
    assert problem.message.isprintable()


@pytest.mark.parametrize(
    "acl",
    [
        rule("User:*", ALL, TOPIC, "*"),
        rule("User:CN=größe, O=gmbh", READ, GROUP, "any text"),
        rule(ALICE, ALTER, CLUSTER, "kafka-cluster", permission=DENY),
        rule(ALICE, WRITE, pb.ACL_RESOURCE_PRODUCER_NAME, "etl/", PREFIXED),
        rule(ALICE, READ, TOPIC, ".", PREFIXED),
    ],
)
def test_rules_that_make_sense_are_taken(acl: pb.Acl) -> None:
    assert check_rule(acl) is None


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("resource_type", "resource type"),
        ("pattern_type", "pattern type"),
        ("operation", "operation"),
        ("permission", "permission"),
    ],
)
def test_a_filter_says_all_that_it_means(field: str, said: str) -> None:
    problem = check_filter(wanted("t", **{field: 0}))
    assert problem is not None
    assert f"leaves its {said} unsaid" in problem.message
    assert check_filter(wanted()) is None
    nameless = check_filter(wanted(pattern_type=MATCH))
    assert nameless is not None


@pytest.mark.parametrize(
    ("acl", "literal", "prefixed", "match", "any_pattern"),
    [
        (rule(ALICE, READ, TOPIC, "orders"), True, False, True, True),
        (rule(ALICE, READ, TOPIC, "orders", PREFIXED), False, True, True, True),
        (rule(ALICE, READ, TOPIC, "ord", PREFIXED), False, False, True, False),
        (rule(ALICE, READ, TOPIC, "*"), False, False, True, False),
        (rule(ALICE, READ, TOPIC, "orders-2"), False, False, False, False),
    ],
)
def test_which_rules_a_filter_by_name_means(
    acl: pb.Acl, literal: bool, prefixed: bool, match: bool, any_pattern: bool
) -> None:
    """Filters match as in Kafka: MATCH finds all ACLs that apply to a resource, other types only those with that exact
    name."""
    intended = {
        pattern: is_meant(rule_of(acl), wanted("orders", pattern_type=pattern))
        for pattern in (LITERAL, PREFIXED, MATCH, pb.ACL_PATTERN_ANY)
    }
    assert list(intended.values()) == [literal, prefixed, match, any_pattern]


def test_filters_mean_what_they_name_and_nothing_else() -> None:
    one = rule_of(rule(ALICE, READ, TOPIC, "t"))
    assert is_meant(one, wanted())
    assert is_meant(one, wanted("t", principal=ALICE, operation=READ, resource_type=TOPIC))
    for other in (
        wanted(principal="User:*"),
        wanted(operation=WRITE),
        wanted(operation=ALL),
        wanted(resource_type=GROUP),
        wanted(permission=DENY),
        wanted("T"),
        wanted(""),
        wanted(principal=""),
    ):
        assert not is_meant(one, other)


def test_rules_are_there_once_and_are_gone_when_they_are_deleted() -> None:
    image = MetadataImage()
    allow(image, rule(ALICE, READ, TOPIC, "a"), rule(ALICE, READ, TOPIC, "a"), rule(ALICE, READ, TOPIC, "ab", PREFIXED))
    changed = image.acls.index
    allow(image, rule(ALICE, READ, TOPIC, "a"))
    assert (len(image.acls), image.acls.index) == (2, changed), "nothing has changed"
    assert [each.resource_name for each in image.acls.concerning(TOPIC, "abc")] == ["ab"]
    answer = deleted(image, wanted("ab"))
    assert [shown(rule_of(each)) for each in answer.acls] == ["allow User:alice Read on Topic ab*"]
    assert list(image.acls.concerning(TOPIC, "abc")) == []
    assert deleted(image, wanted("ab")).deleted == 0
    assert deleted(image, wanted(), up_to=0).deleted == 0, "all were created later"
    assert (deleted(image, wanted()).deleted, len(image.acls)) == (1, 0)


def test_there_are_at_most_so_many_and_all_of_a_request_or_none() -> None:
    image = MetadataImage()
    for first in range(0, MAX_ACLS - 1, 1_000):
        allow(image, *(rule(ALICE, READ, TOPIC, f"t{n}") for n in range(first, min(first + 1_000, MAX_ACLS - 1))))
    assert len(image.acls) == MAX_ACLS - 1
    allow(image, rule(ALICE, READ, TOPIC, "x"), rule(ALICE, READ, TOPIC, "y"))
    assert len(image.acls) == MAX_ACLS - 1
    allow(image, rule(ALICE, READ, TOPIC, "x"), rule(ALICE, READ, TOPIC, "t0"))
    assert len(image.acls) == MAX_ACLS
    image.feature_level = 2
    request = pb.CreateAclsRequest(acls=[rule(ALICE, READ, TOPIC, "y")])
    decision = AclDecisions(image).create(0, 1, request)
    assert decision.response is not None
    problem = decision.response.create_acls.error
    assert (problem.code, problem.definite) == (ErrorCode.POLICY_VIOLATION, True)
    assert "10000" in problem.message
    answer = deleted(image, wanted())
    assert (answer.deleted, len(answer.acls)) == (MAX_ACLS, 1_000)


def test_snapshots_keep_the_rules_and_when_they_were_made() -> None:
    image = MetadataImage()
    allow(image, rule(ALICE, READ, TOPIC, "b"), rule("User:*", ALL, TOPIC, "a", PREFIXED, DENY))
    allow(image, rule(ALICE, READ, GROUP, "g"))
    copy = MetadataImage.from_snapshot(image.to_snapshot())
    assert copy.to_snapshot() == image.to_snapshot()
    assert (list(copy.acls), copy.acls.index) == (list(image.acls), image.acls.index)
    assert deleted(copy, wanted(), up_to=1).deleted == deleted(image, wanted(), up_to=1).deleted == 2


def test_a_cluster_with_older_nodes_takes_no_rules() -> None:
    image = MetadataImage()
    decision = AclDecisions(image).create(0, 1, pb.CreateAclsRequest(acls=[rule(ALICE, READ, TOPIC, "t")]))
    assert decision.response is not None
    assert decision.response.create_acls.error.code == ErrorCode.SERVER_BUSY
