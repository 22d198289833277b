"""Committed offsets that a mirror copies: new ones, and never backwards."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pytest

from quorumlog.sdk.errors import NonEmptyGroupError
from quorumlog.sdk.mirror.offset_map import GroupOffsets
from quorumlog.sdk.types import OffsetAndMetadata, TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Target:
    """The groups of the target cluster."""

    def __init__(self) -> None:
        self.committed: dict[str, dict[TopicPartition, int]] = {}
        self.altered: list[tuple[str, dict[TopicPartition, int]]] = []
        self.members: set[str] = set()

    def list_group_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        return {tp: OffsetAndMetadata(offset) for tp, offset in self.committed.get(group, {}).items()}

    def alter_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        if group in self.members:
            raise NonEmptyGroupError("it has members")
        self.altered.append((group, dict(offsets)))
        self.committed.setdefault(group, {}).update(offsets)


@pytest.fixture
def target() -> Target:
    return Target()


@pytest.fixture
def offsets(target: Target) -> GroupOffsets:
    """Offsets are 100 lower here than in the source; its records before 100 have not been copied."""
    return GroupOffsets(target, lambda tp, at: (tp, at - 100) if at >= 100 else None)  # type: ignore[arg-type]


def test_groups_never_move_back(target: Target, offsets: GroupOffsets) -> None:
    """A group was switched over and has committed further here; other partitions still move forward."""
    assert offsets.copy({"g": {A: 150, B: 110}}) == 1
    assert target.committed == {"g": {A: 50, B: 10}}
    target.committed["g"][A] = 80
    assert offsets.copy({"g": {A: 160, B: 120}}) == 1
    assert target.committed == {"g": {A: 80, B: 20}}
    assert target.altered[-1] == ("g", {B: 20})
    offsets.copy({"g": {A: 181, B: 120}})
    assert target.committed == {"g": {A: 81, B: 20}}


def test_equal_offsets_are_not_written(target: Target, offsets: GroupOffsets) -> None:
    target.committed["g"] = {A: 50}
    offsets.copy({"g": {A: 150}})
    assert target.altered == []
    offsets.copy({"g": {A: 151}})
    offsets.copy({"g": {A: 151}})
    assert target.altered == [("g", {A: 51})]


def test_uncopied_offsets_are_left_out(target: Target, offsets: GroupOffsets) -> None:
    """The group starts at the first record that is here, which is not an offset of its own."""
    assert offsets.copy({"g": {A: 99}, "h": {A: 99, B: 100}}) == 1
    assert target.committed == {"h": {B: 0}}


def test_groups_with_members_are_tried_again(
    target: Target, offsets: GroupOffsets, caplog: pytest.LogCaptureFixture
) -> None:
    """They are reported once, and copied when they have no members."""
    target.members = {"g"}
    with caplog.at_level(logging.WARNING):
        assert [offsets.copy({"g": {A: 150}}) for _ in range(3)] == [0, 0, 0]
    assert len(caplog.records) == 1
    target.members = set()
    assert offsets.copy({"g": {A: 150}}) == 1
    assert target.committed == {"g": {A: 50}}
