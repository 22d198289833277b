"""A Spark task's requests to a cluster: the stored batches of one partition."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from queue import SimpleQueue

import grpc
import pyarrow as pa
import pyarrow.compute as pc

from quorumlog.sdk.errors import (
    LeaderNotAvailableError,
    OffsetOutOfRangeError,
    QuorumlogError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
    UnreadableBatchError,
    error_from_proto,
)
from quorumlog.sdk.failed_calls import error_from_rpc
from quorumlog.sdk.records.fetch_answer import FetchAnswer
from quorumlog.sdk.records.record_batch import DecodedRun, UnreadableBatch, decode_runs
from quorumlog.sdk.spark.errors import DataLossError
from quorumlog.sdk.spark.nodes import Nodes, Patience, lagging_is_retriable, nodes_at
from quorumlog.sdk.spark.planning import OffsetRange
from quorumlog.sdk.spark.ranges import missing
from quorumlog.sdk.spark.rows import StoredRows
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.wire.entry import TimestampType, parse_header
from quorumlog.wire.payload import LOG_SCHEMA, OFFSET_DELTA, has_gaps

#: Size of one response: large enough to amortize the call, small enough that the next one arrives while Spark processes
#: this one. Whole queries were a third faster with 2 MiB than with 8 MiB.
_FETCH_BYTES = 2 << 20
_FETCH_WAIT_MS = 500
#: Lifetime of one stream, and so the time until a hanging leader is left while gRPC's own threads in it still answer
#: pings. A third of the time limit without progress.
_STREAM_S = 10.0

_log = logging.getLogger("quorumlog.sdk.spark")


def stored_rows(
    bootstrap_servers: str,
    wanted: OffsetRange,
    fail_on_data_loss: bool,
    *,
    skip_unreadable: bool = False,
    from_replicas: bool = False,
) -> Iterator[StoredRows]:
    """Yields a partition's stored batches from the one that contains ``wanted.start`` until ``wanted.end`` is reached.

    It follows the leader, and resumes at its offset after a failure. Checksums are verified. Without
    ``fail_on_data_loss`` it skips to the log start if that has moved past the offset, and ends if the topic is deleted.
    With ``skip_unreadable`` a batch whose records cannot be decoded is returned without rows, marked as skipped. With
    ``from_replicas`` the pieces of a range are read from the partition's replicas in turn (KIP-392); a piece whose
    replica does not serve it continues at the leader. In place of markers and of aborted records there may be a cover,
    which has no rows.

    Raises:
        DataLossError: the offset has been removed, or the topic is deleted.
        UnreadableBatchError: the records of a batch with a right checksum cannot be decoded.
        QuorumlogError: no progress for half a minute, or a damaged batch.
    """
    nodes = nodes_at(bootstrap_servers)
    patience = Patience()
    position = wanted.start
    log_start = 0
    refresh = False
    while position < wanted.end:
        try:
            for rows in _from_node(nodes, wanted, position, refresh, patience, from_replicas):
                if rows.skipped is not None and not skip_unreadable:
                    raise rows.skipped
                position = rows.end
                # A log may start inside a batch: earlier records of the batch are deleted, though they can be decoded.
                if rows.offset < log_start and not rows.is_empty:
                    rows = rows.clip(log_start, rows.end)._replace(covers_to=rows.covers_to)
                yield rows
                # Not before: the time that Spark takes for rows is not time without progress.
                patience.progress()
        except (_LogMovedError, QuorumlogError) as failure:
            if from_replicas:
                # Whatever it is, only the leader's answer counts.
                _log.info("%s is read from its leader, not from another replica: %s", wanted, failure)
                from_replicas = False
            elif isinstance(failure, _LogMovedError):
                if fail_on_data_loss:
                    raise missing(wanted, position, min(failure.log_start, wanted.end)) from None
                position = log_start = failure.log_start
            elif not isinstance(failure, UnknownTopicOrPartitionError) or failure.retriable:
                patience.pause(failure)
            elif fail_on_data_loss:
                raise DataLossError(
                    f"{failure.message}; the query reads {wanted}: set failOnDataLoss to false to continue without it"
                ) from None
            else:
                return
        refresh = True


class _LogMovedError(Exception):
    """The log starts after the requested offset."""

    def __init__(self, log_start: int) -> None:
        super().__init__(f"the log starts at {log_start}")
        self.log_start = log_start


def _from_node(
    nodes: Nodes, wanted: OffsetRange, position: int, refresh: bool, patience: Patience, from_replicas: bool
) -> Iterator[StoredRows]:
    """Yields batches from the partition's present leader or, with ``from_replicas``, from the replica of this piece,
    over one stream, until its lifetime or the range ends, or an error."""
    view, address = nodes.leader(
        wanted.topic, wanted.topic_id, wanted.partition, refresh=refresh, failing=patience.failing
    )
    if from_replicas and view.replicas:
        address = nodes.address(view.replicas[wanted.piece % len(view.replicas)]) or address
    requests: SimpleQueue[pb.FetchRequest | None] = SimpleQueue()
    call = nodes.fetches(address, iter(requests.get, None), _STREAM_S)
    began = position
    try:
        requests.put(_fetch_request(wanted, position, view.leader_epoch, from_replicas))
        for response in call:
            entries = _entries(response, position)
            if entries:
                position = parse_header(entries[-1]).last_offset + 1
            else:
                nothing = RequestTimedOutError(
                    f"{address} has nothing at offset {position} of {wanted}", retriable=True
                )
                if from_replicas:
                    raise nothing
                patience.pause(nothing)
            if position < wanted.end:
                # Requested before the rows are returned: the leader reads while Spark works.
                requests.put(_fetch_request(wanted, position, view.leader_epoch, from_replicas))
            compacted_offset = response.results[0].told.compacted_offset if entries else 0
            for run in decode_runs(entries):
                if isinstance(run, UnreadableBatch):
                    yield _no_rows(wanted, run, compacted_offset)
                else:
                    for part in run.cut():
                        yield _rows(part, compacted_offset)
            if position >= wanted.end:
                return
        raise LeaderNotAvailableError(f"{address} ended the stream of {wanted}")
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and position > began:
            return
        raise error_from_rpc(error, address) from None
    finally:
        requests.put(None)
        call.cancel()  # type: ignore[no-untyped-call]


def _entries(response: FetchAnswer, position: int) -> Sequence[bytes]:
    """Returns the entries of a response; none if the wait timed out."""
    if not response.results:
        return ()
    (result,) = response.results
    if not result.told.HasField("error"):
        return result.entries
    error = error_from_proto(result.told.error)
    if isinstance(error, OffsetOutOfRangeError):
        if result.told.log_start_offset > position:
            raise _LogMovedError(result.told.log_start_offset)
        # After the end of this leader's log: it was just elected and has not caught up with its own log.
        error.retriable = True
    raise lagging_is_retriable(error)


def _fetch_request(wanted: OffsetRange, position: int, leader_epoch: int, from_replicas: bool) -> pb.FetchRequest:
    return pb.FetchRequest(
        max_wait_ms=_FETCH_WAIT_MS,
        min_bytes=1,
        max_bytes=_FETCH_BYTES,
        takes_kafka_batches=True,
        isolation_level=pb.ISOLATION_LEVEL_READ_COMMITTED,
        from_replicas=from_replicas,
        partitions=[
            pb.FetchPartition(
                topic_id=wanted.topic_id,
                partition=wanted.partition,
                fetch_offset=position,
                leader_epoch=leader_epoch,
                max_bytes=_FETCH_BYTES,
            )
        ],
    )


def _no_rows(wanted: OffsetRange, batch: UnreadableBatch, compacted_offset: int) -> StoredRows:
    """Returns a placeholder for an unreadable batch."""
    header = batch.header
    error = UnreadableBatchError.of(
        TopicPartition(wanted.topic, wanted.partition), header.base_offset, header.last_offset, header.record_count,
        batch.reason, skip_with="set option onCorrupt to skip",
    )  # fmt: skip
    columns = pa.RecordBatch.from_pylist([], LOG_SCHEMA)
    return StoredRows(
        header.base_offset, int(header.timestamp_type), None, columns, None, compacted_offset, skipped=error
    )


def _rows(part: DecodedRun, compacted_offset: int) -> StoredRows:
    """Returns the rows of a part of a run that is like one batch."""
    header, columns = part.headers[0], part.columns
    offsets = None
    if has_gaps(columns):
        deltas = columns.column(OFFSET_DELTA).cast(pa.int64())
        offsets = pc.add(deltas, pa.scalar(header.base_offset, pa.int64()))
    by_leader = offsets is None and header.timestamp_type is TimestampType.LOG_APPEND_TIME
    append_time_ms = header.max_timestamp_ms if by_leader else None
    return StoredRows(
        header.base_offset,
        int(header.timestamp_type),
        append_time_ms,
        columns,
        offsets,
        compacted_offset,
        covers_to=part.headers[-1].last_offset + 1,
    )
