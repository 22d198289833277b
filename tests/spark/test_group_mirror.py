"""Copy of a query's progress to a consumer group: in the background, the newest place, and again after a failure."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from quorumlog.sdk.errors import (
    CoordinatorNotAvailableError,
    GroupMaxSizeReachedError,
    QuorumlogError,
    UnknownMemberIdError,
)
from quorumlog.sdk.spark import group_mirror
from quorumlog.sdk.spark.group_mirror import GroupMirror
from quorumlog.sdk.spark.stream_offsets import StreamOffset

TOPIC_ID = bytes(16)
GROUP = "mirrored"


class Coordinator:
    """Takes commits, or refuses them."""

    def __init__(self) -> None:
        self.refusing: QuorumlogError | None = None
        self.asked = 0
        self.committed: list[dict[tuple[bytes, int], int]] = []

    def commit(self, nodes: object, group_id: str, places: Mapping[tuple[bytes, int], int]) -> None:
        if group_id != GROUP:
            return  # A mirror that another test has left behind.
        self.asked += 1
        if self.refusing is not None:
            raise self.refusing
        self.committed.append(dict(places))


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    stand_in = Coordinator()
    monkeypatch.setattr(group_mirror, "commit_offsets", stand_in.commit)
    return stand_in


def place(**ends: int) -> StreamOffset:
    positions = {("t", int(number[1:])): end for number, end in ends.items()}
    return StreamOffset(positions, {"t": TOPIC_ID})


def test_only_what_has_changed_is_committed(coordinator: Coordinator) -> None:
    mirror = GroupMirror("127.0.0.1:9", GROUP)
    for shown in (place(p0=3, p1=4), place(p0=3, p1=4), place(p0=3, p1=7)):
        mirror.show(shown)
        assert mirror.flush(60)
    assert coordinator.committed == [{(TOPIC_ID, 0): 3, (TOPIC_ID, 1): 4}, {(TOPIC_ID, 1): 7}]
    assert coordinator.asked == 2


def test_a_place_that_is_shown_again_while_it_is_tried_is_not_taken_for_done(coordinator: Coordinator) -> None:
    mirror = GroupMirror("127.0.0.1:9", GROUP)
    coordinator.refusing = CoordinatorNotAvailableError("it is being elected")
    mirror.show(place(p0=3))
    assert not mirror.flush(0.5)
    mirror.show(place(p0=3))
    assert not mirror.flush(0.5)
    coordinator.refusing = None
    assert mirror.flush(60)
    assert coordinator.committed == [{(TOPIC_ID, 0): 3}]


def test_a_place_that_was_given_up_is_tried_again_when_it_is_shown_again(
    coordinator: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    mirror = GroupMirror("127.0.0.1:9", GROUP)
    coordinator.refusing = GroupMaxSizeReachedError("it takes no more")
    for _ in range(2):
        mirror.show(place(p0=3))
        assert mirror.flush(60)
    assert (coordinator.asked, coordinator.committed) == (2, [])
    coordinator.refusing = None
    mirror.show(place(p0=3))
    assert mirror.flush(60)
    assert coordinator.committed == [{(TOPIC_ID, 0): 3}]
    assert caplog.text.count("progress is not shown in group 'mirrored': it takes no more") == 1


def test_all_is_committed_again_now_and_then_so_that_idle_partitions_do_not_expire(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_mirror, "_AGAIN_S", 0.0)
    mirror = GroupMirror("127.0.0.1:9", GROUP)
    for _ in range(2):
        mirror.show(place(p0=3, p1=4))
        assert mirror.flush(60)
    assert coordinator.committed == [{(TOPIC_ID, 0): 3, (TOPIC_ID, 1): 4}] * 2


def test_a_group_of_consumers_is_left_alone_also_once_they_pause(
    coordinator: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    mirror = GroupMirror("127.0.0.1:9", GROUP)
    coordinator.refusing = UnknownMemberIdError("group g has members")
    mirror.show(place(p0=3))
    assert mirror.flush(60)
    coordinator.refusing = None
    mirror.show(place(p0=4))
    assert mirror.flush(60)
    assert (coordinator.asked, coordinator.committed) == (1, [])
    assert (
        "group g has members; this run makes no further attempt: set option groupId to a name of its own" in caplog.text
    )
