"""Memory budget of connections: its limit, and the connection that makes way when it is exceeded."""

from __future__ import annotations

from quorumlog.server.kafka.memory_budget import SMALL_BYTES, MemoryBudget

KIB = 1 << 10


def held() -> MemoryBudget[str]:
    return MemoryBudget(most_bytes=1_000 * KIB)


def test_what_has_not_moved_for_the_longest_makes_way() -> None:
    those = held()
    assert those.note("a", 0, 400 * KIB) is None
    assert those.note("b", 0, 400 * KIB) is None
    assert those.note("a", 0, 500 * KIB) is None
    assert those.note("b", 0, 600 * KIB) == "a"
    those.forget("a")
    assert those.size_bytes == 600 * KIB
    assert those.note("b", 0, 1_001 * KIB) == "b", "it may be the one that has brought more"


def test_a_connection_that_has_moved_begins_anew() -> None:
    those = held()
    those.note("busy", 0, 400 * KIB)
    those.note("slow", 0, 400 * KIB)
    assert those.note("busy", 1, 400 * KIB) is None, "it has moved"
    assert those.note("busy", 1, 601 * KIB) == "slow"


def test_small_ones_are_not_counted_and_who_has_gone_holds_nothing() -> None:
    those = held()
    for number in range(1_000):
        assert those.note(f"small-{number}", 0, SMALL_BYTES) is None
    assert those.size_bytes == 0
    those.note("a", 0, 400 * KIB)
    assert those.note("a", 0, 10) is None
    assert those.size_bytes == 0
    those.note("a", 0, 400 * KIB)
    those.forget("a")
    those.forget("a")
    assert those.size_bytes == 0
