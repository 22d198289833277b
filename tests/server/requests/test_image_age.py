"""Upper bound on the age of a metadata image: unknown until the controller has confirmed an index."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from quorumlog.server.config.options import NodeOptions
from quorumlog.server.requests.error_responses import not_formed_response
from quorumlog.server.requests.metadata_staleness import UNKNOWN_AGE_MS, ImageAge
from quorumlog.v1 import data_plane_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import Error, ErrorCode

SECOND = 1_000_000
OPTIONS = NodeOptions(node_id=2, address="b:1", controllers={1: "a:1"})


class Asked:
    """An image age, the image that it measures, and the requests that it sends."""

    def __init__(self) -> None:
        self.image = SimpleNamespace(applied_index=7)
        self.answers: list[Callable[[peer_pb2.ControllerResponse | None], None]] = []
        self.requests: list[peer_pb2.ControllerRequest] = []
        self.age = ImageAge(OPTIONS, SimpleNamespace(image=self.image), self, 0)

    def ask(
        self,
        deadline: int,
        request: peer_pb2.ControllerRequest,
        on_answer: Callable[[peer_pb2.ControllerResponse | None], None],
    ) -> None:
        self.requests.append(request)
        self.answers.append(on_answer)

    def confirm(self, index: int) -> None:
        confirmed = peer_pb2.MetadataReadIndexResponse(index=index)
        self.answers.pop()(peer_pb2.ControllerResponse(metadata_read_index=confirmed))


def test_the_age_counts_from_when_the_question_was_sent() -> None:
    requests = Asked()
    requests.age.on_time(1 * SECOND, 0)
    requests.confirm(7)
    assert requests.age.bound_ms(3 * SECOND) == 2_000
    assert requests.age.bound_ms(3 * SECOND + 1) == 2_001, "a bound is rounded up"


def test_nothing_is_known_at_the_start_nor_without_a_controller() -> None:
    requests = Asked()
    assert requests.age.bound_ms(5 * SECOND) == UNKNOWN_AGE_MS
    requests.age.on_time(5 * SECOND, 0)
    requests.answers.pop()(None)
    assert requests.age.bound_ms(6 * SECOND) == UNKNOWN_AGE_MS
    retry = requests.age.next_deadline
    assert retry is not None and retry > 5 * SECOND
    requests.age.on_time(retry, 0)
    requests.answers.pop()(peer_pb2.ControllerResponse(error=Error(code=ErrorCode.NOT_CONTROLLER)))
    assert requests.age.bound_ms(6 * SECOND) == UNKNOWN_AGE_MS


def test_a_confirmation_counts_once_the_image_has_applied_as_much() -> None:
    requests = Asked()
    requests.age.on_time(1 * SECOND, 0)
    requests.confirm(9)
    for requests.image.applied_index in (7, 8):
        requests.age.after_round()
        assert requests.age.bound_ms(2 * SECOND) == UNKNOWN_AGE_MS
        assert requests.age.next_deadline is None, "another question now would delay the answer to this one"
    requests.image.applied_index = 9
    requests.age.after_round()
    assert requests.age.bound_ms(4 * SECOND) == 3_000


def test_it_asks_again_at_intervals_and_lets_usual_heartbeats_confirm() -> None:
    requests = Asked()
    for number in range(1, 4):
        due = requests.age.next_deadline
        assert due is not None
        requests.age.on_time(due, 0)
        requests.age.on_time(due, 0)
        assert len(requests.requests) == number
        assert requests.requests[-1].metadata_read_index.unhurried
        requests.confirm(7)
        assert requests.age.next_deadline == due + 5 * OPTIONS.heartbeat_interval_us


def test_a_node_without_a_cluster_knows_of_no_bound() -> None:
    response = not_formed_response(data_plane_pb2.MetadataRequest(all_topics=True), "it waits")
    assert isinstance(response, data_plane_pb2.MetadataResponse)
    assert response.image_age_ms == UNKNOWN_AGE_MS
