"""Each class name has one meaning in the whole code base."""

from __future__ import annotations

import house
import pytest


@pytest.fixture(scope="module")
def code() -> list[house.Module]:
    return house.modules()


def test_a_class_name_stands_once(code: list[house.Module]) -> None:
    assert house.names_of_several_classes(code) == {}
