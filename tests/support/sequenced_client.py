"""An idempotent producer in virtual time that says itself where, when and how often each batch is sent."""

from __future__ import annotations

from quiet_cluster import TOPIC, Quiet

from quorumlog.raft.types import EntryKind, TimeoutNow
from quorumlog.server.step.events import FrameReceived, PeerFrame, Stream
from quorumlog.simulator.models.records import values_of
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import Attributes, Codec, build_batch


class SequencedClient:
    """A producer of single records, with a name or without.

    Arguments:
        name, epoch: of a named identity; with an epoch that is given, the epoch is replayable.
    """

    def __init__(self, quiet: Quiet, name: str = "", epoch: int = -1, node: int = 1) -> None:
        self.quiet = quiet
        self.results: dict[str, list[pb.ProduceResult]] = {}
        #: Reports on the values that had to be traced, by value.
        self.traces: dict[str, pb.BatchTrace] = {}
        self.attributes = Attributes.REPLAYABLE if epoch >= 0 else Attributes.NONE
        image = quiet.cluster.processes[node].image
        assert image is not None
        self.topic_id = next(topic.topic_id for topic in image.topics.values() if topic.name == TOPIC)
        self.identity = self._identity(node, name, epoch, -1)
        if self.identity.producer_id < 0 and not self.identity.HasField("error"):
            self.identity = self._identity(node, name, epoch, self.identity.producer_epoch)

    def _identity(self, node: int, name: str, epoch: int, known_epoch: int) -> pb.InitProducerIdResponse:
        answers: list[object] = []
        request = pb.InitProducerIdRequest(timeout_ms=1_000, name=name, epoch=epoch, known_epoch=known_epoch)
        self.quiet.cluster.request("client", node, request, answers.append)
        self.quiet.until(lambda: bool(answers), 2)
        (answer,) = answers
        assert isinstance(answer, pb.InitProducerIdResponse)
        return answer

    def send(
        self, node: int, value: str, sequence: int, partition: int = 0, *, trace: bool = False, stream: int = 0
    ) -> None:
        """Sends a batch of one record; ``results`` gathers the answers, ``traces`` the reports."""
        request = self.request_of(value, sequence, partition)
        request.trace = trace

        def answered(answer: object) -> None:
            if isinstance(answer, pb.ProduceResponse):
                self.results.setdefault(value, []).append(answer.results[0])
                if answer.HasField("trace"):
                    self.traces[value] = answer.trace

        self.quiet.cluster.request("client", node, request, answered, stream=stream)

    def request_of(self, value: str, sequence: int, partition: int = 0) -> pb.ProduceRequest:
        """A request with a batch of one record."""
        batch = build_batch(
            value.encode().ljust(8, b"\0"),
            record_count=1,
            codec=Codec.NONE,
            base_timestamp_ms=1_700_000_000_000,
            max_timestamp_ms=1_700_000_000_000,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            base_sequence=sequence,
            attributes=self.attributes,
        )
        return pb.ProduceRequest(
            acks=-1,
            timeout_ms=2_000,
            batches=[pb.PartitionBatch(topic_id=self.topic_id, partition=partition, batch=batch)],
        )

    def sent(self, value: str, sequence: int, partition: int = 0) -> pb.ProduceResult:
        """Sends a batch to the partition's leader, until the node that leads it answers; returns the answer."""
        group = self.quiet.groups()[partition]
        for _ in range(20):
            self.quiet.until(lambda: self.quiet.led_by(group) is not None, 5)
            leader = self.quiet.led_by(group)
            assert leader is not None
            before = len(self.results.get(value, []))
            self.send(leader, value, sequence, partition)
            self.quiet.until(lambda before=before: len(self.results.get(value, [])) > before, 5)
            result = self.results[value][-1]
            if not result.error.retriable:
                return result
            self.quiet.run(0.2)
        raise AssertionError(f"no node accepts {value!r}: {result.error.message}")

    def acknowledged(self, value: str) -> list[int]:
        """Offsets at which the value was said to be."""
        return [r.base_offset for r in self.results.get(value, []) if r.error.code == ErrorCode.NONE]


def log_of(quiet: Quiet, group: int) -> list[str]:
    """The values in the leader's committed log, in order."""
    leader = quiet.led_by(group)
    assert leader is not None
    raft = quiet.replicas_of(group)[leader]
    entries = raft.entries_between(raft.first_index, raft.commit_index, 1 << 30)
    return [value for entry in entries if entry.kind is EntryKind.BATCH for value in values_of(entry.data)]


def tables_of(quiet: Quiet, group: int) -> list[dict[bytes, bytes]]:
    """Returns the rows of each replica's producer table."""
    machines = [process.replicas[group].machine for process in quiet.cluster.processes.values()]
    return [machine.producers.rows() for machine in machines]  # type: ignore[attr-defined]


def make_leader(quiet: Quiet, group: int, node: int) -> None:
    """Hands a group's leadership to a node, as often as it takes: its links may only just be opening again."""
    raft = quiet.replicas_of(group)[node]
    for _ in range(10):
        leader = quiet.led_by(group)
        if leader == node and raft.leads_committed:
            return
        if leader is not None and leader != node:
            transfer = TimeoutNow(leader, node, raft.term)
            quiet.cluster.deliver(node, FrameReceived(leader, PeerFrame(Stream.CONTROL, messages=[(group, transfer)])))
        quiet.run(0.5)
    raise AssertionError(f"node {node} does not come to lead group {group}")
