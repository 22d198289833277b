"""Each checker passes a good history and names what is wrong with a bad one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from quorumlog.chaos.checkers.checkers import CHECKERS, check
from quorumlog.chaos.checkers.history import History, Operation, OperationKind, OperationOutcome


def send(
    value: str, offset: int, at: int, outcome: OperationOutcome = OperationOutcome.OK, process: str = "p"
) -> Operation:
    """A send that takes 5 µs from ``at`` on."""
    return Operation(
        process, OperationKind.SEND, at, at + 5, outcome, "t-0", value=value, offset=offset, leader_epoch=1
    )


def poll(first: int, values: str, at: int, process: str = "c", final: bool = False, mark: int = -1) -> Operation:
    """A poll of one-letter values from offset ``first`` on."""
    records = [(first + place, value) for place, value in enumerate(values)]
    return Operation(
        process,
        OperationKind.POLL,
        at,
        at + 5,
        OperationOutcome.OK,
        "t-0",
        records=records,
        high_watermark=mark,
        final=final,
    )


def end_offset(offset: int, at: int) -> Operation:
    """A linearizable end offset."""
    return Operation(
        "e", OperationKind.END_OFFSET, at, at + 5, OperationOutcome.OK, "t-0", offset=offset, leader_epoch=1
    )


def reset(offset: int, at: int, process: str = "c", final: bool = False) -> Operation:
    """A reader continues from the log start."""
    return Operation(process, OperationKind.RESET, at, at + 5, OperationOutcome.OK, "t-0", offset=offset, final=final)


def trimmed() -> list[Operation]:
    """The first three of four records are no longer kept when a reader comes to the third."""
    return [
        *good()[:8],
        reset(3, 80),
        poll(3, "d", 85, mark=4),
        reset(3, 90, process="final", final=True),
        poll(3, "d", 95, process="final", final=True, mark=4),
    ]


def good() -> list[Operation]:
    """Three acknowledged sends, one without an outcome, one that failed; a reader and a final reader."""
    return [
        send("a", 0, 10),
        send("b", 1, 20),
        poll(0, "ab", 30, mark=2),
        end_offset(2, 40),
        send("c", -1, 50, OperationOutcome.INFO),
        send("f", -1, 55, OperationOutcome.FAIL),
        send("d", 3, 60),
        end_offset(4, 70),
        poll(2, "cd", 80, mark=4),
        poll(0, "abcd", 90, process="final", final=True, mark=4),
    ]


def test_a_good_history_has_no_anomaly() -> None:
    assert check(History(good())) == []


def test_what_lies_below_the_log_start_need_not_be_read() -> None:
    assert check(History(trimmed())) == []


def test_an_old_duplicate_may_come_without_its_offset() -> None:
    assert check(History([*good()[:3], send("b", -1, 35), *good()[3:]])) == []


def _changed(
    change: Callable[[list[Operation]], object], history: Callable[[], list[Operation]] = good
) -> list[Operation]:
    operations = history()
    change(operations)
    return operations


BAD: dict[str, list[Operation]] = {
    "I1 two values at one offset": _changed(lambda h: h.insert(3, poll(0, "x", 35, process="other"))),
    "I2 a value at two offsets": _changed(lambda h: h.insert(9, poll(4, "a", 85))),
    "I3 an acknowledged record is gone": _changed(lambda h: h[9].records.pop(1)),
    "I3 passed over by every reader": [send("a", 0, 10), send("b", 1, 20), poll(0, "a", 30), poll(2, "z", 40)],
    "I4 a failed send is read": _changed(lambda h: h.insert(9, poll(4, "f", 85))),
    "I4 read beyond the high watermark": _changed(lambda h: setattr(h[8], "high_watermark", 3)),
    "I5 a poll goes back": _changed(lambda h: h.insert(9, poll(3, "d", 85))),
    "I5 a poll skips": _changed(lambda h: h[8].records.pop(0)),
    "I6 a later send before an earlier": [send("a", 1, 10), send("b", 0, 10 + 1)],
    "I7 behind what was acknowledged": [send("a", 5, 10), send("b", 4, 20, process="q")],
    "I10 a stale end offset": _changed(lambda h: setattr(h[7], "offset", 2)),
    "I8 a gap": _changed(lambda h: h[9].records.pop(2)),
    "I3 more is gone than readers were notified of": _changed(
        lambda h: [setattr(h[place], "offset", 1) for place in (8, 10)], trimmed
    ),
    "I5 sent back to the log start": _changed(lambda h: setattr(h[8], "offset", 1), trimmed),
    "I5 a poll skips after the log start": _changed(lambda h: setattr(h[8], "offset", 2), trimmed),
    "I8 a gap after the log start": _changed(lambda h: setattr(h[10], "offset", 2), trimmed),
    "I8 the final reader stops early": _changed(lambda h: h[9].records.pop()),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_history_is_caught_by_its_checker(name: str) -> None:
    assert name.split(maxsplit=1)[0] in {anomaly.invariant for anomaly in check(History(BAD[name]))}


def test_what_was_sent_without_waiting_for_the_replicas_may_be_lost() -> None:
    hopeful = send("h", 2, 45)
    hopeful.acks_all = False
    assert check(History([*good()[:4], hopeful, *good()[4:]])) == []


def test_operations_at_the_same_time_are_not_ordered() -> None:
    overlapping = [send("a", 1, 10), send("b", 0, 12, process="q"), poll(0, "ba", 30, final=True)]
    assert check(History(overlapping)) == []


def test_every_checker_has_a_bad_history_that_only_it_or_its_kin_catches() -> None:
    for checker in CHECKERS:
        assert any(checker(History(operations)) for operations in BAD.values()), checker.__name__


def test_a_history_survives_its_file(tmp_path: Path) -> None:
    History(good()).save(tmp_path / "history.jsonl")
    assert History.load(tmp_path / "history.jsonl").operations == good()


def test_a_damaged_history_says_which_line(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    History(good()[:1]).save(path)
    with path.open("a") as lines:
        lines.write('{"kind": "send"}\n')
    with pytest.raises(ValueError, match="line 2 is not an operation"):
        History.load(path)
