"""No caller receives an error for what was done, nor success for what was not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

import pytest

from quorumlog.sdk.admin.lost_answers import change_once
from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.errors import InvalidRequestError, NetworkError, QuorumlogError

Reply = TypeVar("Reply")


class Impatient:
    """Tries three times what may be tried again."""

    async def retrying(self, attempt: Callable[[], Awaitable[Reply]], limit_s: float, what: str) -> Reply:
        for turn in range(3):
            try:
                return await attempt()
            except QuorumlogError as error:
                if turn == 2 or not error.retriable:
                    raise
        raise AssertionError("unreachable")


def lost() -> NetworkError:
    return NetworkError("the connection broke", retriable=True, definite=False)


def refused() -> InvalidRequestError:
    return InvalidRequestError("that is so already", retriable=False, definite=True)


class Asked:
    """A change whose attempts end as the test says."""

    def __init__(self, *outcomes: QuorumlogError | str, done: str | None) -> None:
        self._outcomes = list(outcomes)
        self._done = done

    async def ask(self) -> str:
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, str):
            return outcome
        raise outcome

    async def find_done(self) -> str | None:
        return self._done

    async def run(self) -> str:
        return await change_once(cast("Cluster", Impatient()), self.ask, self.find_done, 1.0, "the change")


async def test_a_refusal_after_a_lost_answer_is_no_error_where_it_is_done() -> None:
    assert await Asked(lost(), refused(), done="found").run() == "found"


async def test_a_refusal_after_a_lost_answer_is_one_where_it_is_not_done() -> None:
    with pytest.raises(InvalidRequestError) as failure:
        await Asked(lost(), refused(), done=None).run()
    assert not failure.value.definite, "the lost attempt may yet take effect"


async def test_a_refusal_of_the_first_attempt_is_told_as_it_is() -> None:
    with pytest.raises(InvalidRequestError) as failure:
        await Asked(refused(), done="it was so before").run()
    assert failure.value.definite


async def test_what_was_done_is_no_error_although_no_answer_ever_came() -> None:
    assert await Asked(lost(), lost(), lost(), done="found").run() == "found"
    with pytest.raises(NetworkError):
        await Asked(lost(), lost(), lost(), done=None).run()
