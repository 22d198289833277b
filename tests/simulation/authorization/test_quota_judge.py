"""The judge of quotas notices what passes beyond them, and users that wait without one."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message as ProtoMessage
from limited import limit

from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.step.events import ClientRequest, Effects, Event, Reply
from quorumlog.server.step.request_context import RequestContext
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.world.quota_judge import QuotaJudge
from quorumlog.v1 import data_plane_pb2 as pb

SECOND = 1_000_000
ALICE, BOB = "User:alice", "User:bob"


class Watched:
    """A node whose steps the test makes up."""

    def __init__(self) -> None:
        self.judge = QuotaJudge(clock_error=0.0)
        self.image = MetadataImage()
        self.now = 0
        self._number = 0
        for _ in range(5):
            self.step()

    def step(self, *events: Event, replies: tuple[Reply, ...] = ()) -> None:
        self.now += 1_000
        self.judge.stepped(1, 1, self.now, self.image, list(events), Effects(replies=list(replies)))

    def ask(self, message: ProtoMessage, who: str = ALICE) -> int:
        self._number += 1
        self.step(ClientRequest(self._number, message, client=RequestContext(principal=who)))
        return self._number

    def write(self, size_bytes: int, who: str = ALICE, times: int = 1) -> None:
        """Produces that the node serves in its next step each."""
        for _ in range(times):
            number = self.ask(pb.ProduceRequest(batches=[pb.PartitionBatch(batch=b"x" * size_bytes)]), who)
            self.step(replies=(Reply(number, pb.ProduceResponse(results=[pb.ProduceResult(base_offset=1)])),))

    def read(self, size_bytes: int, times: int = 1) -> None:
        for _ in range(times):
            number = self.ask(pb.FetchRequest())
            result = pb.FetchResult(entries=[b"x" * size_bytes])
            self.step(replies=(Reply(number, pb.FetchResponse(results=[result])),))

    def look(self, times: int) -> None:
        for _ in range(times):
            number = self.ask(pb.MetadataRequest())
            self.step(replies=(Reply(number, pb.MetadataResponse()),))


@pytest.mark.parametrize("who", [ALICE, "User:*"])
def test_what_is_written_beyond_a_quota_is_noticed_whosoever_it_is(who: str) -> None:
    node = Watched()
    limit(node.image, who, producer_byte_rate=2_000)
    node.step()
    node.write(50_000)
    with pytest.raises(Violation, match="lets User:alice do 54000 by producer_byte_rate = 2000"):
        node.write(2_000, times=20)


def test_a_burst_a_debt_and_what_time_gives_are_allowed() -> None:
    node = Watched()
    limit(node.image, ALICE, producer_byte_rate=2_000)
    node.step()
    for _ in range(10):
        node.write(20_000)
        node.write(20_000, BOB)
        node.now += 10 * SECOND
    assert node.judge.judged["producer_byte_rate"] == 10


def test_what_is_read_and_asked_beyond_a_quota_is_noticed() -> None:
    node = Watched()
    limit(node.image, ALICE, consumer_byte_rate=2_000)
    node.step()
    with pytest.raises(Violation, match="by consumer_byte_rate = 2000"):
        node.read(2_000, times=20)
    node = Watched()
    limit(node.image, ALICE, request_rate=3)
    node.step()
    with pytest.raises(Violation, match="by request_rate = 3"):
        node.look(times=20)


def test_a_quota_that_is_gone_allows_everything_and_one_that_came_later_does_not_count_for_what_was_there() -> None:
    node = Watched()
    early = node.ask(pb.FetchRequest())
    limit(node.image, ALICE, consumer_byte_rate=2_000)
    node.step()
    node.step(replies=(Reply(early, pb.FetchResponse(results=[pb.FetchResult(entries=[b"x" * 100_000])])),))
    node.read(5_000)
    limit(node.image, ALICE, consumer_byte_rate=None)
    node.step()
    node.read(5_000, times=20)


def test_who_has_no_quota_and_waits_is_noticed() -> None:
    node = Watched()
    limit(node.image, ALICE, request_rate=3)
    for _ in range(5):
        node.step()
    node.ask(pb.MetadataRequest(), ALICE)
    with pytest.raises(Violation, match="delays User:bob"):
        node.ask(pb.MetadataRequest(), BOB)
