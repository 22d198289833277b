"""Steps of a restore: checked against the state of the log, then proposed to the log.

A step is accepted only when all before it are applied. So it applies to exactly the state that it was checked against,
whichever node leads next; and a client that repeats a step, because the response was lost, receives the current
position.
"""

from __future__ import annotations

from typing import NamedTuple

from quorumlog.server.config.options import NodeLimits
from quorumlog.server.partition.batch_admission import refuse_inflating, refuse_unreadable_kafka
from quorumlog.server.partition.partition import MAX_OFFSET, Partition
from quorumlog.server.partition.producer_records import MAX_RESTORED_PRODUCERS, check_records
from quorumlog.server.partition.refusals import takes_none
from quorumlog.server.partition.restoration import RESTORE_ID_BYTES
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import admin_pb2, errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.partition_log_pb2 import BeginRestore, FinishRestore, PartitionCommand
from quorumlog.wire.entry import BatchHeader, CorruptEntryError, Envelope, Flags, states_offsets, verify_batch

#: A batch has 32 bits for the number of offsets that it covers.
_MOST_DELTA = (1 << 32) - 1
#: What a restore adds to a batch to state its offsets: each of them, and the column (bytes).
_OFFSET_BYTES, _COLUMN_BYTES = 4, 512


class _Placed(NamedTuple):
    """A batch of the backup and the last offset that it must cover."""

    entry: bytes
    envelope: Envelope
    header: BatchHeader
    last_offset: int


def take_step(
    now: int, partition: Partition, request: admin_pb2.RestorePartitionRequest, limits: NodeLimits
) -> errors_pb2.Error | None:
    """Proposes a step to the log of a partition that this node leads, unless it has been taken before.

    Returns:
        The error if the step cannot be taken; None otherwise: then it is complete once the current end of the log is
            applied.
    """
    if len(request.restore_id) != RESTORE_ID_BYTES:
        return _invalid(f"the id of a restore has {RESTORE_ID_BYTES} bytes, not {len(request.restore_id)}")
    if partition.applied_index != partition.raft.last_id.index:
        return error(ErrorCode.SERVER_BUSY, f"{partition.name} has not applied all of its log yet; try again shortly")
    step = request.WhichOneof("step")
    known = partition.restoration
    if known is not None and known.restore_id != request.restore_id:
        return error(ErrorCode.POLICY_VIOLATION, f"{partition.name} comes from another restore: delete its topic first")
    if step == "begin":
        return None if known is not None else _begin(now, partition, request.restore_id, request.begin)
    if known is None:
        return error(ErrorCode.POLICY_VIOLATION, f"no restore of {partition.name} has started")
    if known.finished:
        return None
    if step == "append":
        return _append(now, partition, request.append, limits)
    if step == "producers":
        return _producers(now, partition, request.producers)
    if step == "finish":
        return _finish(now, partition, request.finish)
    return _invalid("the request has no step: set `begin`, `append`, `producers` or `finish`")


def _begin(
    now: int, partition: Partition, restore_id: bytes, step: admin_pb2.BeginPartitionRestore
) -> errors_pb2.Error | None:
    if partition.high_watermark > 0:
        return error(
            ErrorCode.POLICY_VIOLATION,
            f"{partition.name} has had records: restore into a partition that was never written to",
        )
    if partition.transactions is not None and partition.transactions.open:
        # It would continue in the restored log, whose producers are those of the backup.
        return error(
            ErrorCode.POLICY_VIOLATION,
            f"a transaction is open in {partition.name}: restore into a partition that was never written to",
        )
    if not 0 <= step.log_start_offset <= step.next_offset < MAX_OFFSET:
        return _invalid(f"a log cannot start at offset {step.log_start_offset} and continue at {step.next_offset}")
    if not 0 <= step.compacted_offset < MAX_OFFSET:
        return _invalid(f"a log cannot be compacted up to offset {step.compacted_offset}")
    command = BeginRestore(
        restore_id=restore_id, log_start_offset=step.log_start_offset, next_offset=step.next_offset,
        compacted_offset=step.compacted_offset,
    )  # fmt: skip
    return _proposed(partition, partition.propose_command(now, PartitionCommand(begin_restore=command)))


def _append(
    now: int, partition: Partition, step: admin_pb2.RestoreBatches, limits: NodeLimits
) -> errors_pb2.Error | None:
    try:
        verified = [verify_batch(entry) for entry in step.entries]
    except CorruptEntryError as corrupt:
        return error(ErrorCode.CORRUPT_MESSAGE, f"a batch of the backup was refused: {corrupt}")
    headers = [header for _, header in verified]
    if not headers:
        return _invalid("the step has no batch to append")
    if headers[0].base_offset < partition.high_watermark:
        return None  # It was appended before; the response has the offset at which to continue.
    if headers[0].base_offset > partition.high_watermark:
        return _invalid(
            f"{partition.name} continues at offset {partition.high_watermark}, not at {headers[0].base_offset}"
        )
    sizes = (len(entry) - _added(*parsed) for entry, parsed in zip(step.entries, verified, strict=True))
    if max(sizes) > limits.batch_bytes:
        return error(ErrorCode.RECORD_TOO_LARGE, f"a batch exceeds the {limits.batch_bytes} bytes of this node")
    if any(header.is_control for header in headers):
        return _invalid("a backup has records, not the markers of transactions: leave them out")
    for entry, header in zip(step.entries, headers, strict=True):
        if refusal := refuse_unreadable_kafka(entry, header) if header.is_kafka else refuse_inflating(entry):
            return refusal
    ends = [*(header.base_offset for header in headers[1:]), step.next_offset]
    placed = [
        _Placed(entry, envelope, header, end - 1)
        for entry, (envelope, header), end in zip(step.entries, verified, ends, strict=True)
    ]
    problem = _check_places(placed)
    if problem is not None:
        return problem
    for each in placed:
        problem = partition.append_restored(now, each.entry, each.last_offset)
        if problem is not None:
            # Batches appended before stay; the response to the next attempt has the offset at which to continue.
            return problem
    return None


def _added(envelope: Envelope, header: BatchHeader) -> int:
    """Returns how many bytes of a batch a restore may have added to state the offsets of its records."""
    return _OFFSET_BYTES * header.record_count + _COLUMN_BYTES if envelope.flags is Flags.GAPS else 0


def _check_places(placed: list[_Placed]) -> errors_pb2.Error | None:
    for each in placed:
        header, last_offset = each.header, each.last_offset
        if not header.last_offset <= last_offset < MAX_OFFSET:
            return _invalid(
                f"the batch at offset {header.base_offset} ends at {header.last_offset}, not at {last_offset}"
            )
        if last_offset - header.base_offset > _MOST_DELTA:
            return _invalid(f"the gap after the batch at offset {header.base_offset} is too large for one batch")
        if last_offset > header.last_offset and not states_offsets(each.envelope, header):
            # Readers would look for the offsets in the payload.
            return _invalid(
                f"offsets are missing after the batch at offset {header.base_offset}, and it does not state its own:"
                " restore with a newer client"
            )
    return None


def _producers(now: int, partition: Partition, step: admin_pb2.RestoredProducers) -> errors_pb2.Error | None:
    if not 1 <= len(step.producers) <= MAX_RESTORED_PRODUCERS:
        return _invalid(f"{len(step.producers)} producers in one step: send 1 to {MAX_RESTORED_PRODUCERS}")
    problem = check_records(step.producers)
    if problem is not None:
        return problem
    if not partition.producers.has_room_for(each.producer_id for each in step.producers):
        return error(ErrorCode.PRODUCER_LIMIT_EXCEEDED, f"{partition.name} cannot remember so many named producers")
    return _proposed(partition, partition.propose_command(now, PartitionCommand(restore_producers=step)))


def _finish(now: int, partition: Partition, step: admin_pb2.FinishPartitionRestore) -> errors_pb2.Error | None:
    if step.next_offset != partition.high_watermark:
        return _invalid(f"{partition.name} now ends at offset {partition.high_watermark}, not at {step.next_offset}")
    if not partition.log_start_offset <= step.log_start_offset <= partition.high_watermark:
        return _invalid(
            f"{partition.name} cannot start at offset {step.log_start_offset}: it has {partition.log_start_offset} to"
            f" {partition.high_watermark}"
        )
    command = FinishRestore(log_start_offset=step.log_start_offset)
    return _proposed(partition, partition.propose_command(now, PartitionCommand(finish_restore=command)))


def _proposed(partition: Partition, done: bool) -> errors_pb2.Error | None:
    return None if done else takes_none(partition.name, "it does not lead, or waits for its followers")


def _invalid(problem: str) -> errors_pb2.Error:
    return error(ErrorCode.INVALID_REQUEST, problem)
