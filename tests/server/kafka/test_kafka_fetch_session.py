"""A Kafka fetch session accepts no more partitions than there is room for, however many a request names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from quorumlog.server.kafka.codec.fetch_requests import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from quorumlog.server.kafka.codec.fetch_responses import FetchResponse
from quorumlog.server.kafka.handlers.error_codes import KafkaError
from quorumlog.server.kafka.handlers.fetch import fetch
from quorumlog.server.kafka.handlers.fetch_session import ConnectionFetches, FetchSessionSpace, WantedFetch
from quorumlog.server.kafka.handlers.handler import KafkaCall
from quorumlog.v1 import data_plane_pb2

TOPIC, BY_NAME = "orders", 12
MOST = 3
CLUSTER: Any = SimpleNamespace(topic_id=lambda name: name.encode().ljust(16))


class Asking:
    """A consumer with a session, and a node that has no news."""

    def __init__(self) -> None:
        self.space = FetchSessionSpace(MOST)
        self.fetches = ConnectionFetches(self.space)
        self.session = self.epoch = 0
        self.forgotten_at_node: list[int] = []

    def fetch(self, wanted: Sequence[int], forgotten: Sequence[int] = ()) -> int:
        """Names partitions. Returns the error."""
        request = FetchRequest(
            session_id=self.session,
            session_epoch=self.epoch,
            topics=[FetchTopic(TOPIC, partitions=[FetchPartition(number, -1, 0, -1, -1, 1_000) for number in wanted])],
            forgotten_topics_data=[ForgottenTopic(TOPIC, partitions=list(forgotten))],
        )
        steps = fetch(KafkaCall(request, BY_NAME, CLUSTER, fetches=self.fetches))
        try:
            step = next(steps)
            while True:
                (question,) = cast(Any, step).messages
                assert isinstance(question, data_plane_pb2.FetchRequest)
                self.forgotten_at_node += [each.partition for each in question.forgotten]
                step = steps.send([data_plane_pb2.FetchResponse()])
        except StopIteration as done:
            response: FetchResponse = done.value
        self.session, self.epoch = response.session_id, self.epoch + 1
        return response.error_code

    @property
    def partitions(self) -> Mapping[tuple[str | bytes, int], object]:
        """The partitions of the session; empty without a session."""
        session = self.fetches.find(self.session)
        return {} if session is None else session.partitions


def test_a_new_session_is_not_made_further_than_there_is_room() -> None:
    drawn: list[int] = []

    def wanted() -> Iterator[tuple[str | bytes, int, WantedFetch]]:
        for number in range(1_000):
            drawn.append(number)
            yield TOPIC, number, WantedFetch(0, -1, 1_000)

    space = FetchSessionSpace(MOST)
    assert ConnectionFetches(space).begin(wanted(), by_id=False) is None
    assert (len(drawn), space.kept) == (MOST + 1, 0)


def test_a_session_takes_in_no_more_than_there_is_room_for_and_is_over() -> None:
    asking = Asking()
    assert asking.fetch([0, 1]) == KafkaError.NONE
    assert asking.session
    session = asking.fetches.find(asking.session)
    assert session is not None
    assert asking.fetch(range(1_000)) == KafkaError.FETCH_SESSION_ID_NOT_FOUND
    assert (len(session.partitions), asking.space.kept) == (MOST, 0)
    assert asking.fetches.ended


def test_a_partition_that_is_named_twice_takes_the_room_of_one() -> None:
    asking = Asking()
    assert asking.fetch([0, 1, 2, 2, 0]) == KafkaError.NONE
    assert (len(asking.partitions), asking.space.kept) == (MOST, MOST)


@pytest.mark.parametrize(
    ("wanted", "forgotten", "left"),
    [([3, 4, 5], [0, 1, 2], [3, 4, 5]), ([3], [1, 1, 9], [0, 2, 3]), ([1, 3], [1], [0, 2, 3])],
)
def test_what_is_forgotten_makes_room_for_what_is_named_in_its_place(
    wanted: Sequence[int], forgotten: Sequence[int], left: Sequence[int]
) -> None:
    asking = Asking()
    assert asking.fetch([0, 1, 2]) == KafkaError.NONE
    assert asking.fetch(wanted, forgotten) == KafkaError.NONE
    assert sorted(number for _, number in asking.partitions) == left
    assert asking.space.kept == MOST
    assert sorted(asking.forgotten_at_node) == sorted({*forgotten} & {0, 1, 2})


def test_no_room_is_made_by_forgetting_what_the_session_does_not_have() -> None:
    asking = Asking()
    assert asking.fetch([0, 1, 2]) == KafkaError.NONE
    assert asking.fetch([3], [7, 8, 9]) == KafkaError.FETCH_SESSION_ID_NOT_FOUND
