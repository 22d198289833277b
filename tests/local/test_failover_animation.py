"""tools/failover_animation.py: what it draws is what it has recorded."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "failover_animation.py"


@pytest.fixture(scope="module")
def animation() -> ModuleType:
    spec = importlib.util.spec_from_file_location("failover_animation", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def words(picture: str) -> list[str]:
    """The texts of an SVG, which must be XML."""
    return [each.text or "" for each in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")]


def test_the_picture_states_the_recording(animation: ModuleType) -> None:
    states = [
        animation.State(0.0, 1, (1, 2, 3), (1, 2, 3)),
        animation.State(1.1, 2, (2, 3), (2, 3)),
        animation.State(2.5, 2, (1, 2, 3), (1, 2, 3)),
    ]
    recording = animation.Recording([0.5, 1.0, 1.25, 2.0, 2.9], states, 1.0, 1, 2.2, 3.0, lost=1, duplicated=2)
    shown = words(animation.draw(recording))
    assert recording.gap == (1.25, 2.0)
    assert "5 acknowledged · 1 lost · 2 duplicated" in shown
    assert "Another node leads. The producer waited 0.75 s." in shown
    assert "kill -9: node 1, the leader, is gone." in shown
    assert {"node 1", "node 2", "node 3", "leader", "down"} <= set(shown)


@pytest.mark.cluster
def test_a_real_failover_is_recorded(animation: ModuleType) -> None:
    recording = animation.record((0.2, 0.5, 0.2))
    assert (recording.lost, recording.duplicated) == (0, 0)
    assert any(recording.killed not in state.running for state in recording.states)
    assert {state.leader for state in recording.states} - {recording.killed, None}
    assert len(animation.draw(recording)) < 1_000_000


def test_the_picture_of_the_readme_is_small_and_lossless() -> None:
    picture = (SCRIPT.parents[1] / "docs" / "images" / "failover.svg").read_text()
    assert len(picture) < 1_000_000
    assert any(" 0 lost · 0 duplicated" in each for each in words(picture))
