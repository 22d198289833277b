"""Token buckets on a clock of the test's: rate, burst, debt; whose they are, and how many there may be."""

from __future__ import annotations

import random

import pytest
from limited import limit
from rights import holder

from quorumlog.server.access.mutation_quota import MutationQuota
from quorumlog.server.access.quota_buckets import SWEEP_EVERY_US, QuotaBuckets
from quorumlog.server.access.token_bucket import TokenBucket
from quorumlog.server.metadata.client_quotas import PRODUCER_BYTE_RATE, REQUEST_RATE
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.v1.errors_pb2 import ErrorCode

SECOND = 1_000_000
ALICE, BOB = "User:alice", "User:bob"


# -- one bucket ----------------------------------------------------------------------------------------------------


def test_a_burst_passes_and_what_comes_then_waits_until_the_debt_is_paid() -> None:
    bucket = TokenBucket(100, now=0)
    bucket.take(0, 100)
    assert bucket.wait_us(0) == 0, "an empty bucket has no debt"
    bucket.take(0, 50)
    assert bucket.wait_us(0) == SECOND // 2
    assert bucket.wait_us(SECOND // 4) == SECOND // 4
    assert bucket.wait_us(SECOND // 2) == 0


def test_a_request_larger_than_the_bucket_passes_and_is_paid_for_in_full() -> None:
    bucket = TokenBucket(100, now=0)
    bucket.take(0, 1_100)
    assert bucket.wait_us(0) == 10 * SECOND
    assert bucket.wait_us(9 * SECOND) == SECOND


def test_a_bucket_holds_no_more_than_a_burst_however_long_nobody_takes() -> None:
    bucket = TokenBucket(100, now=0)
    bucket.take(3_600 * SECOND, 101)
    assert bucket.wait_us(3_600 * SECOND) == SECOND // 100


def test_another_rate_counts_from_now_on_and_a_debt_stays() -> None:
    bucket = TokenBucket(100, now=0)
    bucket.take(0, 300)
    bucket.change_rate(SECOND, 50)
    assert bucket.wait_us(SECOND) == 2 * SECOND
    bucket.change_rate(SECOND, 1_000)
    assert bucket.wait_us(SECOND) == SECOND // 10
    full = TokenBucket(1_000, now=0)
    full.change_rate(0, 10)
    full.take(0, 11)
    assert full.wait_us(0) == SECOND // 10, "what it had too much is gone"


@pytest.mark.parametrize("seed", range(5))
def test_between_any_two_moments_no_more_passes_than_rate_burst_and_the_last_request(seed: int) -> None:
    rng = random.Random(seed)
    rate = rng.choice((3.0, 1_000.0, 5e6))
    bucket, now, passed = TokenBucket(rate, now=0), 0, []
    for _ in range(500):
        now += rng.choice((0, 1, 1_000, 100_000, 3 * SECOND))
        if not bucket.wait_us(now):
            amount = rng.uniform(0, 3 * rate)
            passed.append((now, amount))
            bucket.take(now, amount)
    for first in range(0, len(passed), 7):
        begin, total = passed[first][0], 0.0
        for at, amount in passed[first:]:
            assert total <= rate * ((at - begin) / SECOND + 1) * (1 + 1e-9), f"seed {seed}"
            total += amount


# -- whose they are ------------------------------------------------------------------------------------------------


def test_each_principal_has_buckets_of_its_own_by_its_values_and_the_default() -> None:
    image = MetadataImage()
    buckets = QuotaBuckets(holder(image), (PRODUCER_BYTE_RATE, REQUEST_RATE))
    assert not buckets.of(0, ALICE)
    limit(image, ALICE, request_rate=50)
    assert buckets.of(0, ALICE).keys() == {REQUEST_RATE}
    assert not buckets.of(0, BOB), "bob has no limit"
    limit(image, "User:*", producer_byte_rate=2_000, request_rate=5)
    assert {key: bucket.rate for key, bucket in buckets.of(0, ALICE).items()} == {
        PRODUCER_BYTE_RATE: 2_000,
        REQUEST_RATE: 50,
    }
    bob = buckets.of(0, BOB)
    assert bob[REQUEST_RATE].rate == 5
    bob[REQUEST_RATE].take(0, 20)
    assert buckets.of(0, ALICE)[REQUEST_RATE].wait_us(0) == 0
    assert buckets.of(0, BOB)[REQUEST_RATE].wait_us(0) > 0
    assert not buckets.of(0, "Node:2"), "nodes are not users"


def test_a_change_keeps_debts_and_a_removal_forgets_them() -> None:
    image = MetadataImage()
    buckets = QuotaBuckets(holder(image), (PRODUCER_BYTE_RATE,))
    limit(image, ALICE, producer_byte_rate=2_000)
    buckets.of(0, ALICE)[PRODUCER_BYTE_RATE].take(0, 10_000)
    limit(image, BOB, producer_byte_rate=2_000)
    assert buckets.of(0, ALICE)[PRODUCER_BYTE_RATE].wait_us(0) == 4 * SECOND
    limit(image, ALICE, producer_byte_rate=4_000)
    assert buckets.of(0, ALICE)[PRODUCER_BYTE_RATE].wait_us(0) == 2 * SECOND
    limit(image, ALICE, producer_byte_rate=None)
    assert not buckets.of(0, ALICE)
    limit(image, BOB, producer_byte_rate=None)
    buckets.quotas_changed()
    assert len(buckets) == 0


def test_a_restored_image_finds_the_same_buckets() -> None:
    image = MetadataImage()
    current = holder(image)
    buckets = QuotaBuckets(current, (PRODUCER_BYTE_RATE,))
    limit(image, ALICE, producer_byte_rate=2_000)
    buckets.of(0, ALICE)[PRODUCER_BYTE_RATE].take(0, 10_000)
    current.image = MetadataImage.from_snapshot(image.to_snapshot())  # type: ignore[misc]
    assert buckets.of(0, ALICE)[PRODUCER_BYTE_RATE].wait_us(0) == 4 * SECOND


def test_full_buckets_make_way_and_debts_do_not() -> None:
    image = MetadataImage()
    limit(image, "User:*", request_rate=1)
    buckets = QuotaBuckets(holder(image), (REQUEST_RATE,), most=3)
    for number in range(3):
        buckets.of(0, f"User:u{number}")[REQUEST_RATE].take(0, 1 + number)
    shared = buckets.of(0, "User:late")
    assert len(buckets) == 3
    assert buckets.of(0, "User:later") is shared, "new principals share a set while every other one is in debt"
    shared[REQUEST_RATE].take(0, 5)
    later = SWEEP_EVERY_US
    assert buckets.of(later, "User:late") is not shared, "u0 has made way"
    assert buckets.of(later, "User:u2")[REQUEST_RATE].wait_us(later) == SECOND, "a debt was forgotten"
    assert len(buckets) == 3


# -- partition changes ---------------------------------------------------------------------------------------------


def test_who_has_changed_too_many_partitions_is_told_when_to_come_again() -> None:
    image = MetadataImage()
    quota = MutationQuota(holder(image))
    assert quota.refusal(0, ALICE) is None
    quota.charge(0, ALICE, 1_000)
    limit(image, ALICE, controller_mutation_rate=2)
    assert quota.refusal(0, ALICE) is None, "what was done before does not count"
    quota.charge(0, ALICE, 12)
    refused = quota.refusal(0, ALICE)
    assert refused is not None
    assert (refused.code, refused.retriable, refused.definite) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, True, True)
    assert refused.throttle_time_ms == 5_000
    assert "controller_mutation_rate = 2 per second" in refused.message
    assert quota.refusal(0, BOB) is None
    assert quota.refusal(5 * SECOND, ALICE) is None


def test_a_new_rate_fills_nothing_of_the_past() -> None:
    bucket = TokenBucket(10, now=0)
    bucket.take(0, 110)
    bucket.change_rate(5 * SECOND, 1_000)
    assert bucket.wait_us(5 * SECOND) == SECOND // 20, "50 of the debt were paid at the former rate"


def test_newcomers_share_the_default() -> None:
    """Principals without room for buckets of their own share those of the default, not a limit set for one of them."""
    image = MetadataImage()
    limit(image, "User:*", producer_byte_rate=100)
    limit(image, ALICE, producer_byte_rate=5_000)
    limit(image, BOB, producer_byte_rate=7_000)
    buckets = QuotaBuckets(holder(image), (PRODUCER_BYTE_RATE,), most=1)
    buckets.of(0, ALICE)[PRODUCER_BYTE_RATE].take(0, 9_000)
    shared = buckets.of(0, BOB)[PRODUCER_BYTE_RATE]
    assert shared.rate == 100
    assert buckets.of(0, "User:carol")[PRODUCER_BYTE_RATE] is shared
    assert len(buckets) == 1


def test_waits_for_partitions_round_up() -> None:
    """A client that returns after the reported wait is served, because the wait is rounded up."""
    image = MetadataImage()
    limit(image, ALICE, controller_mutation_rate=3)
    quota = MutationQuota(holder(image))
    quota.charge(0, ALICE, 4)
    refused = quota.refusal(0, ALICE)
    assert refused is not None and refused.throttle_time_ms == 334
    assert quota.refusal(333_000, ALICE) is not None
    assert quota.refusal(334_000, ALICE) is None
