"""The batches of one partition that have been sent and not yet settled, kept in order across failures.

Pure state: no clock, no I/O. The sender tells it what was answered and asks it what to send.

Order and exactly-once rest on sequences: the log takes a batch only when its sequence follows the last one of the same
identity, and recognises one that it has. So batches may be pipelined and resent as long as they go out in order, and
as long as a batch that *may* be in the log is never given another sequence or identity.
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
    """What becomes of a batch whose attempt has failed."""

    RETRY = auto()
    FAIL = auto()


class PartitionPipeline:
    """Sent and unsettled batches of one partition, oldest first.

    Invariants: from the oldest unsettled batch on at most ``max_in_flight`` have been given sequences, settled ones
    included: the log remembers no more of them, and could not recognise the oldest. With idempotence sequences follow
    one another from the oldest on, unless ``gap`` is set. No batch joins while an older one has no attempt under way.

    Attributes:
        gap: a sequence was given out and will not reach the log, so that nothing after it can under this identity.
        retry_at_s: when to send again what has no attempt under way; None if there is nothing, or it was sent.
        failures: failed attempts since the last success.
        log_sequence: the sequence after the newest batch that the log is known to have of a replayable epoch.
        topic_id: of the topic that it sends to; another one of the same name is begun anew.
        unknown_since_s: since when every attempt was told that there is no such partition; None if the last was not.
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
        """True when nothing can go on before the sender brings a fresh identity, with :meth:`adopt`."""
        if not self._idempotent:
            return False
        if self.identity is None:
            return True
        if not self.gap or any(batch.attempt is not None for batch in self.in_flight):
            return False
        return not self.in_flight or not self.in_flight[0].maybe_applied

    def adopt(self, identity: ProducerIdentity, now_s: float) -> None:
        """Starts over from the first sequence under a fresh identity, with whatever is in flight.

        All of that is certain not to be in the log: the oldest has only been refused definitely, and the others were
        sent under the same old identity with sequences behind the oldest's, which therefore never reach the log.
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
        """The topic was deleted, and another one of its name made: nothing of what was sent is in that one's log, and
        no attempt under way can get there, for it names the topic by its id. The caller brings an identity, if need be.
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
        """Nothing more can be sent; what is in flight leaves, and is returned with what is known of its attempts."""
        left = list(self.in_flight)
        self.in_flight.clear()
        for batch in left:
            batch.maybe_applied |= batch.attempt is not None
            batch.attempt = None
        self.gap = True
        self.retry_at_s = None
        return left

    def can_take(self) -> bool:
        """True when a further batch may be sent."""
        if self.gap or (self._idempotent and self.identity is None):
            return False
        if self.in_flight and self._taken - self.in_flight[0].ordinal >= self._max_in_flight:
            return False
        return all(batch.attempt is not None for batch in self.in_flight)

    def take_batch(self, batch: ProducerBatch) -> None:
        """Lets a drained batch join; its sequence is fixed here."""
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
        """The batches to send again now, in order. The caller gives each an attempt before it asks for more.

        Arguments:
            only_oldest: the receiver may not be the leader: do not send it everything to find out.
        """
        if self.retry_at_s is None or now_s < self.retry_at_s:
            return []
        self.retry_at_s = None
        batches = list(self._resendable())
        return batches[:1] if only_oldest else batches

    def _resendable(self) -> Iterator[ProducerBatch]:
        for batch in self.in_flight:
            if self.gap and not batch.maybe_applied:
                return  # Waits for a fresh identity. Behind it nothing could be taken in either.
            if batch.attempt is None:
                yield batch

    def succeeded(self, batch: ProducerBatch, now_s: float) -> None:
        """A batch is in the log, as far as its ``acks`` promise."""
        self.in_flight.remove(batch)
        batch.attempt = None
        self.failures = 0
        self.unknown_since_s = None
        if self.retry_at_s is None and any(True for _ in self._resendable()):
            self.retry_at_s = now_s

    def failed(
        self, batch: ProducerBatch, error: QuorumlogError, *, expired: bool, now_s: float = 0.0
    ) -> AttemptVerdict:
        """An attempt has failed. On ``FAIL`` the batch has left; on ``RETRY`` the caller calls :meth:`retry_after`.

        A definite refusal says nothing of earlier attempts. While one of those may still take effect, the batch is sent
        again until its outcome is known or its time is over. Otherwise a send could time out and its retry be refused:
        the client would report failure, and then the first attempt would take effect.

        A node may be behind, and a topic may be deleted and created again. So the answer that there is no such
        partition is believed only after it was given for a while.

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
            # An older one has not got through yet, perhaps because it was refused for now: it goes first. Only of the
            # oldest such a refusal says that the log misses something that it will not get.
            return AttemptVerdict.RETRY
        if not batch.maybe_applied:
            self.gap = True  # The log does not know this identity, or not this far: start over under another.
            return AttemptVerdict.RETRY
        return self._drop(batch) if self.gap else AttemptVerdict.RETRY

    def _drop(self, batch: ProducerBatch) -> AttemptVerdict:
        last = self.in_flight[-1] is batch
        self.in_flight.remove(batch)
        if self._idempotent:
            if last and not batch.maybe_applied and not self.gap:
                self.next_sequence = batch.sequence  # Nothing was sent behind it: its numbers can be given out again.
            else:
                self.gap = True
        if not self.in_flight:
            self.retry_at_s = None
        elif self.retry_at_s is None:
            self.retry_at_s = 0.0  # What waited behind it must not wait for ever: at once.
        return AttemptVerdict.FAIL

    def retry_after(self, now_s: float, delay_s: float) -> None:
        """Schedules the next round of attempts, unless an earlier one is scheduled already."""
        if self.retry_at_s is None or now_s + delay_s < self.retry_at_s:
            self.retry_at_s = now_s + delay_s

    def expired(self, created_before_s: float) -> list[ProducerBatch]:
        """Drops batches that began before a time and have no attempt under way, oldest first; the caller fails them."""
        late = [batch for batch in self.in_flight if batch.attempt is None and batch.created_s < created_before_s]
        for batch in late:
            self._drop(batch)
        return late


def expiry_error(batch: ProducerBatch, delivery_s: float, cause: QuorumlogError | None) -> QuorumlogError:
    """What to tell the sender of a batch whose delivery time is over.

    Arguments:
        delivery_s: how long it was tried, in seconds.
        cause: the last failure in its partition, if there was one.
    """
    why = f"; last: {cause.message}" if cause is not None else ""
    return RequestTimedOutError(f"not delivered to {batch.topic}-{batch.partition} within {delivery_s:g} s{why}")


def final_error(batch: ProducerBatch, error: QuorumlogError) -> QuorumlogError:
    """What to tell the sender of a batch that has failed: definite only if no attempt can take effect."""
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
        f"{pipeline.partition} and sends none after it{why}; make it anew"
    )


def check_complete(config: ProducerConfig, pipelines: Iterable[PartitionPipeline]) -> None:
    """Checks that the log has what was sent in a replayable epoch and no more. Nothing may be under way.

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
    """Returns the node to send a partition's batches to again, and whether it is thought to lead; None without one.

    When the connection to the known leader has failed, the other replicas are asked in turn: they know of a new leader
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
