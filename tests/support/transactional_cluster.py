"""A quiet simulated cluster, and a client that runs transactions in it."""

from __future__ import annotations

from google.protobuf.message import Message
from quiet_cluster import SECOND, TOPIC, Quiet

from quorumlog.server.config.options import ConsumerGroupOptions
from quorumlog.server.deciding.transaction_participants import Identity
from quorumlog.server.requests.error_responses import FAILED_RESPONSES
from quorumlog.server.step.wire_errors import error
from quorumlog.server.transactions.transaction_shard import TransactionShard
from quorumlog.simulator.world.clients import Unanswered
from quorumlog.v1 import errors_pb2, groups_pb2, transactions_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

NAME = "billing"
PARTITIONS = 4


class TransactionalCluster(Quiet):
    """Nodes, and a client that retries what is retriable."""

    def __init__(self, seed: int, nodes: int = 3, coordinators: int = 1, checkpoint_entries: int = 5_000) -> None:
        super().__init__(
            seed,
            PARTITIONS,
            nodes=nodes,
            groups=ConsumerGroupOptions(coordinators=coordinators, checkpoint_entries=checkpoint_entries),
        )

    def ask(self, node: int, request: Message, seconds: float = 8) -> Message:
        """A node's answer to a request."""
        answers: list[object] = []
        self.cluster.request("client", node, request, answers.append)
        self.until(lambda: bool(answers), seconds)
        if isinstance(answers[0], Unanswered):
            return FAILED_RESPONSES[type(request)](request, error(ErrorCode.REQUEST_TIMED_OUT, "lost"))  # type: ignore[return-value]
        assert isinstance(answers[0], Message)
        return answers[0]

    @property
    def running(self) -> list[int]:
        return [node for node, process in self.cluster.processes.items() if process.running and not process.paused]

    def coordinator(self, seconds: float = 10) -> int:
        """The node that leads the coordinator, as soon as one that runs says so."""
        end = self.scheduler.now + int(seconds * SECOND)
        request = groups_pb2.FindCoordinatorsRequest(group_ids=[NAME], type=groups_pb2.COORDINATOR_TYPE_TRANSACTION)
        while True:
            found = self.ask(self.running[0], request)
            assert isinstance(found, groups_pb2.FindCoordinatorsResponse)
            if found.coordinators and found.coordinators[0].node_id in self.running:
                return found.coordinators[0].node_id
            assert self.scheduler.now < end, found
            self.run(0.05)

    def call(self, request: Message) -> Message:
        """The answer of the coordinator. An error that is retriable is retried, as clients do."""
        for _ in range(200):
            answer = self.ask(self.coordinator(), request)
            if not answer.error.retriable:  # type: ignore[attr-defined]
                return answer
            self.run(0.05)
        raise AssertionError(f"no definite answer: {answer}")

    def init(self, timeout_ms: int = 60_000) -> Identity:
        answer = self.call(
            transactions_pb2.InitTransactionsRequest(transactional_id=NAME, transaction_timeout_ms=timeout_ms)
        )
        assert isinstance(answer, transactions_pb2.InitTransactionsResponse) and not answer.HasField("error"), answer
        return Identity(answer.identity.producer_id, answer.identity.producer_epoch)

    def add(self, of: Identity, *numbers: int) -> errors_pb2.Error:
        request = transactions_pb2.AddToTransactionRequest(transactional_id=NAME)
        request.identity.producer_id, request.identity.producer_epoch = of
        for number in numbers:
            request.participants.add(topic_id=self.topic_id(), partition=number)
        return self.call(request).error  # type: ignore[attr-defined, no-any-return]

    def end(self, of: Identity, *, commit: bool = True) -> transactions_pb2.EndTransactionResponse:
        request = transactions_pb2.EndTransactionRequest(transactional_id=NAME, commit=commit, raises_epoch=True)
        request.identity.producer_id, request.identity.producer_epoch = of
        answer = self.call(request)
        assert isinstance(answer, transactions_pb2.EndTransactionResponse)
        return answer

    def topic_id(self) -> bytes:
        image = next(process.image for process in self.cluster.processes.values() if process.image is not None)
        return image.topics[TOPIC].topic_id

    def shards(self) -> list[TransactionShard]:
        """The replicas of coordinators on the nodes that run."""
        return [
            replica.machine
            for process in self.cluster.processes.values()
            for replica in process.replicas.values()
            if isinstance(replica.machine, TransactionShard)
        ]
