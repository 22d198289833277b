"""In-sync replicas by replica lag time, as in Kafka."""

from quorumlog.server.replicas.leader_reports import IsrTracker

LAG = 10_000_000
SECOND = 1_000_000


def test_a_follower_that_keeps_up_stays() -> None:
    tracker = IsrTracker(0, (1, 2, 3))
    for second in range(1, 60):
        last = 100 * second
        # Always one check behind: caught up with what the leader had a second ago.
        assert tracker.check(second * SECOND, last, {2: last - 100, 3: last}, (1, 2, 3), LAG) == {2, 3}


def test_a_follower_that_stands_still_leaves_after_the_lag_time() -> None:
    tracker = IsrTracker(0, (1, 2, 3))
    for second in range(1, 11):
        assert 3 in tracker.check(second * SECOND, 100 * second, {2: 100 * second, 3: 0}, (1, 2, 3), LAG)
    assert tracker.check(11 * SECOND, 1100, {2: 1100, 3: 0}, (1, 2, 3), LAG) == {2}


def test_a_follower_joins_only_once_it_is_caught_up() -> None:
    tracker = IsrTracker(0, (1, 2))
    assert tracker.check(1 * SECOND, 100, {2: 100, 3: 50}, (1, 2), LAG) == {2}
    assert tracker.check(2 * SECOND, 200, {2: 200, 3: 100}, (1, 2), LAG) == {2, 3}


def test_who_was_caught_up_before_it_left_must_catch_up_again() -> None:
    tracker = IsrTracker(0, (1, 2, 3))
    tracker.check(1 * SECOND, 100, {2: 100, 3: 100}, (1, 2, 3), LAG)
    # In the meantime it was fenced and removed from the ISR; it has returned, but is behind.
    assert tracker.check(2 * SECOND, 200, {2: 200, 3: 90}, (1, 2), LAG) == {2}


def test_an_idle_partition_keeps_its_followers() -> None:
    tracker = IsrTracker(0, (1, 2, 3))
    for second in range(1, 100):
        assert tracker.check(second * SECOND, 7, {2: 7, 3: 7}, (1, 2, 3), LAG) == {2, 3}
