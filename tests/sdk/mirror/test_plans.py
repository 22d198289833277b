"""Plans are read as they were written, and what is no plan is passed over or said to be none."""

from __future__ import annotations

import pytest

from quorumlog.sdk.errors import IllegalStateError
from quorumlog.sdk.mirror.copy_intents import MirrorPlans, PartitionPlan
from quorumlog.sdk.mirror.offset_map import OffsetRun
from quorumlog.sdk.types import TopicPartition

PLAN = PartitionPlan(7, 40, 90, 50, 1_000, (OffsetRun(0, 3, 40),))
ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def plans() -> MirrorPlans:
    """A plan of mirror ``kafka``, which copies cluster ``there``; it asks no node."""
    made = MirrorPlans.__new__(MirrorPlans)
    made._name, made._source = "kafka", "there"
    return made


def taken(plans: MirrorPlans, key: bytes | None, value: bytes | None) -> dict[TopicPartition, PartitionPlan]:
    found: dict[TopicPartition, PartitionPlan] = {}
    plans._take(key, value, found)
    return found


def test_a_plan_is_read_as_it_was_written(plans: MirrorPlans) -> None:
    assert taken(plans, plans._key(ORDERS), PLAN.text()) == {ORDERS: PLAN}


@pytest.mark.parametrize("key", [None, b"", b"7", b"{}", b"\xff", b'["another", "orders", 0]'])
def test_records_of_others_are_passed_over(plans: MirrorPlans, key: bytes | None) -> None:
    assert taken(plans, key, b"nonsense") == {}


@pytest.mark.parametrize("text", [b"", b"7", b"[1]", b'[1, 2, 3, 4, 5, "x"]', b"\xff"])
def test_what_is_no_plan_is_said_to_be_none(plans: MirrorPlans, text: bytes) -> None:
    with pytest.raises(IllegalStateError, match="no plan of a mirror"):
        taken(plans, plans._key(ORDERS), text)


def test_a_name_is_good_for_one_source(plans: MirrorPlans) -> None:
    assert taken(plans, plans._key(None), b"there") == {}
    with pytest.raises(IllegalStateError, match="give another --name"):
        taken(plans, plans._key(None), b"elsewhere")
