"""Which heartbeat round confirms which question."""

from __future__ import annotations

import pytest

from quorumlog.server.read_index import HeartbeatRounds


@pytest.mark.scenario("15b")
def test_questions_of_one_step_share_a_round_and_none_gets_one_from_before_it_was_asked() -> None:
    sent: list[int] = []

    def confirm(group: int) -> int:
        sent.append(group)
        return len(sent)

    rounds = HeartbeatRounds(confirm)
    assert [rounds.begin(100, 7), rounds.begin(100, 7)] == [1, 1]
    assert rounds.begin(101, 7) == 2
    assert rounds.begin(101, 8) == 3
    assert sent == [7, 7, 8]


def test_a_round_that_could_not_begin_is_tried_again() -> None:
    answers = iter((None, 5))
    rounds = HeartbeatRounds(lambda group: next(answers))
    assert rounds.begin(100, 7) is None
    assert rounds.begin(100, 7) == 5
