"""Virtual time passes in order, and its trace is a function of what happened alone."""

from __future__ import annotations

from quorumlog.simulator.world.scheduler import Scheduler


def test_actions_happen_in_order_of_time_and_then_of_scheduling() -> None:
    scheduler = Scheduler(1)
    seen: list[str] = []
    scheduler.after(20, lambda: seen.append("later"))
    scheduler.after(10, lambda: seen.append("first"))
    scheduler.after(10, lambda: seen.append("second"))
    scheduler.run(15)
    assert seen == ["first", "second"]
    assert scheduler.now == 15
    scheduler.run(100)
    assert seen == ["first", "second", "later"]


def test_a_cancelled_timer_does_not_fire() -> None:
    scheduler = Scheduler(1)
    seen: list[str] = []
    scheduler.after(10, lambda: seen.append("kept"))
    scheduler.after(10, lambda: seen.append("cancelled")).cancel()
    scheduler.run(100)
    assert seen == ["kept"]


def test_a_run_stops_when_its_condition_holds() -> None:
    scheduler = Scheduler(1)
    seen: list[int] = []
    for moment in (1, 2, 3):
        scheduler.at(moment, lambda moment=moment: seen.append(moment))  # type: ignore[misc]
    assert scheduler.run(10, lambda: len(seen) == 2)
    assert scheduler.now == 2
    assert not scheduler.run(10, lambda: False)


def test_streams_of_one_seed_are_independent_and_repeatable() -> None:
    one, same, other = Scheduler(7), Scheduler(7), Scheduler(8)
    draws = [one.stream("disk").random(), one.stream("network").random()]
    assert draws == [same.stream("disk").random(), same.stream("network").random()]
    assert draws[0] != draws[1]
    assert draws[0] != other.stream("disk").random()


def test_the_trace_tells_time_and_text_apart() -> None:
    def hash_of(moment: int, text: str) -> str:
        scheduler = Scheduler(1)
        scheduler.at(moment, lambda: scheduler.trace(text))
        scheduler.run(100)
        return scheduler.trace_hash()

    assert hash_of(5, "a") == hash_of(5, "a")
    assert len({hash_of(5, "a"), hash_of(6, "a"), hash_of(5, "b")}) == 3
