"""The simulation's producer keeps the history honest: what may have happened is never recorded as a failure."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from google.protobuf.message import Message as ProtoMessage

from quorumlog.chaos.checkers.history import History, OperationOutcome
from quorumlog.simulator.world.clients import Answer, PartitionName, SimProducer, SimProducerOptions
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1.errors_pb2 import Error, ErrorCode

SECOND = 1_000_000


class ScriptedNode:
    """A node that answers produce requests from a script: None is silence, otherwise the code of a definite refusal."""

    node_ids = (1,)

    def __init__(self, scheduler: Scheduler, *script: int | None) -> None:
        self._scheduler = scheduler
        self._script = list(script)
        self.attempts = 0

    def request(
        self,
        client: str,
        node: int,
        message: ProtoMessage,
        answered: Answer,
        served: Callable[[ProtoMessage], None] | None = None,
    ) -> None:
        answer = self._answer(message)
        if answer is not None:
            self._scheduler.after(1_000, lambda: answered(answer))

    def _answer(self, message: ProtoMessage) -> ProtoMessage | None:
        if isinstance(message, pb.MetadataRequest):
            metadata = pb.MetadataResponse()
            topic = metadata.topics.add(name="t", topic_id=b"t" * 16)
            topic.partitions.add(partition=0, group_id=1_000, leader=1, leader_epoch=1, replicas=[1])
            return metadata
        if isinstance(message, pb.InitProducerIdRequest):
            return pb.InitProducerIdResponse(producer_id=7, producer_epoch=0)
        self.attempts += 1
        code = self._script.pop(0) if self._script else ErrorCode.INVALID_TIMESTAMP
        if code is None:
            return None
        produced = pb.ProduceResponse()
        produced.results.add().error.CopyFrom(Error(code=code, definite=True, retriable=False))  # type: ignore[arg-type]
        return produced

    def batch_acknowledged(self, *_: object) -> None:
        raise AssertionError("nothing was acknowledged")

    def batch_refused(self, *_: object) -> None:
        """Accepts every refusal."""


@pytest.mark.scenario("26")
@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        ([None, ErrorCode.INVALID_TIMESTAMP], OperationOutcome.INFO),
        ([ErrorCode.INVALID_TIMESTAMP], OperationOutcome.FAIL),
    ],
    ids=["silence, then a definite refusal", "a definite refusal of the only attempt"],
)
def test_a_refusal_is_believed_only_when_no_earlier_attempt_may_take_effect(
    script: list[int | None], outcome: OperationOutcome
) -> None:
    scheduler, history = Scheduler(1), History()
    node = ScriptedNode(scheduler, *script)
    options = SimProducerOptions(max_in_flight=1, request_timeout_us=100_000, records=(1, 1))
    SimProducer("writer", [PartitionName("t", 0)], node, scheduler, options, history, node)  # type: ignore[arg-type]
    scheduler.run(20 * SECOND, lambda: len(history) > 0)
    (send,) = history.sends()
    assert send.outcome is outcome
    assert node.attempts == len(script)
