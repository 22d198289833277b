"""A node that receives a change by name resolves the name once, and sends the result to the controller."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from rights import refusals_by

from quorumlog.server.metadata.controller_client import ControllerClient
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import NO_TOPIC_ID
from quorumlog.server.requests.linearizable_reads import OnRead
from quorumlog.server.requests.topics import TopicChange, TopicRequests
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import StepTime
from quorumlog.server.step.replies import Replies
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import admin_pb2, metadata_log_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.request_limits import MAX_CHANGE_TARGETS

ID = b"t" * 16


@dataclass
class Controller:
    """The way to a controller that only listens, and the reads that wait for its word."""

    sent: list[peer_pb2.ControllerRequest] = field(default_factory=list)
    reads: list[OnRead] = field(default_factory=list)

    def controller_id(self) -> int:
        return 1

    def send(self, target: int, request: peer_pb2.ControllerRequest) -> bool:
        self.sent.append(request)
        return True

    def read(self, now: int, timeout_ms: int, done: OnRead) -> None:
        self.reads.append(done)


class AskedNode:
    """One node that receives changes."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.controller = Controller()
        self.replies = Replies()
        client = ControllerClient(self.controller, 100, first_id=0)
        self.requests = TopicRequests(
            self,
            client,
            self.controller,  # type: ignore[arg-type]
            100,
            self.replies,
            refusals_by(self.image),
        )

    def create(self, name: str = "t", topic_id: bytes = ID) -> None:
        body = metadata_log_pb2.CreateTopic(
            name=name, topic_id=topic_id, partitions=[metadata_log_pb2.ReplicaSet(replicas=[1])]
        )
        self.image.apply(self.image.applied_index + 1, metadata_log_pb2.MetadataCommand(create_topic=body))

    def ask(self, request: TopicChange) -> None:
        self.requests.change(StepTime(0, 0), ClientRequest(7, request), request)


@pytest.fixture
def node() -> AskedNode:
    return AskedNode()


def named(name: str, topic_id: bytes = b"") -> list[TopicChange]:
    """Returns one request of each kind that names one topic."""
    request = admin_pb2.Reassignment(topic=name, topic_id=topic_id)
    return [
        admin_pb2.DeleteTopicsRequest(names=[name], topic_ids=[topic_id] if topic_id else []),
        admin_pb2.CreatePartitionsRequest(topics=[admin_pb2.NewPartitions(name=name, topic_id=topic_id)]),
        admin_pb2.AlterConfigsRequest(topics=[admin_pb2.AlterTopicConfig(name=name, topic_id=topic_id)]),
        admin_pb2.ReassignPartitionsRequest(reassignments=[request]),
    ]


def ids_sent(controller: Controller) -> list[bytes]:
    """Returns the ids that were sent to the controller, in order."""
    found: list[bytes] = []
    for request in controller.sent:
        found += request.delete_topics.topic_ids
        found += [topic.topic_id for topic in request.create_partitions.topics]
        found += [topic.topic_id for topic in request.alter_configs.topics]
        found += [wanted.topic_id for wanted in request.reassign_partitions.reassignments]
    return found


def test_names_go_to_the_controller_with_the_ids_that_they_have_when_asked(node: AskedNode) -> None:
    for request in named("t"):
        node.ask(request)
    assert not node.controller.sent, "this node may be behind: the controller first reports its index"
    node.create()
    for read in node.controller.reads:
        read(None)
    assert ids_sent(node.controller) == [ID] * 4


def test_a_name_that_nothing_has_means_nothing_that_comes_later(node: AskedNode) -> None:
    for request in named("t"):
        node.ask(request)
    for read in node.controller.reads:
        read(None)
    assert ids_sent(node.controller) == [NO_TOPIC_ID] * 4


def test_ids_that_clients_send_are_not_looked_up(node: AskedNode) -> None:
    node.create(topic_id=b"n" * 16)
    for request in named("t", ID):
        node.ask(request)
    assert not node.controller.reads
    assert ids_sent(node.controller) == [ID] * 4


def test_producer_names_go_to_the_controller_with_their_claims(node: AskedNode) -> None:
    claim = peer_pb2.ClaimProducer(name="etl", epoch=5)
    node.image.apply(1, metadata_log_pb2.MetadataCommand(claim_producer=claim))
    node.ask(admin_pb2.DeleteProducersRequest(names=["etl", "none"]))
    node.controller.reads.pop()(None)
    (sent,) = node.controller.sent
    claims = [(each.producer_id, each.producer_epoch) for each in sent.delete_producers.claims]
    assert claims == [(node.image.named_producers.claim_of("etl").producer_id, 5), (-1, -1)]
    node.ask(sent.delete_producers)
    assert not node.controller.reads, "a client has sent them itself"


def test_who_sent_a_request_keeps_it_as_it_was(node: AskedNode) -> None:
    node.create()
    request = admin_pb2.DeleteTopicsRequest(names=["t"])
    node.ask(request)
    node.controller.reads.pop()(None)
    assert request == admin_pb2.DeleteTopicsRequest(names=["t"])


def test_without_a_controller_nothing_is_asked_for(node: AskedNode) -> None:
    node.ask(admin_pb2.DeleteTopicsRequest(names=["t"]))
    node.controller.reads.pop()(error(ErrorCode.REQUEST_TIMED_OUT, "no controller"))
    (reply,) = node.replies.take_gathered()
    assert isinstance(reply.message, admin_pb2.DeleteTopicsResponse)
    assert reply.message.results[0].error.definite
    assert not node.controller.sent


@pytest.mark.parametrize(
    ("request_", "line"),
    [
        (admin_pb2.DeleteTopicsRequest(names=["a", "b"], topic_ids=[ID]), "2 names come with 1 ids"),
        (admin_pb2.DeleteTopicsRequest(names=["a"], topic_ids=[b"short"]), "a topic id is not 16 bytes long"),
        (admin_pb2.AlterConfigsRequest(topics=[admin_pb2.AlterTopicConfig(topic_id=b"x" * 17)]), "not 16 bytes long"),
        (admin_pb2.DeleteProducersRequest(names=["a"], claims=[admin_pb2.ProducerClaim()] * 2), "1 names come with 2"),
        (
            admin_pb2.DeleteTopicsRequest(names=["a"] * (MAX_CHANGE_TARGETS + 1)),
            f"at most {MAX_CHANGE_TARGETS} are allowed",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(node: AskedNode, request_: TopicChange, line: str) -> None:
    node.ask(request_)
    (reply,) = node.replies.take_gathered()
    results = reply.message.results  # type: ignore[attr-defined]  # all of them have it
    assert line in results[0].error.message
    assert not node.controller.sent and not node.controller.reads
