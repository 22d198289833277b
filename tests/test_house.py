"""The house stays one in which a newcomer finds the way: one meaning for a class's name, rooms of a size to be read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import house
import pytest

#: More modules than this in a room are two rooms.
MOST_MODULES = 30
#: A module past this is two ideas.
MOST_LINES = 560


@pytest.fixture(scope="module")
def code() -> list[house.Module]:
    return house.modules()


def test_a_class_name_stands_once(code: list[house.Module]) -> None:
    assert house.names_of_several_classes(code) == {}


def test_no_room_has_more_modules_than_one_reads(code: list[house.Module]) -> None:
    folders = Counter(str(Path(module.path).parent) for module in code if not module.path.startswith("bench/"))
    assert {folder: count for folder, count in folders.items() if count > MOST_MODULES} == {}


def test_no_module_is_two_ideas_by_its_length(code: list[house.Module]) -> None:
    assert {module.path: module.lines for module in code if module.lines > MOST_LINES} == {}
