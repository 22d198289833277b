"""What nodes tell clients to decide by which of two answers is newer: indexes, groups and registrations."""

from __future__ import annotations

from google.protobuf.message import Message
from quiet_cluster import TOPIC, Quiet

from quorumlog.v1 import admin_pb2, groups_pb2
from quorumlog.v1 import data_plane_pb2 as pb


class Asked(Quiet):
    """A quiet cluster, and somebody who asks its nodes."""

    def ask(self, node: int, request: Message) -> Message:
        answers: list[object] = []
        self.cluster.request("client", node, request, answers.append)
        self.until(lambda: bool(answers), 6)
        assert isinstance(answers[0], Message), answers
        return answers[0]

    def describe(self, node: int) -> pb.MetadataResponse:
        answer = self.ask(node, pb.MetadataRequest(all_topics=True))
        assert isinstance(answer, pb.MetadataResponse)
        return answer


def test_an_answer_tells_the_index_of_its_image_and_when_a_topic_was_created() -> None:
    quiet = Asked(1, partitions=2)
    first = quiet.describe(1)
    image = quiet.cluster.processes[1].image
    assert image is not None
    assert first.applied_index == image.applied_index > 0
    deleted = quiet.ask(1, admin_pb2.DeleteTopicsRequest(names=[TOPIC], timeout_ms=5_000))
    assert not deleted.results[0].HasField("error"), deleted  # type: ignore[attr-defined]
    quiet.create(TOPIC)
    second = quiet.describe(1)
    assert second.applied_index > first.applied_index
    groups = [[p.group_id for p in answer.topics[0].partitions] for answer in (first, second)]
    assert groups[0][0] < groups[0][1] < groups[1][0]


def test_who_coordinates_is_told_with_the_registration_that_its_address_is_of() -> None:
    quiet = Asked(2)
    # The first who looks for a coordinator has them created; a moment later they have leaders.
    quiet.ask(1, groups_pb2.FindCoordinatorsRequest(all=True))
    quiet.run(2)
    found = quiet.ask(1, groups_pb2.FindCoordinatorsRequest(all=True))
    assert isinstance(found, groups_pb2.FindCoordinatorsResponse) and found.coordinators
    image = quiet.cluster.processes[1].image
    assert image is not None
    for each in found.coordinators:
        assert each.broker_epoch == image.brokers[each.node_id].epoch > 0
