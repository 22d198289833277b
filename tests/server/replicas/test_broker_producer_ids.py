"""Producer ids that a broker waits for: each waiter has its own deadline, regardless of earlier ones."""

from quorumlog.raft.types import NO_NODE
from quorumlog.server.config.options import NodeOptions
from quorumlog.server.metadata.controller_client import ControllerClient
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.replicas.broker import Broker
from quorumlog.v1 import peer_pb2

SECOND = 1_000_000


class NoController:
    def controller_id(self) -> int:
        return NO_NODE

    def send(self, target: int, request: peer_pb2.ControllerRequest) -> bool:
        return False


class NoPartitions:
    def unreported(self) -> list[peer_pb2.LeaderReport]:
        return []

    def isr_changes(self, now: int) -> list[peer_pb2.IsrChange]:
        return []


class Metadata:
    image = MetadataImage()


def unregistered_broker() -> Broker:
    client = ControllerClient(NoController(), 10, first_id=0)
    return Broker(NodeOptions(1, "127.0.0.1:1", {1: "127.0.0.1:1"}), "directory", 1, client, NoPartitions(), Metadata())


def test_who_waits_for_less_time_is_answered_before_who_asked_earlier() -> None:
    broker = unregistered_broker()
    answered: list[tuple[str, int | None]] = []
    broker.producer_id(0, 30 * SECOND, lambda given: answered.append(("patient", given)))
    broker.producer_id(0, 1 * SECOND, lambda given: answered.append(("hurried", given)))
    now = 0
    while now < 40 * SECOND and len(answered) < 2:
        now = max(now + 1, broker.next_deadline)
        broker.on_time(now, 0)
        if now < 30 * SECOND:
            assert answered in ([], [("hurried", None)])
            assert answered or now < 2 * SECOND
    assert answered == [("hurried", None), ("patient", None)]
