"""Gaps in a producer's sequence that this node has made itself, by refusing a batch for a moment.

A client that pipelines has sent the next batches before it learns that one was refused. They do not follow in the
sequence, but the client has made no mistake: it has to send them again after the refused one. If the sequence is called
broken, librdkafka starts another epoch and sends all that is not acknowledged again, under new sequence numbers. A
batch may be among them that is in the log, because its answer was indefinite when the leadership moved: no node
recognises it, and consumers get its records twice.
"""

from __future__ import annotations

from typing import NamedTuple

from quorumlog.v1 import errors_pb2
from quorumlog.v1.data_plane_pb2 import PartitionBatch
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import SEQUENCE_MODULUS, BatchHeader, CorruptEntryError, parse_header

#: How long a refusal explains a gap (µs). What was sent before the client read the answer arrives within moments.
REMEMBERED_US = 5_000_000
#: Maximum number of refusals remembered at a time; beyond it the oldest is forgotten.
MOST_REMEMBERED = 4_096

_BROKEN_SEQUENCE = frozenset((ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID))


class _Place(NamedTuple):
    """A producer in a partition."""

    topic_id: bytes
    partition: int
    producer_id: int


class _Refusal(NamedTuple):
    """A gap in a producer's sequence.

    Arguments:
        first, latest: sequence numbers of the first and of the latest batch that were refused.
        until: time (µs) from which it explains nothing further.
        problem: why the first one was refused.
    """

    epoch: int
    first: int
    latest: int
    until: int
    problem: errors_pb2.Error


class RefusedBatches:
    """The batches of idempotent producers that were refused recently with an error that asks for a retry."""

    def __init__(self) -> None:
        #: The producer that was not refused for the longest comes first.
        self._refusals: dict[_Place, _Refusal] = {}

    def __len__(self) -> int:
        return len(self._refusals)

    def refused(self, now: int, batch: PartitionBatch, problem: errors_pb2.Error) -> errors_pb2.Error:
        """Returns the error to answer for a batch of which nothing was appended.

        Arguments:
            now: microseconds.
            batch: what a client sent, not necessarily a batch.
            problem: why it was refused. A broken sequence becomes the error of the earlier batch that this node
                refused, if that is the reason.
        """
        header = _idempotent(batch.batch)
        if header is None:
            return problem
        place, sequence = _place_of(batch, header), header.base_sequence
        gap = self._refusals.get(place)
        if gap is not None and gap.epoch > header.producer_epoch:
            return problem
        if gap is not None and (gap.epoch < header.producer_epoch or gap.until <= now):
            gap = None
        follows = gap is not None and _follows(sequence, gap.first)
        if problem.code in _BROKEN_SEQUENCE:
            if gap is None or not follows:
                return problem
            # Not until later: a producer that has given up the first batch must learn of the gap in the end.
            self._refusals[place] = gap._replace(latest=_later(sequence, gap.latest))
            return gap.problem
        if problem.retriable:
            # The gap starts at the earliest batch, whichever of them is refused again.
            first = gap.first if gap is not None and follows else sequence
            latest = sequence if gap is None else _later(sequence, gap.latest)
            self._refusals.pop(place, None)
            self._refusals[place] = _Refusal(header.producer_epoch, first, latest, now + REMEMBERED_US, problem)
            if len(self._refusals) > MOST_REMEMBERED:
                del self._refusals[next(iter(self._refusals))]
        return problem

    def accepted(self, now: int, batch: PartitionBatch) -> None:
        """Moves a producer's gap behind a batch that was accepted, and forgets the gap with its last batch.

        An earlier batch that arrives late leaves the gap as it is.
        """
        if not self._refusals:
            return
        header = _idempotent(batch.batch)
        if header is None:
            return
        place, sequence = _place_of(batch, header), header.base_sequence
        gap = self._refusals.get(place)
        if gap is None or (gap.epoch == header.producer_epoch and _follows(gap.first, sequence)):
            return
        if gap.epoch == header.producer_epoch and _follows(gap.latest, sequence):
            behind = (sequence + header.record_count) % SEQUENCE_MODULUS
            self._refusals[place] = gap._replace(first=behind, until=now + REMEMBERED_US)
        else:
            del self._refusals[place]


def _place_of(batch: PartitionBatch, header: BatchHeader) -> _Place:
    return _Place(batch.topic_id, batch.partition, header.producer_id)


def _idempotent(batch: bytes) -> BatchHeader | None:
    try:
        header = parse_header(batch)
    except CorruptEntryError:
        return None
    return header if header.producer_id >= 0 else None


def _follows(sequence: int, earlier: int) -> bool:
    """True if a sequence number is after another one, also across the end of the numbers."""
    return 0 < (sequence - earlier) % SEQUENCE_MODULUS < SEQUENCE_MODULUS // 2


def _later(sequence: int, other: int) -> int:
    return sequence if _follows(sequence, other) else other
