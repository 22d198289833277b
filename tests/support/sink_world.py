"""A cluster in memory, as Spark's sink sees one: names and partitions, without nodes, threads or a session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import SimpleNamespace, TracebackType
from typing import Any

import pyarrow as pa
import pytest

from quorumlog.sdk.errors import DuplicateSequenceMismatchError, InvalidProducerEpochError, error_from_proto
from quorumlog.sdk.spark import prior_attempts as earlier_runs
from quorumlog.sdk.spark import sink
from quorumlog.sdk.spark import write_attempt as runs
from quorumlog.sdk.spark.planning import Bounds, OffsetRange, Partition, TopicShape
from quorumlog.sdk.spark.rows import StoredRows
from quorumlog.sdk.spark.write_options import WriteOptions
from quorumlog.server.metadata.producer_names import NamedProducers
from quorumlog.v1 import admin_pb2, metadata_log_pb2, peer_pb2
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import FIRST_NAMED_PRODUCER_ID


class SinkWorld:
    """Topics of two partitions, and the producer names that were claimed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, topics: Sequence[str] = ("t",)) -> None:
        self.names = NamedProducers()
        self.shapes = {topic: TopicShape(topic.encode() * 16, 2) for topic in topics}
        self.logs: dict[tuple[str, int], list[StoredRows]] = {(topic, n): [] for topic in topics for n in range(2)}
        self.log_starts: dict[tuple[str, int], int] = dict.fromkeys(self.logs, 0)
        #: How many rows each reading back went through.
        self.read_rows = 0
        self.page_size = 1_000
        #: Producers whose names were deleted, as far as the partitions' leaders have applied that.
        self.deleted = set[int]()
        #: Called before each call to the cluster, by the caller that makes it.
        self.before_call: Callable[[], None] = lambda: None
        monkeypatch.setattr(runs, "_ask", self._claim)
        monkeypatch.setattr(runs, "_listed", self._list)
        monkeypatch.setattr(runs, "_delete", self._delete)
        monkeypatch.setattr(sink, "_LOOK_AGAIN_S", 0)
        # The sink itself only asks them to apply what was done.
        monkeypatch.setattr(sink, "nodes_at", lambda servers: SimpleNamespace(wait_until_heard=self.hear))
        monkeypatch.setattr(sink, "_producer", self._producer)
        monkeypatch.setattr(sink, "ClusterCatalog", lambda servers, *, newest, isolation_level="": self)
        monkeypatch.setattr(earlier_runs, "ClusterCatalog", lambda servers, *, newest, isolation_level="": self)
        monkeypatch.setattr(earlier_runs, "stored_rows", self._stored_rows)

    def values(self) -> Counter[bytes]:
        """Returns the values in all logs, with their counts."""
        return Counter(
            value for log in self.logs.values() for rows in log for value in rows.columns.column("value").to_pylist()
        )

    def topic_names(self) -> list[str]:
        """All topics."""
        return list(self.shapes)

    def describe(self, topics: Sequence[str]) -> dict[str, TopicShape]:
        """The topics that exist."""
        return {topic: self.shapes[topic] for topic in topics if topic in self.shapes}

    def bounds(self, shapes: Mapping[str, TopicShape], partitions: Sequence[Partition]) -> dict[Any, Bounds]:
        """Log starts and ends."""
        self.before_call()
        return {each: Bounds(self.log_starts[(*each,)], self._end((*each,))) for each in partitions}

    def _end(self, place: tuple[str, int]) -> int:
        return sum(rows.columns.num_rows for rows in self.logs[place])

    def _stored_rows(
        self, servers: str, wanted: OffsetRange, fail_on_data_loss: bool, *, skip_unreadable: bool, isolation_level: str
    ) -> Iterator[StoredRows]:
        for rows in self.logs[wanted.topic, wanted.partition]:
            if wanted.start <= rows.offset < wanted.end:
                self.read_rows += rows.columns.num_rows
                yield rows

    def _claim(self, nodes: object, request: pb.InitProducerIdRequest) -> pb.InitProducerIdResponse:
        self.before_call()
        claim = peer_pb2.ClaimProducer(name=request.name, epoch=request.epoch, note=request.note)
        answer = self.names.claim(claim, 0)
        claimed = answer.producer_claimed
        if answer.HasField("error"):
            raise error_from_proto(answer.error)
        return pb.InitProducerIdResponse(
            producer_id=claimed.producer_id, producer_epoch=claimed.producer_epoch, note=claimed.note
        )

    def _list(self, nodes: object, request: admin_pb2.ListProducersRequest) -> admin_pb2.ListProducersResponse:
        self.before_call()
        page = self.names.page(request.prefix, request.after, self.page_size + 1)
        found = self.names.listed(request.names) if request.names else page
        response = admin_pb2.ListProducersResponse(more=len(found) > self.page_size)
        for each in found[: self.page_size]:
            response.producers.add(
                name=each.name,
                producer_id=each.producer_id,
                producer_epoch=each.epoch,
                note=each.note if request.notes else b"",
            )
        return response

    def hear(self, topics: Iterable[str]) -> None:
        """All leaders apply what was done."""
        self.before_call()
        self.deleted = set(filter(self.names.is_deleted, range(FIRST_NAMED_PRODUCER_ID, self.names.next_id)))

    def _delete(self, nodes: object, names: Sequence[str], claims: Sequence[admin_pb2.ProducerClaim]) -> None:
        self.before_call()
        deletion = metadata_log_pb2.DeleteProducers(names=names, claims=claims)
        results = self.names.delete(1, deletion).delete_producers.results
        for each in results:
            if each.HasField("error") and each.error.code != ErrorCode.PRODUCER_NAME_NOT_FOUND:
                raise error_from_proto(each.error)

    def _producer(
        self,
        options: WriteOptions,
        name: runs.Name | None = None,
        run: runs.WriteRun | None = None,
        stored: Mapping[tuple[str, int], int] | None = None,
    ) -> InMemoryProducer:
        assert name is not None and run is not None
        return InMemoryProducer(self, run.producer_id, name.epoch, dict(stored or {}))


class InMemoryProducer:
    """Takes batches as a partition's leader does those of a replayable epoch."""

    def __init__(self, world: SinkWorld, producer_id: int, epoch: int, counts: dict[tuple[str, int], int]) -> None:
        self._world, self._identity, self._counts = world, (producer_id, epoch), counts

    def __enter__(self) -> InMemoryProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def flush(self) -> None:
        """Everything is sent at once."""

    def end_epoch(self) -> None:
        """Nothing reads this."""

    def send_arrow(self, topic: str, batch: pa.RecordBatch, *, partition: int) -> Future[None]:
        """Appends it, recognises it as a duplicate, or refuses it."""
        self._world.before_call()
        place, sent = (topic, partition), Future[None]()
        log, sequence = self._world.logs[place], self._counts.get(place, 0)
        mine = [rows for rows in log if (rows.producer_id, rows.producer_epoch) == self._identity]
        end = mine[-1].sequence + mine[-1].columns.num_rows if mine else 0
        self._counts[place] = sequence + batch.num_rows
        producer_id, epoch = self._identity
        if producer_id in self._world.deleted or epoch < self._world.names.epoch_of(producer_id):
            sent.set_exception(InvalidProducerEpochError("fenced"))
        elif sequence == end:
            offset = log[-1].end if log else 0
            log.append(StoredRows(offset, 0, None, batch, None, 0, *self._identity, sequence))
            sent.set_result(None)
        elif any(rows.sequence == sequence and rows.columns.equals(batch) for rows in mine):
            sent.set_result(None)
        else:
            sent.set_exception(DuplicateSequenceMismatchError("other records are there"))
        return sent
