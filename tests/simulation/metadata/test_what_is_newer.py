"""Versions by which clients find the newer of two answers, and changes that are repeated after a topic was replaced."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message
from quiet_cluster import TOPIC, Quiet

from quorumlog.v1 import admin_pb2, groups_pb2
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1.errors_pb2 import ErrorCode


class Asked(Quiet):
    """A quiet cluster, and a client that sends its nodes requests."""

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


@pytest.mark.parametrize("node", [1, 2, 3])
def test_a_deletion_that_comes_again_does_not_hit_the_next_topic_through_any_node(node: int) -> None:
    quiet = Asked(3)
    topic_id = quiet.describe(node).topics[0].topic_id
    deletion = admin_pb2.DeleteTopicsRequest(names=[TOPIC], topic_ids=[topic_id], timeout_ms=5_000)
    for codes in ([ErrorCode.NONE], [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]):
        answer = quiet.ask(node, deletion)
        assert isinstance(answer, admin_pb2.DeleteTopicsResponse)
        assert [result.error.code for result in answer.results] == codes
        if codes == [ErrorCode.NONE]:
            quiet.create(TOPIC, node=node)
    assert quiet.describe(node).topics[0].topic_id not in (b"", topic_id)
    # Who sends the name only means the one that there is now.
    by_name = quiet.ask(node, admin_pb2.DeleteTopicsRequest(names=[TOPIC], timeout_ms=5_000))
    assert not by_name.results[0].HasField("error"), by_name  # type: ignore[attr-defined]


def test_an_election_that_is_asked_for_a_deleted_topic_is_none_of_the_next_one() -> None:
    quiet = Asked(4)
    wanted = admin_pb2.PartitionName(topic=TOPIC, topic_id=b"o" * 16)
    refused = quiet.ask(2, admin_pb2.ElectLeadersRequest(partitions=[wanted], timeout_ms=1_000))
    wanted.topic_id = quiet.describe(2).topics[0].topic_id
    taken = quiet.ask(2, admin_pb2.ElectLeadersRequest(partitions=[wanted], timeout_ms=1_000))
    codes = [answer.results[0].error.code for answer in (refused, taken)]  # type: ignore[attr-defined]
    assert codes[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes[1] in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)


def test_producers_are_listed_by_name() -> None:
    quiet = Asked(5)
    for name in ("b", "a", "c"):
        quiet.ask(1, pb.InitProducerIdRequest(name=name, epoch=3, timeout_ms=2_000))
    listed = quiet.ask(3, admin_pb2.ListProducersRequest(names=["c", "x", "a"], timeout_ms=2_000))
    assert isinstance(listed, admin_pb2.ListProducersResponse)
    assert [(each.name, each.producer_epoch) for each in listed.producers] == [("a", 3), ("c", 3)]
    refused = quiet.ask(3, admin_pb2.ListProducersRequest(names=["c"] * 1_001, timeout_ms=2_000))
    assert isinstance(refused, admin_pb2.ListProducersResponse)
    assert refused.error.code == ErrorCode.INVALID_REQUEST
