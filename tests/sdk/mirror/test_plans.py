"""Plans are read as they were written, and records that are not plans are skipped or refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quorumlog.sdk.errors import IllegalStateError
from quorumlog.sdk.mirror.copy_intents import MirrorIdentity, MirrorPlans, PartitionPlan
from quorumlog.sdk.mirror.offset_map import OffsetRun
from quorumlog.sdk.types import TopicPartition

PLAN = PartitionPlan(7, 40, 90, 50, 1_000, (OffsetRun(0, 3, 40),))
ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def plans() -> MirrorPlans:
    """The plans of mirror ``kafka``; they ask no node."""
    made = MirrorPlans.__new__(MirrorPlans)
    made._name, made._identity = "kafka", MirrorIdentity("there")
    made.mirrors, made.settings = {}, {}
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
    with pytest.raises(IllegalStateError, match="not a plan of a mirror"):
        taken(plans, plans._key(ORDERS), text)


@pytest.mark.parametrize(
    "identity", [MirrorIdentity("there"), MirrorIdentity("there", True), MirrorIdentity("there", False, ("*=eu.*",))]
)
def test_names_stand_for_one_mirror(plans: MirrorPlans, identity: MirrorIdentity) -> None:
    assert taken(plans, plans._key(None), identity.text()) == {}
    assert plans.mirrors == {"kafka": identity}


def test_earlier_versions_read_plain_plans() -> None:
    """Those of mirrors without an opposite one have the fields of earlier versions."""
    assert MirrorIdentity("there").text() == b"there"
    assert PLAN.text() == b"[7,40,90,50,1000,[[0,3,40]]]"
    assert PartitionPlan.read(b"[7,40,90,50,1000,[[0,3,40]]]") == PLAN


def test_plans_of_both_directions_are_read() -> None:
    both = replace(PLAN, returned=(OffsetRun(3, 9, 2),), newest_returned=10)
    assert PartitionPlan.read(both.text()) == both


def test_copied_settings_are_read(plans: MirrorPlans) -> None:
    settings = b'{"retention.ms": "60000"}'
    assert taken(plans, b'{"settings": "orders", "mirror": "kafka"}', settings) == {}
    assert taken(plans, b'{"settings": "clicks", "mirror": "another"}', settings) == {}
    assert plans.settings == {"orders": {"retention.ms": "60000"}}
