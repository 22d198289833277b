"""Rules, users and quotas as administrators with Kafka's clients see and change them, asked by hand of simulated
nodes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import pytest

from quorumlog.server.kafka.codec.administration.acl_requests import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from quorumlog.server.kafka.codec.administration.acl_responses import (
    CreateAclsResponse,
    DeleteAclsResponse,
    DescribeAclsResponse,
)
from quorumlog.server.kafka.codec.administration.quota_requests import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    DescribeClientQuotasRequest,
    QuotaComponent,
    QuotaOperation,
)
from quorumlog.server.kafka.codec.administration.quota_responses import (
    AlterClientQuotasResponse,
    DescribeClientQuotasResponse,
)
from quorumlog.server.kafka.codec.administration.user_requests import (
    AlterUserScramCredentialsRequest,
    DescribedUserName,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from quorumlog.server.kafka.codec.administration.user_responses import (
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsResponse,
)
from quorumlog.server.kafka.handlers.error_codes import KafkaError
from quorumlog.simulator.world.kafka_link import SimKafkaLink
from quorumlog.wire.scram import ScramMechanism, salted_keys
from tests.support.kafka_nodes import KafkaNodes, ask_through
from tests.support.restricted_cluster import Restricted

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN = 2, 3, 4, 5, 6
ALL, READ, WRITE, DESCRIBE, CLUSTER_ACTION = 2, 3, 4, 8, 9
DENY, ALLOW = 2, 3
SHA_256, SHA_512 = 1, 2
EXACT, DEFAULT, ANY_NAME = 0, 1, 2


@pytest.fixture
def nodes() -> KafkaNodes:
    return KafkaNodes()


# -- rules --------------------------------------------------------------------------------------------------------


def creation(
    name: str = "orders",
    operation: int = READ,
    *,
    kind: int = TOPIC,
    pattern: int = LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    permission: int = ALLOW,
) -> AclCreation:
    return AclCreation(kind, name, pattern, principal, host, operation, permission)


def filter_of(
    name: str | None = None,
    *,
    kind: int = ANY,
    pattern: int = ANY,
    principal: str | None = None,
    host: str | None = None,
    operation: int = ANY,
    permission: int = ANY,
) -> tuple[int, str | None, int, str | None, str | None, int, int]:
    return kind, name, pattern, principal, host, operation, permission


def created(nodes: KafkaNodes, *creations: AclCreation) -> list[int]:
    return [each.error_code for each in nodes.ask(CreateAclsRequest(creations), CreateAclsResponse).results]


def rules(nodes: KafkaNodes, wanted: tuple[int, str | None, int, str | None, str | None, int, int]) -> set[str]:
    answer = nodes.ask(DescribeAclsRequest(*wanted), DescribeAclsResponse, node=2)
    assert answer.error_code == KafkaError.NONE
    assert all(each.host == "*" for resource in answer.resources for each in resource.acls)
    places = [(each.resource_type, each.resource_name, each.pattern_type) for each in answer.resources]
    assert len(set(places)) == len(places)
    return {
        f"{each.principal} {each.operation} {resource.resource_type} {resource.resource_name} {resource.pattern_type}"
        for resource in answer.resources
        for each in resource.acls
    }


def test_rules_are_created_found_by_filters_and_deleted(nodes: KafkaNodes) -> None:
    assert (
        created(
            nodes,
            creation(),
            creation("ord", WRITE, pattern=PREFIXED),
            creation("*", DESCRIBE, principal="User:*"),
            creation("team", READ, kind=GROUP, permission=DENY),
            creation("etl", WRITE, kind=TRANSACTIONAL_ID),
        )
        == [KafkaError.NONE] * 5
    )
    assert len(rules(nodes, filter_of())) == 5
    assert rules(nodes, filter_of("orders", kind=TOPIC, pattern=LITERAL)) == {"User:alice 3 2 orders 3"}
    concerning = {"User:alice 3 2 orders 3", "User:alice 4 2 ord 4", "User:* 8 2 * 3"}
    assert rules(nodes, filter_of("orders", kind=TOPIC, pattern=MATCH)) == concerning
    assert rules(nodes, filter_of(kind=TOPIC, pattern=MATCH)) == concerning
    assert rules(nodes, filter_of(permission=DENY)) == {"User:alice 3 3 team 3"}
    assert rules(nodes, filter_of(principal="User:*", host="*")) == {"User:* 8 2 * 3"}
    for nothing in (filter_of(host="10.0.0.1"), filter_of(kind=DELEGATION_TOKEN), filter_of(operation=CLUSTER_ACTION)):
        assert rules(nodes, nothing) == set()
    request = DeleteAclsRequest(
        [
            DeleteAclsFilter(*filter_of("orders")),
            DeleteAclsFilter(*filter_of(host="10.0.0.1")),
            DeleteAclsFilter(*filter_of(kind=0)),
            DeleteAclsFilter(*filter_of(permission=DENY)),
        ]
    )
    results = nodes.ask(request, DeleteAclsResponse).filter_results
    assert [each.error_code for each in results] == [0, 0, KafkaError.INVALID_REQUEST, 0]
    assert [[one.resource_name for one in each.matching_acls] for each in results] == [["orders"], [], [], ["team"]]
    assert len(rules(nodes, filter_of())) == 3


@pytest.mark.parametrize(
    "wrong",
    [
        creation(host="10.0.0.1"),
        creation(kind=DELEGATION_TOKEN),
        creation(kind=-1),
        creation(principal="Group:team"),
        creation(operation=CLUSTER_ACTION, name="kafka-cluster", kind=CLUSTER),
        creation(pattern=MATCH),
        creation(permission=7),
        creation(""),
    ],
    ids=["host", "resource", "no resource", "principal", "operation", "pattern", "permission", "name"],
)
def test_one_rule_that_does_not_fit_keeps_no_other_from_being_created(nodes: KafkaNodes, wrong: AclCreation) -> None:
    many = [creation(f"topic-{number}") for number in range(7)]
    expected = [0, 0, 0, KafkaError.INVALID_REQUEST, 0, 0, 0, 0]
    assert created(nodes, *many[:3], wrong, *many[3:]) == expected
    assert len(rules(nodes, filter_of())) == 7


def test_more_rules_and_quotas_than_are_taken_are_not_created(nodes: KafkaNodes) -> None:
    many = created(nodes, *(creation(f"topic-{number}") for number in range(1_001)))
    assert many == [KafkaError.INVALID_REQUEST] * 1_001
    limits = [entry(f"user-{number}", ("producer_byte_rate", 5_000.0)) for number in range(1_001)]
    assert set_quotas(nodes, *limits) == [KafkaError.INVALID_REQUEST] * 1_001
    nodes.run(0.5)
    assert (rules(nodes, filter_of()), quotas(nodes)) == (set(), {})


def test_more_filters_than_are_taken_delete_nothing(nodes: KafkaNodes) -> None:
    assert created(nodes, creation()) == [KafkaError.NONE]
    many = DeleteAclsRequest([DeleteAclsFilter(*filter_of())] * 101)
    results = nodes.ask(many, DeleteAclsResponse).filter_results
    assert [each.error_code for each in results] == [KafkaError.INVALID_REQUEST] * 101
    assert len(rules(nodes, filter_of())) == 1


# -- users --------------------------------------------------------------------------------------------------------


def upsertion(
    name: str, *, mechanism: int = SHA_256, iterations: int = 4_096, salt: bytes = b"s" * 16, salted: bytes = b"p" * 32
) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(name, mechanism, iterations, salt, salted)


def altered(
    nodes: KafkaNodes, upsertions: Sequence[ScramCredentialUpsertion] = (), deletions: Sequence[tuple[str, int]] = ()
) -> dict[str, int]:
    request = AlterUserScramCredentialsRequest([ScramCredentialDeletion(*each) for each in deletions], upsertions)
    return {each.user: each.error_code for each in nodes.ask(request, AlterUserScramCredentialsResponse).results}


def users(nodes: KafkaNodes, *names: str) -> dict[str, tuple[int, list[tuple[int, int]]]]:
    request = DescribeUserScramCredentialsRequest([DescribedUserName(name) for name in names] or None)
    answer = nodes.ask(request, DescribeUserScramCredentialsResponse, node=3)
    assert answer.error_code == KafkaError.NONE
    return {
        each.user: (each.error_code, [(info.mechanism, info.iterations) for info in each.credential_infos])
        for each in answer.results
    }


def test_a_user_gets_a_password_that_nodes_know_by_its_keys(nodes: KafkaNodes) -> None:
    salt = b"0123456789abcdef"
    salted = hashlib.pbkdf2_hmac("sha256", b"secret", salt, 5_000)
    assert altered(nodes, [upsertion("alice", iterations=5_000, salt=salt, salted=salted)]) == {"alice": 0}
    nodes.run(0.5)
    assert users(nodes) == {"alice": (0, [(SHA_256, 5_000)])}
    kept = nodes.image.credentials.users["alice"][ScramMechanism.SHA_256]
    expected = salted_keys(ScramMechanism.SHA_256, b"secret", salt, 5_000)
    assert (kept.stored_key, kept.server_key, kept.salt) == (expected.stored_key, expected.server_key, salt)


def test_each_user_is_changed_by_itself(nodes: KafkaNodes) -> None:
    assert altered(nodes, [upsertion(name) for name in ("leaves", "stays", "leaver")]) == {
        "leaves": 0,
        "stays": 0,
        "leaver": 0,
    }
    outcomes = altered(
        nodes,
        [
            upsertion("new"),
            upsertion("weak", iterations=10),
            upsertion("never", iterations=-1),
            upsertion("bland", salt=b"salt"),
            upsertion("short", salted=b"p" * 31),
            upsertion("other", mechanism=3),
            upsertion("long", salted=b"p" * 32, mechanism=SHA_512),
            upsertion("stays", salted=b"p" * 64, mechanism=SHA_512),
            upsertion("both"),
            upsertion("both", salted=b"p" * 64, mechanism=SHA_512),
            upsertion("half"),
            upsertion("half", salted=b"p" * 63, mechanism=SHA_512),
            upsertion("twice"),
            upsertion("twice"),
            upsertion("last"),
        ],
        [("leaves", SHA_256), ("nobody", SHA_256), ("leaver", SHA_512), ("unknown", 9)],
    )
    assert outcomes == {
        "leaves": 0,
        "nobody": KafkaError.RESOURCE_NOT_FOUND,
        "leaver": KafkaError.RESOURCE_NOT_FOUND,
        "unknown": KafkaError.UNSUPPORTED_SASL_MECHANISM,
        "new": 0,
        "weak": KafkaError.UNACCEPTABLE_CREDENTIAL,
        "never": KafkaError.UNACCEPTABLE_CREDENTIAL,
        "bland": KafkaError.UNACCEPTABLE_CREDENTIAL,
        "short": KafkaError.UNACCEPTABLE_CREDENTIAL,
        "other": KafkaError.UNSUPPORTED_SASL_MECHANISM,
        "long": KafkaError.UNACCEPTABLE_CREDENTIAL,
        "stays": 0,
        "both": 0,
        "half": KafkaError.UNACCEPTABLE_CREDENTIAL,
        "twice": KafkaError.DUPLICATE_RESOURCE,
        "last": 0,
    }
    nodes.run(0.5)
    assert {name: [kind for kind, _ in infos] for name, (_, infos) in users(nodes).items()} == {
        "last": [SHA_256],
        "leaver": [SHA_256],
        "new": [SHA_256],
        "both": [SHA_256, SHA_512],
        "stays": [SHA_256, SHA_512],
    }
    assert altered(nodes, (), [("both", SHA_256), ("stays", SHA_512)]) == {"both": 0, "stays": 0}
    nodes.run(0.5)
    assert users(nodes, "both", "stays") == {"both": (0, [(SHA_512, 4_096)]), "stays": (0, [(SHA_256, 4_096)])}
    reported = users(nodes, "stays", "leaves", "new", "new")
    assert {name: code for name, (code, _) in reported.items()} == {
        "stays": 0,
        "leaves": KafkaError.RESOURCE_NOT_FOUND,
        "new": KafkaError.DUPLICATE_RESOURCE,
    }


def test_more_users_than_are_taken_are_not_changed(nodes: KafkaNodes) -> None:
    outcomes = altered(nodes, [upsertion(f"user-{number}") for number in range(1_001)])
    assert set(outcomes.values()) == {KafkaError.INVALID_REQUEST}
    assert users(nodes) == {}


# -- quotas -------------------------------------------------------------------------------------------------------


def entry(name: str | None, *ops: tuple[str, float | None], kind: str = "user") -> AlterClientQuotasRequestEntryData:
    changes = [QuotaOperation(key, value or 0.0, value is None) for key, value in ops]
    return AlterClientQuotasRequestEntryData([AlterClientQuotasRequestEntityData(kind, name)], changes)


def set_quotas(
    nodes: KafkaNodes, *entries: AlterClientQuotasRequestEntryData, validate_only: bool = False
) -> list[int]:
    answer = nodes.ask(AlterClientQuotasRequest(entries, validate_only), AlterClientQuotasResponse)
    named = [[(one.entity_type, one.entity_name) for one in each.entity] for each in answer.entries]
    assert named == [[(one.entity_type, one.entity_name) for one in each.entity] for each in entries]
    return [each.error_code for each in answer.entries]


def quotas(
    nodes: KafkaNodes, *components: tuple[str, int, str | None], strict: bool = False
) -> dict[str | None, dict[str, float]]:
    request = DescribeClientQuotasRequest([QuotaComponent(*each) for each in components], strict)
    answer = nodes.ask(request, DescribeClientQuotasResponse, node=2)
    assert answer.error_code == KafkaError.NONE
    assert answer.entries is not None
    return {each.entity[0].entity_name: {value.key: value.value for value in each.values} for each in answer.entries}


def test_quotas_are_set_shown_and_removed(nodes: KafkaNodes) -> None:
    alice, everybody = ("producer_byte_rate", 1e6), ("consumer_byte_rate", 2e6)
    assert set_quotas(nodes, entry("alice", alice), entry(None, everybody)) == [0, 0]
    both = {"alice": dict([alice]), None: dict([everybody])}
    assert quotas(nodes) == quotas(nodes, ("user", ANY_NAME, None), strict=True) == both
    assert quotas(nodes, ("user", EXACT, "alice")) == {"alice": dict([alice])}
    assert quotas(nodes, ("user", DEFAULT, None)) == {None: dict([everybody])}
    assert quotas(nodes, ("user", EXACT, "*")) == quotas(nodes, ("user", EXACT, "bob")) == {}
    assert quotas(nodes, ("client-id", ANY_NAME, None)) == quotas(nodes, ("ip", DEFAULT, None)) == {}
    assert quotas(nodes, strict=True) == {}
    assert set_quotas(nodes, entry("alice", ("producer_byte_rate", None))) == [0]
    nodes.run(0.5)
    assert quotas(nodes) == {None: dict([everybody])}


def test_each_entity_is_changed_by_itself(nodes: KafkaNodes) -> None:
    rate = ("producer_byte_rate", 5_000.0)
    refused = [
        entry("app", rate, kind="client-id"),
        entry("127.0.0.1", ("connection_creation_rate", 5.0), kind="ip"),
        entry("*", rate),
        entry("bob", ("request_percentage", 50.0)),
        entry("eve", ("producer_byte_rate", math.inf)),
        entry("dora", ("producer_byte_rate", math.nan)),
        entry("frank", ("producer_byte_rate", -1.0)),
        entry("gina"),
        AlterClientQuotasRequestEntryData([], [QuotaOperation("producer_byte_rate", 5_000.0)]),
        AlterClientQuotasRequestEntryData(
            [AlterClientQuotasRequestEntityData("user", "u"), AlterClientQuotasRequestEntityData("client-id", "c")],
            [QuotaOperation("producer_byte_rate", 5_000.0)],
        ),
    ]
    outcomes = set_quotas(nodes, entry("first", rate), *refused, entry("last", rate))
    assert outcomes == [0, *[KafkaError.INVALID_REQUEST] * len(refused), 0]
    nodes.run(0.5)
    assert set(quotas(nodes)) == {"first", "last"}


def test_what_is_only_checked_changes_nothing(nodes: KafkaNodes) -> None:
    checked = [entry("alice", ("producer_byte_rate", 1e6)), entry("bob", ("no_such_rate", 1.0))]
    assert set_quotas(nodes, *checked, validate_only=True) == [0, KafkaError.INVALID_REQUEST]
    nodes.run(0.5)
    assert quotas(nodes) == {}


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("user", EXACT, None)], KafkaError.INVALID_REQUEST),
        ([("user", DEFAULT, "alice")], KafkaError.INVALID_REQUEST),
        ([("user", 7, None)], KafkaError.INVALID_REQUEST),
        ([("user", EXACT, "a"), ("user", EXACT, "b")], KafkaError.INVALID_REQUEST),
        ([("planet", ANY_NAME, None)], KafkaError.UNSUPPORTED_VERSION),
    ],
)
def test_a_filter_of_quotas_that_makes_no_sense_is_refused(
    nodes: KafkaNodes, components: list[tuple[str, int, str | None]], code: KafkaError
) -> None:
    request = DescribeClientQuotasRequest([QuotaComponent(*each) for each in components])
    assert nodes.ask(request, DescribeClientQuotasResponse).error_code == code


# -- permission ---------------------------------------------------------------------------------------------------


def test_who_may_not_learns_and_changes_nothing() -> None:
    cluster = Restricted(1, kafka=(1, 2, 3))
    cluster.run(1)
    link = SimKafkaLink("stranger", cluster.cluster, 1, cluster.scheduler)
    image = cluster.cluster.processes[1].image
    assert image is not None
    before = image.acls.index, image.credentials.users.keys() | set(), image.client_quotas.index

    acls = ask_through(cluster, link, DescribeAclsRequest(*filter_of()), DescribeAclsResponse)
    created_acls = ask_through(cluster, link, CreateAclsRequest([creation(), creation("x")]), CreateAclsResponse)
    removal = DeleteAclsRequest([DeleteAclsFilter(*filter_of())])
    deleted = ask_through(cluster, link, removal, DeleteAclsResponse)
    shown = ask_through(cluster, link, DescribeUserScramCredentialsRequest(None), DescribeUserScramCredentialsResponse)
    change = AlterUserScramCredentialsRequest([ScramCredentialDeletion("a", SHA_256)], [upsertion("b")])
    changed = ask_through(cluster, link, change, AlterUserScramCredentialsResponse)
    limits = ask_through(cluster, link, DescribeClientQuotasRequest(), DescribeClientQuotasResponse)
    limited = ask_through(
        cluster,
        link,
        AlterClientQuotasRequest([entry("a", ("producer_byte_rate", 5_000.0))]),
        AlterClientQuotasResponse,
    )
    codes = [
        acls.error_code,
        *(each.error_code for each in created_acls.results),
        deleted.filter_results[0].error_code,
        shown.error_code,
        *(each.error_code for each in changed.results),
        limits.error_code,
        limited.entries[0].error_code,
    ]
    assert codes == [KafkaError.CLUSTER_AUTHORIZATION_FAILED] * 9
    cluster.run(0.5)
    assert (image.acls.index, image.credentials.users.keys() | set(), image.client_quotas.index) == before
