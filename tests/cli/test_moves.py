"""Output of commands that wait for moves: how much is left, and what holds them up."""

from __future__ import annotations

import dataclasses
import io
import re
import sys

import pytest

from quorumlog.cli.moves.bytes_left import BytesLeft
from quorumlog.cli.moves.stalls import STALLED_S, Stalls, what_is_waited_for
from quorumlog.cli.progress import copying
from quorumlog.sdk import PartitionDescription, PartitionReassignment, ReplicaCopy, TopicPartition

LED = PartitionDescription(
    partition=0, leader=1, leader_epoch=1, replicas=(1, 2, 3), isr=(1, 2, 3), partition_epoch=1, group_id=7
)
MOVE = PartitionReassignment((1, 2, 3, 4), (4,), (3,))
ORDERS = TopicPartition("orders", 0)


def waited_for(
    partition: PartitionDescription = LED,
    move: PartitionReassignment | None = MOVE,
    copies: tuple[ReplicaCopy, ...] = (),
    down: tuple[int, ...] = (),
) -> str:
    return what_is_waited_for([("orders", partition)], {ORDERS: move} if move else {}, copies, down)


def test_what_holds_a_move_up_is_named() -> None:
    led_by_none = dataclasses.replace(LED, leader=None)
    assert waited_for(led_by_none, down=(2, 3)) == (
        "1 partition left: orders-0 has no leader, and of its nodes 1,2,3 these are down: 2,3"
    )
    assert "although all of its nodes 1,2,3 are up" in waited_for(led_by_none)
    assert "orders-0 waits for node 4, which is down" in waited_for(down=(4,))
    assert "orders-0 is waiting for its turn" in waited_for(move=None)
    copy = ReplicaCopy("orders", 0, 4, 9_000_000, 2_300_000)
    assert "waits for 2.3 MB to be copied to node 4" in waited_for(copies=(copy,))
    slow = MOVE._replace(throttle_bytes_per_second=1_000)
    assert "to be copied to node 4, at 1.0 kB/s" in waited_for(move=slow, copies=(copy,))
    assert "waits for node 4 to start its copy, or to be in sync" in waited_for()
    assert "waits for its leader, node 1, to change its voters" in waited_for(move=MOVE._replace(adding_replicas=()))


def test_what_needs_somebody_is_named_before_what_is_under_way() -> None:
    other = dataclasses.replace(LED, partition=1, leader=None)
    said = what_is_waited_for([("orders", LED), ("orders", other)], {ORDERS: MOVE}, (), (2,))
    assert said.startswith("2 partitions left: orders-1 has no leader")


def test_bytes_are_those_of_copies_under_way_and_of_those_that_wait() -> None:
    meter = BytesLeft([("orders", 0), ("orders", 1), ("orders", 2)], {})
    assert (meter.of([("orders", 0), ("orders", 1)], []), meter.all_bytes) == (0, 0), "nothing is known"
    copy = ReplicaCopy("orders", 0, 4, 1_000, 400)
    assert meter.of([("orders", 0), ("orders", 1)], [copy]) == 1_400, "one that waits counts as one of the mean size"
    assert meter.all_bytes == 3_000
    assert meter.of([("orders", 1)], []) == 1_000, "what is done is done"


def test_a_stall_is_said_once_and_again_when_it_is_another() -> None:
    now, said = [0.0], []
    stalls = Stalls(said.append, lambda: now[0])

    def look(left: int, left_bytes: int, why: str) -> None:
        stalls.look(left, lambda: (left_bytes, why))
        now[0] += STALLED_S

    for left_bytes in (900, 600, 300):
        look(1, left_bytes, "it continues")
    assert said == []
    for why in ("a", "a", "a", "b", "b"):
        look(1, 300, why)
    assert said == ["a", "b"]
    look(2, 300, "a")
    look(2, 300, "a")
    assert said == ["a", "b"], "something got on"


class Terminal(io.StringIO):
    """A terminal on which one reads what was shown."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("planned", "told"), [(3_000, 0), (0, 3_000)], ids=["by the plan", "since copies started"])
def test_a_terminal_shows_the_bytes_that_are_left(planned: int, told: int, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("TERM", "xterm")
    with copying("moving 3 partitions", 3, planned) as tell:
        tell(2, 1_400, told)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    assert "moving 3 partitions" in shown
    assert "2 of 3 left (1.4 kB of 3.0 kB)," in shown
