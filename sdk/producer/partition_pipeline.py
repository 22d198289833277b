"""The sent and unresolved batches of one partition, kept in order across failures.

Pure state: no clock, no I/O. The sender reports responses to it and requests the batches to send.

Order and exactly-once depend on sequences: the log accepts a batch only if its sequence follows the last one of the
same identity, and recognises one that it has. So batches may be pipelined and resent as long as they are sent in order,
and as long as a batch that *may* be in the log is never given another sequence or identity.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum, auto

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.connection import NodeConnection
from quorumlog.sdk.errors import (
    DuplicateSequenceMismatchError,
    IllegalStateError,
    InvalidProducerEpochError,
    OutOfOrderSequenceNumberError,
    QuorumlogError,
    RequestTimedOutError,
    UnknownProducerIdError,
    UnknownTopicOrPartitionError,
)
from quorumlog.sdk.producer.batch import ProducerBatch
from quorumlog.sdk.producer.config import ProducerConfig
from quorumlog.sdk.producer.identity import ProducerIdentity
from quorumlog.wire.entry import NO_SEQUENCE, SEQUENCE_MODULUS, Codec

#: A partition that is unknown for this long does not exist.
UNKNOWN_TOPIC_S = 2.0
_SEQUENCE_ERRORS = (OutOfOrderSequenceNumberError, UnknownProducerIdError, InvalidProducerEpochError)
#: Errors after which nothing more can be sent under a producer's name: another instance has it, or a replay differs.
NAME_LOST = (InvalidProducerEpochError, DuplicateSequenceMismatchError)


class AttemptVerdict(Enum):
    """Consequence of a failed attempt for its batch."""

    RETRY = auto()
    FAIL = auto()


class PartitionPipeline:
    """Sent and unresolved batches of one partition, oldest first.

    Invariants: from the oldest unresolved batch on, at most ``max_in_flight`` have been given sequences, resolved ones
    included: the log keeps no more of them, and could not recognise the oldest. With idempotence, sequences are
    consecutive from the oldest on, unless ``gap`` is set. No batch joins while an older one has no attempt in flight.

    Attributes:
        gap: a sequence was assigned and will not reach the log, so that nothing after it can under this identity.
        retry_at_s: when to resend batches without an attempt in flight; None without such batches, or once sent.
        failures: failed attempts since the last success.
        log_sequence: the sequence after the newest batch of a replayable epoch that the log is known to have.
        topic_id: of the topic that it sends to; if the topic is recreated, the pipeline restarts.
        unknown_since_s: since when every attempt failed because the partition does not exist; None if the last did not.
    """

    __slots__ = ("_codec", "_first_sequence", "_idempotent", "_max_in_flight", "_taken", "failures", "gap", "identity",
                 "in_flight", "leader_epoch", "log_sequence", "next_sequence", "partition", "retry_at_s", "topic",
                 "topic_id", "unknown_since_s")  # fmt: skip

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        idempotent: bool,
        max_in_flight: int,
        codec: Codec,
        first_sequence: int = 0,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.in_flight: deque[ProducerBatch] = deque()
        self.identity: ProducerIdentity | None = None
        self.next_sequence = first_sequence
        self.gap = False
        self.retry_at_s: float | None = None
        self.failures = 0
        self.log_sequence = 0
        self.topic_id = b""
        self.unknown_since_s: float | None = None
        #: The leader epoch under which attempts were last sent.
        self.leader_epoch = -1
        self._taken = 0
        self._first_sequence = first_sequence
        self._idempotent = idempotent
        self._max_in_flight = max_in_flight
        self._codec = codec

    @property
    def needs_identity(self) -> bool:
        """True if sending is blocked until the sender supplies a fresh identity, with :meth:`adopt`."""
        if not self._idempotent:
            return False
        if self.identity is None:
            return True
        if not self.gap or any(batch.attempt is not None for batch in self.in_flight):
            return False
        return not self.in_flight or not self.in_flight[0].maybe_applied

    def adopt(self, identity: ProducerIdentity, now_s: float) -> None:
        """Restarts from the first sequence under a fresh identity, with the batches in flight.

        All of them are certainly not in the log: the oldest has only been refused definitely, and the others were sent
        under the same old identity with sequences after the oldest's, which therefore never reach the log.
        """
        assert self.needs_identity
        self.identity = identity
        self.next_sequence = self._first_sequence
        self.gap = False
        self._taken = 0
        for batch in self.in_flight:
            batch.maybe_applied = False
            self._seal(batch)
        if self.in_flight:
            self.retry_at_s = now_s

    def begin_anew(self, topic_id: bytes) -> None:
        """Restarts for a recreated topic. The caller supplies an identity if one is needed.

        Nothing that was sent is in the new topic's log, and no attempt in flight can get there, because it names the
        topic by its id.
        """
        self.topic_id = topic_id
        self.identity = None
        self.gap = False
        self.log_sequence = 0
        self.failures = 0
        self.unknown_since_s = None
        self.leader_epoch = -1
        for batch in self.in_flight:
            batch.maybe_applied_before |= batch.maybe_applied or batch.attempt is not None
            batch.attempt = None
            batch.maybe_applied = False
        self.retry_at_s = 0.0 if self.in_flight else None

    @property
    def untouched(self) -> bool:
        """True before the first batch has joined."""
        return not self._taken and not self.in_flight

    def end(self) -> list[ProducerBatch]:
        """Ends the pipeline; removes and returns the batches in flight, with the state of their attempts."""
        left = list(self.in_flight)
        self.in_flight.clear()
        for batch in left:
            batch.maybe_applied |= batch.attempt is not None
            batch.attempt = None
        self.gap = True
        self.retry_at_s = None
        return left

    def can_take(self) -> bool:
        """True if a further batch may be sent."""
        if self.gap or (self._idempotent and self.identity is None):
            return False
        if self.in_flight and self._taken - self.in_flight[0].ordinal >= self._max_in_flight:
            return False
        return all(batch.attempt is not None for batch in self.in_flight)

    def take_batch(self, batch: ProducerBatch) -> None:
        """Adds a drained batch and assigns its sequence."""
        assert self.can_take()
        self._seal(batch)
        self.in_flight.append(batch)

    def _seal(self, batch: ProducerBatch) -> None:
        batch.ordinal = self._taken
        self._taken += 1
        if not self._idempotent:
            batch.seal(self._codec, None, NO_SEQUENCE)
            return
        batch.seal(self._codec, self.identity, self.next_sequence)
        self.next_sequence = (self.next_sequence + batch.record_count) % SEQUENCE_MODULUS

    def due(self, now_s: float, *, only_oldest: bool = False) -> list[ProducerBatch]:
        """Returns the batches to resend now, in order. The caller gives each an attempt before it calls again.

        Arguments:
            only_oldest: the receiver may not be the leader: send it one batch to find out, not all.
        """
        if self.retry_at_s is None or now_s < self.retry_at_s:
            return []
        self.retry_at_s = None
        batches = list(self._resendable())
        return batches[:1] if only_oldest else batches

    def _resendable(self) -> Iterator[ProducerBatch]:
        for batch in self.in_flight:
            if self.gap and not batch.maybe_applied:
                return  # Waits for a fresh identity. The log could not accept a later one either.
            if batch.attempt is None:
                yield batch

    def succeeded(self, batch: ProducerBatch, now_s: float) -> None:
        """Removes a batch that is in the log, as far as its ``acks`` promise."""
        self.in_flight.remove(batch)
        batch.attempt = None
        self.failures = 0
        self.unknown_since_s = None
        if self.retry_at_s is None and any(True for _ in self._resendable()):
            self.retry_at_s = now_s

    def failed(
        self, batch: ProducerBatch, error: QuorumlogError, *, expired: bool, now_s: float = 0.0
    ) -> AttemptVerdict:
        """Records a failed attempt. On ``FAIL`` the batch was removed; on ``RETRY`` the caller calls
        :meth:`retry_after`.

        A definite refusal does not apply to earlier attempts. While one of those may still take effect, the batch is
        sent again until its outcome is known or its time is over. Otherwise a send could time out and its retry be
        refused: the client would report failure, and then the first attempt would take effect.

        A node's metadata may be behind, and a topic may be deleted and created again. So the response that the
        partition does not exist is accepted only after it was repeated for ``UNKNOWN_TOPIC_S``.

        Arguments:
            expired: the batch's delivery time is over.
        """
        batch.attempt = None
        if not error.definite:
            batch.maybe_applied = True
        unknown = isinstance(error, UnknownTopicOrPartitionError)
        if not unknown:
            self.unknown_since_s = None
        elif self.unknown_since_s is None:
            self.unknown_since_s = now_s
        if expired or (self.unknown_since_s is not None and now_s - self.unknown_since_s >= UNKNOWN_TOPIC_S):
            return self._drop(batch)
        if isinstance(error, _SEQUENCE_ERRORS):
            return self._refused_sequence(batch, error)
        if unknown or error.retriable or (batch.maybe_applied and self._idempotent):
            return AttemptVerdict.RETRY
        return self._drop(batch)

    def _refused_sequence(self, batch: ProducerBatch, error: QuorumlogError) -> AttemptVerdict:
        if not self._idempotent:
            return self._drop(batch)
        if self.in_flight[0] is not batch:
            # An older batch has not succeeded yet, perhaps because it was refused temporarily: it goes first. Only for
            # the oldest does such a refusal mean that the log misses a batch that it will not get.
            return AttemptVerdict.RETRY
        if not batch.maybe_applied:
            self.gap = True  # The log does not have this identity, or not up to here: restart under another.
            return AttemptVerdict.RETRY
        return self._drop(batch) if self.gap else AttemptVerdict.RETRY

    def _drop(self, batch: ProducerBatch) -> AttemptVerdict:
        last = self.in_flight[-1] is batch
        self.in_flight.remove(batch)
        if self._idempotent:
            if last and not batch.maybe_applied and not self.gap:
                # Nothing was sent after it: its sequence numbers can be assigned again.
                self.next_sequence = batch.sequence
            else:
                self.gap = True
        if not self.in_flight:
            self.retry_at_s = None
        elif self.retry_at_s is None:
            self.retry_at_s = 0.0  # Batches behind it must not wait indefinitely: resend at once.
        return AttemptVerdict.FAIL

    def retry_after(self, now_s: float, delay_s: float) -> None:
        """Schedules the next round of attempts, unless an earlier one is scheduled already."""
        if self.retry_at_s is None or now_s + delay_s < self.retry_at_s:
            self.retry_at_s = now_s + delay_s

    def expired(self, created_before_s: float) -> list[ProducerBatch]:
        """Removes batches that were created before a time and have no attempt in flight, oldest first; the caller fails
        them."""
        late = [batch for batch in self.in_flight if batch.attempt is None and batch.created_s < created_before_s]
        for batch in late:
            self._drop(batch)
        return late


def expiry_error(batch: ProducerBatch, delivery_s: float, cause: QuorumlogError | None) -> QuorumlogError:
    """Returns the error for a batch whose delivery time is over.

    Arguments:
        delivery_s: that time, in seconds.
        cause: the last failure in its partition, if any.
    """
    why = f"; last: {cause.message}" if cause is not None else ""
    return RequestTimedOutError(f"not delivered to {batch.topic}-{batch.partition} within {delivery_s:g} s{why}")


def final_error(batch: ProducerBatch, error: QuorumlogError) -> QuorumlogError:
    """Returns the error for a failed batch: definite only if no attempt can take effect."""
    if isinstance(error, UnknownTopicOrPartitionError):
        error = error.about(batch.topic, batch.partition)
    if batch.maybe_applied or batch.maybe_applied_before:
        return error.as_indefinite()
    if isinstance(error, RequestTimedOutError):
        return RequestTimedOutError(error.message, definite=True)
    return error


def undelivered(config: ProducerConfig, pipeline: PartitionPipeline, cause: QuorumlogError | None) -> IllegalStateError:
    """Returns the error of a named producer that has lost a record before others that follow it."""
    why = f": {cause.message}" if cause is not None else ""
    return IllegalStateError(
        f"named producer {config.producer_name!r} has failed to deliver a record to {pipeline.topic}-"
        f"{pipeline.partition} and sends none after it{why}; create it again"
    )


def check_complete(config: ProducerConfig, pipelines: Iterable[PartitionPipeline]) -> None:
    """Verifies that the log has exactly what was sent in a replayable epoch. No request may be in flight.

    Raises:
        DuplicateSequenceMismatchError: an earlier run has sent more.
    """
    for pipeline in pipelines:
        if pipeline.log_sequence > pipeline.next_sequence:
            raise DuplicateSequenceMismatchError(
                f"epoch {config.producer_epoch} of producer {config.producer_name!r} has {pipeline.log_sequence}"
                f" records in {pipeline.topic}-{pipeline.partition}, but this replay sent only"
                f" {pipeline.next_sequence}: it differs from the first run"
            )


def resend_target(cluster: Cluster, pipeline: PartitionPipeline) -> tuple[NodeConnection, bool] | None:
    """Returns the node to resend a partition's batches to, and True if it is expected to lead; None without a node.

    If the connection to the known leader has failed, the other replicas are tried in turn: they learn of a new leader
    before the controller does, and name it.
    """
    found = cluster.leader(pipeline.topic, pipeline.partition)
    if found is not None and not found[1].suspect:
        pipeline.leader_epoch = found[0].leader_epoch
        return found[1], True
    view = cluster.metadata.partition(pipeline.topic, pipeline.partition)
    if view is None or not view.replicas:
        return None
    pipeline.leader_epoch = view.leader_epoch
    node = cluster.node(view.replicas[pipeline.failures % len(view.replicas)])
    return (node, False) if node is not None else None
