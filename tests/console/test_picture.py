"""A page gets what has changed since it looked, however long that was ago, and nothing twice."""

from __future__ import annotations

import asyncio
import random

import pytest

from quorumlog.console import shared_state as pictures
from quorumlog.console.shared_state import SharedState, Thing


def test_a_page_that_has_nothing_gets_everything() -> None:
    picture = SharedState()
    picture.put("node/", {"node/1": {"id": 1}})
    assert picture.since(None) == {"all": True, "set": {"node/1": {"id": 1}}, "gone": []}


def test_what_stays_as_it_is_is_no_news() -> None:
    picture = SharedState()
    picture.put("node/", {"node/1": {"id": 1}})
    picture.put("node/", {"node/1": {"id": 1}})
    assert picture.version == 1


def test_a_change_tells_what_was_set_and_what_is_gone() -> None:
    picture = SharedState()
    picture.put("node/", {"node/1": {"id": 1}, "node/2": {"id": 2}})
    seen = picture.version
    picture.put("node/", {"node/2": {"id": 2, "state": "down"}, "node/3": {"id": 3}})
    assert picture.since(seen) == {
        "all": False,
        "set": {"node/2": {"id": 2, "state": "down"}, "node/3": {"id": 3}},
        "gone": ["node/1"],
    }


def test_what_came_back_is_not_gone() -> None:
    picture = SharedState()
    picture.put("node/", {"node/1": {"id": 1}})
    seen = picture.version
    picture.put("node/", {})
    picture.put("node/", {"node/1": {"id": 1}})
    assert picture.since(seen) == {"all": False, "set": {"node/1": {"id": 1}}, "gone": []}


def test_a_version_of_the_future_is_of_another_picture() -> None:
    picture = SharedState()
    picture.put("node/", {"node/1": {"id": 1}})
    assert picture.since(7)["all"] is True


def test_a_page_that_was_away_while_too_much_went_gets_all_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "MAX_GONE", 2)
    picture = SharedState()
    picture.put("topic/", {f"topic/{number}": {"n": number} for number in range(5)})
    seen = picture.version
    picture.put("topic/", {})
    assert picture.since(seen) == {"all": True, "set": {}, "gone": []}


def test_pages_that_look_now_and_then_see_the_same_in_the_end() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    picture, pages = SharedState(), [dict[str, object]() for _ in range(3)]
    versions: list[int | None] = [None, None, None]

    def look(page: int) -> None:
        change, versions[page] = picture.since(versions[page]), picture.version
        if change["all"]:
            pages[page].clear()
        assert isinstance(change["set"], dict) and isinstance(change["gone"], list)
        pages[page].update(change["set"])
        for key in change["gone"]:  # It may have come and gone between two looks.
            pages[page].pop(str(key), None)

    truth: dict[str, Thing] = {}
    for _ in range(300):
        prefix = chance.choice(("a/", "b/"))
        things: dict[str, Thing] = {f"{prefix}{chance.randrange(6)}": {"v": chance.randrange(3)} for _ in range(3)}
        truth = {key: thing for key, thing in truth.items() if not key.startswith(prefix)} | things
        picture.put(prefix, things)
        if chance.random() < 0.4:
            look(chance.randrange(3))
    for page in range(3):
        look(page)
        assert pages[page] == truth


async def test_who_waits_is_woken_by_news_and_by_the_end() -> None:
    picture = SharedState()
    waiting = asyncio.create_task(picture.newer_than(0))
    await asyncio.sleep(0)
    assert not waiting.done()
    picture.put("node/", {"node/1": {"id": 1}})
    await asyncio.wait_for(waiting, 30)
    last = asyncio.create_task(picture.newer_than(1))
    await asyncio.sleep(0)
    picture.close()
    await asyncio.wait_for(last, 30)
