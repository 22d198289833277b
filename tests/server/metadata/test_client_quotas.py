"""Client quotas in the metadata: validation, limits, precedence and snapshots."""

from __future__ import annotations

import math

import pytest

from quorumlog.server.controller.access_decisions import decide_on_quotas
from quorumlog.server.metadata.client_quotas import MAX_QUOTAS, check_quota_question, check_quotas
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import SECOND_FEATURE_LEVEL
from quorumlog.v1 import metadata_log_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.quotas_pb2 import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ClientQuotaAlteration,
    ClientQuotaOp,
    DescribeClientQuotasRequest,
)

ALICE, BOB, EVERYBODY = "User:alice", "User:bob", "User:*"


def quotas(principal: str = ALICE, **values: float | None) -> ClientQuotaAlteration:
    ops = [ClientQuotaOp(key=key, value=value) for key, value in values.items()]
    return ClientQuotaAlteration(principal=principal, ops=ops)


def request(*alterations: ClientQuotaAlteration) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(alterations=alterations)


class Controller:
    """A controller's decisions, applied at once."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.image.feature_level = SECOND_FEATURE_LEVEL

    def alter(self, *alterations: ClientQuotaAlteration) -> AlterClientQuotasResponse:
        decision = decide_on_quotas(self.image, 1_000, 7, request(*alterations))
        if decision.response is not None:
            return decision.response.alter_client_quotas
        result = self.image.apply(self.image.applied_index + 1, decision.commands[0])
        return result.response.alter_client_quotas


@pytest.fixture
def controller() -> Controller:
    return Controller()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (request(), "quotas of 0 principals"),
        (request(*(quotas(f"User:u{i}", request_rate=5) for i in range(1_001))), "give 1 to 1000"),
        (request(quotas(request_rate=5), quotas(request_rate=6)), "is in the request twice"),
        (request(quotas("alice", request_rate=5)), "principal 'alice' is not User:"),
        (request(quotas("User:", request_rate=5)), "principal 'User:'"),
        (request(quotas("Node:1", request_rate=5)), "principal 'Node:1'"),
        (request(quotas("User:a\nb", request_rate=5)), "printable"),
        (request(quotas("User:" + "x" * 250, request_rate=5)), "1 to 249"),
        (request(quotas()), "no change requested for User:alice"),
        (
            request(ClientQuotaAlteration(principal=ALICE, ops=2 * [ClientQuotaOp(key="request_rate")])),
            "is given twice",
        ),
        (request(quotas(request_percentage=50)), "there is no quota 'request_percentage'"),
        (request(quotas(request_rate=0.5)), "request_rate is 0.5: give 1 to 1e+15"),
        (request(quotas(producer_byte_rate=1_023)), "give 1024 to"),
        (request(quotas(consumer_byte_rate=-1)), "consumer_byte_rate is -1"),
        (request(quotas(controller_mutation_rate=0)), "give 0.1 to"),
        (request(quotas(request_rate=math.nan)), "request_rate is nan"),
        (request(quotas(request_rate=math.inf)), "request_rate is inf"),
        (request(quotas(request_rate=2e15)), "request_rate is 2e+15"),
    ],
)
def test_quotas_that_make_no_sense_are_refused_in_one_line(asked: AlterClientQuotasRequest, said: str) -> None:
    problem = check_quotas(asked)
    assert problem is not None
    assert (problem.code, problem.definite, problem.retriable) == (ErrorCode.INVALID_REQUEST, True, False)
    assert said in problem.message
    assert problem.message.isprintable()


def test_so_many_principals_can_be_asked_for_and_no_more() -> None:
    assert check_quota_question(DescribeClientQuotasRequest(principals=[ALICE])) is None
    refused = check_quota_question(DescribeClientQuotasRequest(principals=["User:x"] * 1_001))
    assert refused is not None
    assert "at most 1000" in refused.message


def test_values_are_set_replaced_and_removed_one_by_one(controller: Controller) -> None:
    assert controller.alter(quotas(producer_byte_rate=5_000, request_rate=10), quotas(BOB, request_rate=7)).altered == 2
    assert controller.alter(quotas(producer_byte_rate=6_000)).altered == 1
    kept = controller.image.client_quotas
    assert kept.by_principal == {ALICE: {"producer_byte_rate": 6_000, "request_rate": 10}, BOB: {"request_rate": 7}}
    assert controller.alter(quotas(producer_byte_rate=None, consumer_byte_rate=None)).altered == 1
    assert controller.alter(quotas(BOB, request_rate=None)).altered == 1
    assert kept.by_principal == {ALICE: {"request_rate": 10}}
    assert [each.principal for each in kept.shown()] == [ALICE]
    assert kept.shown([BOB]) == []


def test_the_default_counts_key_by_key_for_whoever_has_no_value_and_for_no_node(controller: Controller) -> None:
    limits = controller.image.client_quotas
    assert not limits.limits_of(ALICE)
    controller.alter(quotas(EVERYBODY, request_rate=10, producer_byte_rate=2_000), quotas(request_rate=500))
    assert limits.limits_of(ALICE) == {"request_rate": 500, "producer_byte_rate": 2_000}
    assert limits.limits_of(BOB) == {"request_rate": 10, "producer_byte_rate": 2_000}
    assert limits.limits_of("User:ANONYMOUS") == {"request_rate": 10, "producer_byte_rate": 2_000}
    assert not limits.limits_of("Node:3")


def test_the_index_tells_of_changes_only(controller: Controller) -> None:
    controller.alter(quotas(request_rate=10))
    before = controller.image.client_quotas.index
    assert before == controller.image.applied_index
    assert controller.alter(quotas(request_rate=10)).altered == 0
    assert controller.alter(quotas(BOB, request_rate=None)).altered == 0
    assert controller.image.client_quotas.index == before
    layout = controller.image.layout_version
    controller.alter(quotas(request_rate=11))
    assert controller.image.client_quotas.index > before
    assert controller.image.layout_version == layout, "no plan of partitions is made again for it"


def test_quotas_of_so_many_principals_and_no_more_all_or_none(controller: Controller) -> None:
    for part in range(0, MAX_QUOTAS, 1_000):
        controller.alter(*(quotas(f"User:u{part + i}", request_rate=5) for i in range(1_000)))
    refused = controller.alter(quotas(request_rate=9), quotas("User:u0", request_rate=9)).error
    assert refused.code == ErrorCode.POLICY_VIOLATION
    assert "of 10000" in refused.message
    assert controller.image.client_quotas.by_principal["User:u0"] == {"request_rate": 5}
    assert controller.alter(quotas("User:u0", request_rate=9)).altered == 1, "existing ones may still be changed"
    assert controller.alter(quotas("User:u0", request_rate=None), quotas(request_rate=9)).altered == 2


def test_the_log_decides_whose_quota_was_the_last_one(controller: Controller) -> None:
    for part in range(0, MAX_QUOTAS, 1_000):
        count = min(1_000, MAX_QUOTAS - 1 - part)
        controller.alter(*(quotas(f"User:u{part + i}", request_rate=5) for i in range(count)))
    late = [metadata_log_pb2.ClientQuotasAltered(alterations=[quotas(who, request_rate=5)]) for who in (ALICE, BOB)]
    codes = []
    for body in late:
        command = metadata_log_pb2.MetadataCommand(client_quotas_altered=body)
        result = controller.image.apply(controller.image.applied_index + 1, command)
        codes.append(result.response.alter_client_quotas.error.code)
    assert codes == [ErrorCode.NONE, ErrorCode.POLICY_VIOLATION]


def test_before_feature_level_two_there_are_none() -> None:
    image = MetadataImage()
    decision = decide_on_quotas(image, 1_000, 7, request(quotas(request_rate=5)))
    assert decision.response is not None
    assert decision.response.alter_client_quotas.error.code in (ErrorCode.SERVER_BUSY, ErrorCode.UNSUPPORTED_VERSION)


def test_a_snapshot_keeps_them(controller: Controller) -> None:
    controller.alter(quotas(EVERYBODY, producer_byte_rate=2_000.5), quotas(BOB, controller_mutation_rate=0.1))
    again = MetadataImage.from_snapshot(controller.image.to_snapshot())
    assert again.client_quotas.by_principal == controller.image.client_quotas.by_principal
    assert again.client_quotas.index == controller.image.client_quotas.index
    assert again.to_snapshot() == controller.image.to_snapshot()
