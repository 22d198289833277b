"""Authorization: decisions against a table of the ACL rules in Kafka's documentation, in our own words."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Iterator

import pytest
from rights import RESTRICTED, UNRESTRICTED, allow, holder, refusals_by, rule, withdraw

from quorumlog.server.access.authorizer import Authorizer, TopicAccess
from quorumlog.server.metadata.acl_rules import OPERATIONS
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.step.request_context import RequestContext
from quorumlog.v1 import acls_pb2 as pb

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE, ALL = (
    pb.ACL_OPERATION_READ, pb.ACL_OPERATION_WRITE, pb.ACL_OPERATION_CREATE, pb.ACL_OPERATION_DELETE,
    pb.ACL_OPERATION_ALTER, pb.ACL_OPERATION_DESCRIBE, pb.ACL_OPERATION_DESCRIBE_CONFIGS,
    pb.ACL_OPERATION_ALTER_CONFIGS, pb.ACL_OPERATION_IDEMPOTENT_WRITE, pb.ACL_OPERATION_ALL,
)  # fmt: skip
TOPIC, GROUP, CLUSTER, NAME = (
    pb.ACL_RESOURCE_TOPIC,
    pb.ACL_RESOURCE_GROUP,
    pb.ACL_RESOURCE_CLUSTER,
    pb.ACL_RESOURCE_PRODUCER_NAME,
)
LITERAL, PREFIXED = pb.ACL_PATTERN_LITERAL, pb.ACL_PATTERN_PREFIXED
ALLOW, DENY = pb.ACL_PERMISSION_ALLOW, pb.ACL_PERMISSION_DENY
ALICE, EVERYBODY = "User:alice", "User:*"

#: Operations that are allowed together with the one that an ACL allows. No other operation implies another.
IMPLIED = {
    READ: {DESCRIBE},
    WRITE: {DESCRIBE},
    DELETE: {DESCRIBE},
    ALTER: {DESCRIBE},
    ALTER_CONFIGS: {DESCRIBE_CONFIGS},
}

#: Pattern type, name in the ACL, name of the resource; true if the ACL applies to it.
PATTERNS = [
    (LITERAL, "orders", "orders", True),
    (LITERAL, "orders", "orders-old", False),
    (LITERAL, "orders", "order", False),
    (LITERAL, "orders", "Orders", False),
    (LITERAL, "*", "orders", True),
    (LITERAL, "*", "*", True),
    (PREFIXED, "orders", "orders", True),
    (PREFIXED, "orders", "orders-old", True),
    (PREFIXED, "orders", "order", False),
    (PREFIXED, "o", "orders", True),
    (PREFIXED, "ord*", "orders", False),
]


def authorizer(*rules: pb.Acl) -> Authorizer:
    image = MetadataImage()
    if rules:
        allow(image, *rules)
    return Authorizer(RESTRICTED, holder(image))


def cells() -> Iterator[tuple[int, int, int]]:
    """Yields the type of resource, the operation of an ACL, and the requested operation."""
    for kind, operations in OPERATIONS.items():
        for ruled in (*sorted(operations), ALL):
            yield from ((kind, ruled, request) for request in sorted(operations))


@pytest.mark.parametrize(("kind", "ruled", "asked"), list(cells()))
def test_a_rule_allows_its_operation_and_what_that_implies(kind: int, ruled: int, asked: int) -> None:
    name = "kafka-cluster" if kind == CLUSTER else "x"
    allowed = ruled in (asked, ALL) or asked in IMPLIED.get(ruled, ())
    assert authorizer(rule(ALICE, ruled, kind, name)).may(ALICE, asked, kind, name) is allowed


@pytest.mark.parametrize(("kind", "ruled", "asked"), list(cells()))
def test_a_rule_denies_its_operation_alone(kind: int, ruled: int, asked: int) -> None:
    name = "kafka-cluster" if kind == CLUSTER else "x"
    everything = rule(ALICE, ALL, kind, name)
    denied = authorizer(everything, rule(ALICE, ruled, kind, name, permission=DENY))
    assert denied.may(ALICE, asked, kind, name) is not (ruled in (asked, ALL))


@pytest.mark.parametrize(("pattern", "ruled", "asked", "concerned"), PATTERNS)
@pytest.mark.parametrize("kind", [TOPIC, GROUP, NAME])
def test_patterns_say_which_names_a_rule_is_about(
    kind: int, pattern: int, ruled: str, asked: str, concerned: bool
) -> None:
    allowing = rule(ALICE, DESCRIBE, kind, ruled, pattern)
    assert authorizer(allowing).may(ALICE, DESCRIBE, kind, asked) is concerned
    denying = rule(ALICE, DESCRIBE, kind, ruled, pattern, DENY)
    assert authorizer(rule(ALICE, ALL, kind, "*"), denying).may(ALICE, DESCRIBE, kind, asked) is not concerned


@pytest.mark.parametrize("kind", [TOPIC, GROUP, NAME])
def test_a_rule_about_one_type_of_resource_says_nothing_of_another(kind: int) -> None:
    decides = authorizer(rule(ALICE, ALL, kind, "*"))
    for other in {TOPIC, GROUP, NAME} - {kind}:
        assert not decides.may(ALICE, DESCRIBE, other, "x")


@pytest.mark.parametrize("allowing", [(LITERAL, "orders"), (PREFIXED, "ord"), (LITERAL, "*")])
@pytest.mark.parametrize("denying", [(LITERAL, "orders"), (PREFIXED, "ord"), (LITERAL, "*")])
@pytest.mark.parametrize("allowed", [ALICE, EVERYBODY])
@pytest.mark.parametrize("denied", [ALICE, EVERYBODY])
def test_what_is_denied_is_denied_however_it_is_allowed(
    allowing: tuple[int, str], denying: tuple[int, str], allowed: str, denied: str
) -> None:
    yes = rule(allowed, READ, TOPIC, allowing[1], allowing[0])
    no = rule(denied, READ, TOPIC, denying[1], denying[0], DENY)
    for rules in ((yes, no), (no, yes)):
        assert not authorizer(*rules).may(ALICE, READ, TOPIC, "orders")
    assert authorizer(yes).may(ALICE, READ, TOPIC, "orders")


def test_where_no_rule_allows_nobody_may() -> None:
    decides = authorizer(rule("User:bob", READ, TOPIC, "orders"))
    assert not decides.may(ALICE, READ, TOPIC, "orders")
    assert not authorizer().may(ALICE, READ, TOPIC, "orders")
    assert not decides.may("", READ, TOPIC, "orders")


def test_a_rule_for_everybody_is_for_who_has_not_signed_in_too() -> None:
    decides = authorizer(rule(EVERYBODY, READ, TOPIC, "open"))
    for who in (ALICE, "User:ANONYMOUS", ""):
        assert decides.may(who, READ, TOPIC, "open")
    assert authorizer(rule("User:ANONYMOUS", READ, TOPIC, "open")).may("", READ, TOPIC, "open")


def test_names_of_principals_are_taken_as_they_are() -> None:
    decides = authorizer(rule(ALICE, READ, TOPIC, "x"))
    for other in ("User:Alice", "User:alice ", "alice", "User:ali", "User:alices", "Group:alice"):
        assert not decides.may(other, READ, TOPIC, "x")


def test_no_rule_counts_for_super_users() -> None:
    decides = authorizer(rule(EVERYBODY, ALL, TOPIC, "*", permission=DENY))
    assert decides.may("User:root", WRITE, TOPIC, "x")
    assert not decides.may(ALICE, WRITE, TOPIC, "x")


def test_everybody_may_do_everything_where_nobody_is_asked_for_permission() -> None:
    image = MetadataImage()
    allow(image, rule(EVERYBODY, ALL, TOPIC, "*", permission=DENY))
    off = Authorizer(UNRESTRICTED, holder(image))
    assert off.may(ALICE, WRITE, TOPIC, "x")
    assert off.topic_access(ALICE, WRITE, "x") is TopicAccess.ALLOWED
    assert off.may_be_given_an_identity(ALICE)
    assert not off.decide(ALICE, WRITE, TOPIC, "x"), "what would be decided is still said"


def test_decisions_are_remembered_only_until_the_rules_change() -> None:
    image = MetadataImage()
    decides = Authorizer(RESTRICTED, holder(image))
    assert not decides.may(ALICE, READ, TOPIC, "x")
    allow(image, rule(ALICE, READ, TOPIC, "x"))
    assert decides.may(ALICE, READ, TOPIC, "x")
    withdraw(image, _about("x"))
    assert not decides.may(ALICE, READ, TOPIC, "x")
    before = decides.version
    image.advance(image.applied_index + 1)
    assert decides.version == before, "other entries leave them alone"


def test_an_image_from_a_snapshot_decides_by_its_own_rules() -> None:
    image = MetadataImage()
    current = dataclasses.make_dataclass("Current", ["image"])(image)
    decides = Authorizer(RESTRICTED, current)
    allow(image, rule(ALICE, READ, TOPIC, "x"))
    assert decides.may(ALICE, READ, TOPIC, "x")
    other = MetadataImage()
    allow(other, rule(ALICE, READ, TOPIC, "y"))
    current.image = MetadataImage.from_snapshot(other.to_snapshot())
    assert (decides.may(ALICE, READ, TOPIC, "x"), decides.may(ALICE, READ, TOPIC, "y")) == (False, True)


def test_who_may_not_describe_a_topic_may_not_know_of_it() -> None:
    decides = authorizer(rule(ALICE, DESCRIBE, TOPIC, "seen"), rule(ALICE, WRITE, TOPIC, "written"))
    assert decides.topic_access(ALICE, READ, "seen") is TopicAccess.REFUSED
    assert decides.topic_access(ALICE, READ, "written") is TopicAccess.REFUSED
    assert decides.topic_access(ALICE, WRITE, "written") is TopicAccess.ALLOWED
    assert decides.topic_access(ALICE, READ, "hidden") is TopicAccess.HIDDEN
    denied = authorizer(rule(ALICE, READ, TOPIC, "x"), rule(ALICE, DESCRIBE, TOPIC, "x", permission=DENY))
    assert denied.topic_access(ALICE, READ, "x") is TopicAccess.ALLOWED
    assert denied.topic_access(ALICE, WRITE, "x") is TopicAccess.HIDDEN


@pytest.mark.parametrize(
    ("rules", "may"),
    [
        ([], False),
        ([(ALLOW, WRITE, LITERAL, "x")], True),
        ([(ALLOW, WRITE, PREFIXED, "x")], True),
        ([(ALLOW, ALL, LITERAL, "*")], True),
        ([(ALLOW, READ, LITERAL, "*")], False),
        ([(ALLOW, WRITE, LITERAL, "x"), (DENY, WRITE, LITERAL, "x")], False),
        ([(ALLOW, WRITE, LITERAL, "x"), (DENY, ALL, PREFIXED, "x")], False),
        ([(ALLOW, WRITE, LITERAL, "x"), (DENY, WRITE, LITERAL, "y")], True),
        ([(ALLOW, WRITE, PREFIXED, "x"), (DENY, WRITE, LITERAL, "x")], True),
        ([(ALLOW, WRITE, PREFIXED, "xy"), (DENY, WRITE, PREFIXED, "x")], False),
        ([(ALLOW, WRITE, PREFIXED, "x"), (DENY, WRITE, PREFIXED, "xy")], True),
        ([(ALLOW, WRITE, LITERAL, "*"), (DENY, WRITE, PREFIXED, "x")], True),
        ([(ALLOW, WRITE, LITERAL, "x"), (DENY, WRITE, LITERAL, "*")], False),
    ],
)
def test_who_may_write_to_some_topic_is_given_an_identity(rules: list[tuple[int, int, int, str]], may: bool) -> None:
    made = [rule(ALICE, operation, TOPIC, name, pattern, permission) for permission, operation, pattern, name in rules]
    decides = authorizer(*made)
    assert decides.may_be_given_an_identity(ALICE) is may
    assert decides.may_be_given_an_identity(ALICE) is may
    assert decides.may_be_given_an_identity("User:root")
    assert authorizer(rule(ALICE, IDEMPOTENT_WRITE, CLUSTER, "kafka-cluster")).may_be_given_an_identity(ALICE)


def test_decisions_are_those_of_a_plain_reading_of_all_rules() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    names = ["a", "ab", "abc", "b", "*", "ba"]
    for _ in range(30):
        rules = {_drawn(rng, names).SerializeToString(): None for _ in range(rng.randint(0, 12))}
        made = [pb.Acl.FromString(each) for each in rules]
        decides = authorizer(*made)
        for who in (ALICE, "User:bob"):
            for request in OPERATIONS[TOPIC]:
                for name in names:
                    assert decides.may(who, request, TOPIC, name) is _plainly(made, who, request, name), (
                        made,
                        who,
                        name,
                    )


def _drawn(rng: random.Random, names: list[str]) -> pb.Acl:
    pattern = rng.choice((LITERAL, PREFIXED))
    name = rng.choice([each for each in names if pattern == LITERAL or each != "*"])
    operation = rng.choice((ALL, *sorted(OPERATIONS[TOPIC])))
    return rule(rng.choice((ALICE, "User:bob", EVERYBODY)), operation, TOPIC, name, pattern, rng.choice((ALLOW, DENY)))


def _plainly(rules: Iterable[pb.Acl], who: str, asked: int, name: str) -> bool:
    """Returns the decision about a topic by a plain reading of all ACLs, without any index or memory."""
    about = [
        each
        for each in rules
        if each.principal in (who, EVERYBODY)
        and (
            name.startswith(each.resource_name) if each.pattern_type == PREFIXED else each.resource_name in (name, "*")
        )
    ]
    if any(each.permission == DENY and each.operation in (asked, ALL) for each in about):
        return False
    return any(
        each.permission == ALLOW and (each.operation in (asked, ALL) or asked in IMPLIED.get(each.operation, ()))
        for each in about
    )


def test_what_clients_are_told_says_who_and_what_and_how_to_go_on() -> None:
    image = MetadataImage()
    refusals = refusals_by(image, RESTRICTED)
    problem = refusals.resource(RequestContext(principal=ALICE), READ, GROUP, "g")
    assert problem is not None
    assert problem.message == (
        "User:alice has no permission for Read on Group g: an administrator can allow it (quorumlog acls create)"
    )
    assert (problem.retriable, problem.definite) == (False, True)


def test_no_client_fills_memory_with_names_that_no_rule_could_name() -> None:
    """Decisions about names that are longer than any ACL can have are not remembered."""
    deciding = authorizer(rule(ALICE, ALL, TOPIC, "long", PREFIXED))
    assert deciding.may(ALICE, READ, TOPIC, "long" + "x" * 245)
    kept = len(deciding._decided)
    for number in range(1_000):
        assert deciding.may(ALICE, READ, TOPIC, f"long{number:032766}")
        assert deciding.topic_access(ALICE, READ, f"other{number:032761}") is TopicAccess.HIDDEN
    assert len(deciding._decided) == kept == 1


def _about(name: str) -> pb.AclFilter:
    return pb.AclFilter(
        resource_type=pb.ACL_RESOURCE_ANY,
        resource_name=name,
        pattern_type=pb.ACL_PATTERN_ANY,
        operation=pb.ACL_OPERATION_ANY,
        permission=pb.ACL_PERMISSION_ANY,
    )
