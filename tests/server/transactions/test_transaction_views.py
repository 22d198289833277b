"""Views of transactional ids for operators: states, filters, pages, and the participants that have not answered."""

from __future__ import annotations

import pytest
from transaction_rig import AUDIT, GROUP, INVOICES, NAME, ORDERS, TransactionRig

from quorumlog.server.deciding.transaction_participants import Participant
from quorumlog.server.transactions import transaction_views as views
from quorumlog.v1 import transaction_admin_pb2 as pb
from quorumlog.v1.transactions_pb2 import TRANSACTION_CAUSE_PRODUCER
from quorumlog.wire.kafka.control import LogPlace


class Answers:
    """The answers that the test says."""

    def __init__(self, rig: TransactionRig) -> None:
        self._rig = rig

    def is_answered(self, name: str, place: LogPlace, producer_id: int, participant: Participant) -> bool:
        return (producer_id, participant) in self._rig.surroundings.answered

    def is_complete(self, name: str, place: LogPlace) -> bool:
        decision = next(each for each in self._rig.table.records[name].decisions if each.place == place)
        return all(self.is_answered(name, place, producer, each) for producer, _, each in decision.participants())


@pytest.fixture
def rig() -> TransactionRig:
    return TransactionRig()


def described(rig: TransactionRig, hidden: bool = False) -> pb.DescribeTransactionResponse:
    return views.describe(rig.record, Answers(rig), lambda topic_id: None if hidden else "orders")


def test_states_of_one_transactional_id(rig: TransactionRig) -> None:
    a = rig.identity()
    seen = [described(rig).state]
    rig.enlist(a, ORDERS)
    seen.append(described(rig).state)
    b = rig.ended(a)
    seen.append(described(rig).state)
    rig.surroundings.answered.add((1, ORDERS))
    seen.append(described(rig).state)
    rig.all_answered()
    seen.append(described(rig).state)
    rig.surroundings.answered.clear()
    rig.enlist(b, ORDERS)
    rig.ended(b, commit=False)
    seen.append(described(rig).state)
    rig.all_answered()
    seen.append(described(rig).state)
    assert seen == [
        pb.TRANSACTION_STATE_EMPTY,
        pb.TRANSACTION_STATE_ONGOING,
        pb.TRANSACTION_STATE_PREPARE_COMMIT,
        pb.TRANSACTION_STATE_COMPLETE_COMMIT,
        pb.TRANSACTION_STATE_COMPLETE_COMMIT,
        pb.TRANSACTION_STATE_PREPARE_ABORT,
        pb.TRANSACTION_STATE_COMPLETE_ABORT,
    ]


def test_description_names_participants_that_have_not_answered(rig: TransactionRig) -> None:
    a = rig.identity()
    rig.add(a, ORDERS, INVOICES, GROUP)
    origin = rig.place
    found = described(rig)
    assert (found.place.term, found.place.index) == origin and found.started_ms == rig.wall_ms
    assert [(each.topic, list(each.partitions), list(each.unanswered)) for each in found.topics] == [
        ("orders", [0, 1], [])
    ]
    assert [(each.group_id, each.unanswered) for each in found.groups] == [("readers", False)]
    b = rig.ended(a)
    rig.surroundings.answered.add((1, ORDERS))
    found = described(rig)
    assert found.cause == TRANSACTION_CAUSE_PRODUCER and not found.HasField("place")
    assert [(list(each.partitions), list(each.unanswered)) for each in found.topics] == [([0, 1], [1])]
    assert [(each.group_id, each.unanswered) for each in found.groups] == [("readers", True)]
    rig.enlist(b, AUDIT)
    found = described(rig)
    assert found.state == pb.TRANSACTION_STATE_ONGOING
    assert [(list(each.partitions), list(each.unanswered)) for each in found.topics] == [([1, 2], [1])], (
        "a former transaction is still missing in one partition"
    )


def test_description_without_hidden_topics(rig: TransactionRig) -> None:
    a = rig.identity()
    rig.add(a, ORDERS, GROUP)
    found = described(rig, hidden=True)
    assert not found.topics and [each.group_id for each in found.groups] == ["readers"]


def names(rig: TransactionRig, may_see: str = "", **filters: object) -> list[str]:
    request = pb.ListTransactionsRequest(**filters)  # type: ignore[arg-type]
    chosen = views.ListingFilter(request, 100_000, lambda name: name.startswith(may_see))
    return [each.name for each in chosen.page(rig.table.records.values(), Answers(rig))[0]]


def test_filters_of_a_list_apply_together(rig: TransactionRig) -> None:
    for name in ("b-2", "a-1", NAME):
        rig.init(name=name)
    a = rig.identity()
    rig.enlist(a, ORDERS)
    assert names(rig) == ["a-1", "b-2", NAME]
    assert names(rig, states=[pb.TRANSACTION_STATE_ONGOING]) == [NAME]
    assert names(rig, states=[pb.TRANSACTION_STATE_EMPTY]) == ["a-1", "b-2"]
    assert names(rig, producer_ids=[1, 99]) == ["b-2"]
    assert names(rig, name_pattern="[ab]-.") == ["a-1", "b-2"]
    assert names(rig, name_pattern="a") == [], "the whole name has to match"
    assert names(rig, after="a-1") == ["b-2", NAME]
    assert names(rig, may_see="b-") == ["b-2"]
    assert names(rig, longer_than_ms=98_999) == [NAME]
    assert names(rig, longer_than_ms=99_000) == [], "it has been open for exactly that"
    assert names(rig, name_pattern="b.*", longer_than_ms=0) == [NAME]


@pytest.mark.parametrize(
    "filters",
    [{"name_pattern": "("}, {"name_pattern": "a" * 1_001}, {"name_pattern": "(a{1000}){1000}"},
     {"producer_ids": range(1_001)}],
)  # fmt: skip
def test_filters_that_are_refused(filters: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"pattern|producer ids"):
        views.ListingFilter(pb.ListTransactionsRequest(**filters), 0, lambda name: True)  # type: ignore[arg-type]


def test_pages_of_a_list(rig: TransactionRig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "LISTED_PER_PAGE", 2)
    for name in "cab":
        rig.init(name=name)
    chosen = views.ListingFilter(pb.ListTransactionsRequest(), 0, lambda name: True)
    page, more = chosen.page(rig.table.records.values(), Answers(rig))
    assert ([each.name for each in page], more) == (["a", "b"], True)
    assert views.listing(page[0], Answers(rig)).identity.producer_id == 2
    chosen = views.ListingFilter(pb.ListTransactionsRequest(after="b"), 0, lambda name: True)
    page, more = chosen.page(rig.table.records.values(), Answers(rig))
    assert ([each.name for each in page], more) == (["c"], False)
