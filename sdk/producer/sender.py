"""Sends batches: takes them from the accumulator, groups them by leader, follows leader changes, resolves the outcome.

One object on one event loop. Every event (a wake-up, a response, a timer, a leader change) ends in
:meth:`Sender._pump`, which sends what is due; no coroutine waits while it holds a batch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from functools import partial

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.connection import NodeConnection
from quorumlog.sdk.cluster.leader_probe import LeaderProbes
from quorumlog.sdk.cluster.outage_log import OutageLog
from quorumlog.sdk.errors import (
    STALE_LEADER_ERRORS,
    ClientClosedError,
    InvalidProducerEpochError,
    NetworkError,
    QuorumlogError,
    RequestTimedOutError,
    TransactionAbortedError,
    UnknownServerError,
    error_from_proto,
)
from quorumlog.sdk.metrics.producer_metrics import ProducerMetrics
from quorumlog.sdk.producer.accumulator import Accumulator, PartitionBuffer
from quorumlog.sdk.producer.batch import ProducerBatch
from quorumlog.sdk.producer.config import ProducerConfig
from quorumlog.sdk.producer.identity import ProducerIdentity, obtain_identity
from quorumlog.sdk.producer.partition_pipeline import (
    NAME_LOST,
    AttemptVerdict,
    PartitionPipeline,
    check_complete,
    expiry_error,
    final_error,
    resend_target,
    undelivered,
)
from quorumlog.sdk.producer.recreated_topics import follow_recreated, no_such_partition, stay_with_deleted
from quorumlog.sdk.producer.request_packing import (
    ProduceAttempt,
    RequestPacking,
    error_of,
    refused_together,
    request_bytes,
)
from quorumlog.sdk.records.produce_request import OutgoingProduce
from quorumlog.sdk.records.record_batch import codec_named
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1 import data_plane_pb2

#: Interval of checks for silent leaders and expired times while requests are in flight.
_WATCH_EVERY_S = 0.1
#: A leader that has not responded for this long may be paused: ask the other replicas for a new leader.
_SILENCE_S = 0.25
#: Placeholder for the attempt of a batch that is planned into a request of this turn.
_PLANNED = object()

_log = logging.getLogger("quorumlog.sdk")


class Sender:
    """The background half of a producer.

    Arguments:
        clock: monotonic seconds, the accumulator's.
        metrics: counts requests and batches.
        on_crash: called with the error that stopped the sender.
    """

    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        accumulator: Accumulator,
        clock: Callable[[], float],
        metrics: ProducerMetrics,
        on_crash: Callable[[Exception], None],
    ) -> None:
        self._on_crash = on_crash
        self._config = config
        self._cluster = cluster
        self._accumulator = accumulator
        self._clock = clock
        self._metrics = metrics
        self._codec = codec_named(config.compression_type)
        self._delivery_s = config.delivery_timeout_ms / 1000
        self._request_s = config.request_timeout_ms / 1000
        self._pipelines: dict[TopicPartition, PartitionPipeline] = {}
        #: Pipelines with batches to resend, or in need of an identity: usually none, out of perhaps thousands.
        self._troubled: dict[PartitionPipeline, None] = {}
        #: In sending order.
        self._attempts: dict[ProduceAttempt, None] = {}
        self._identity: ProducerIdentity | None = None
        self._identity_task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._wanted_at: float | None = None
        self._next_watch_s = 0.0
        self._refresh_at_s = clock() + config.metadata_max_age_ms / 1000
        self._packing = RequestPacking(config.max_request_size)
        self._probes = LeaderProbes(cluster, lambda: self._guarded(self._leaders_changed))
        self._last_errors: dict[TopicPartition, QuorumlogError] = {}
        self._outages = OutageLog("sending to")
        self._closed = False
        #: Why the transaction cannot be committed: the first record that has failed.
        self.failure: QuorumlogError | None = None
        cluster.on_change(lambda: self._guarded(self._leaders_changed))
        # Batches that wait for their first attempt request the metadata of their topic themselves.
        cluster.keep_topics(lambda: {each.topic for each in self._pipelines.values() if each.in_flight})

    @property
    def requests_in_flight(self) -> int:
        """Number of requests without a response."""
        return len(self._attempts)

    def wake(self) -> None:
        """Sends what is due. Called on the loop's thread."""
        if not self._closed:
            self._guarded(self._pump)

    def _guarded(self, step: Callable[[], None]) -> None:
        """Runs a step; an exception stops the producer, so that no caller waits indefinitely."""
        try:
            step()
        except Exception as error:  # Any exception is a defect that must reach every waiting caller.
            _log.exception("the producer has failed")
            self._crash(error)

    def _crash(self, error: Exception) -> None:
        self._on_crash(error)
        self.close(error if isinstance(error, QuorumlogError) else None)

    # --- the pump ------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Sends everything that may be sent now, and sets the timer for what may be sent later.

        Requests are planned in rounds before any is sent. The n-th batch of each partition goes into the n-th round, so
        a request has at most one batch of a partition, and the requests to a node keep the order of its batches.
        """
        self._wanted_at = None
        now = self._clock()
        if now >= self._next_watch_s:
            self._watch(now)
        rounds: list[dict[NodeConnection, list[ProducerBatch]]] = []
        # Resends first: a new batch of the same partition has a later sequence number, and the leader would reject it
        # as out of order if it came first.
        self._resend_due(now, rounds)
        self._drain(rounds)
        for by_node in rounds:
            for node, batches in by_node.items():
                for together in self._packing.pack(node, batches):
                    self._request(node, together)
        self._arm_timer()

    def _resend_due(self, now: float, rounds: list[dict[NodeConnection, list[ProducerBatch]]]) -> None:
        """Plans the batches whose retry is due."""
        for pipeline in list(self._troubled):
            if pipeline.gap and pipeline.needs_identity:
                self._want_fresh_identity()
            if pipeline.retry_at_s is None:
                if not pipeline.gap:
                    del self._troubled[pipeline]
                continue
            if now < pipeline.retry_at_s:
                self._want_at(pipeline.retry_at_s)
                continue
            target = resend_target(self._cluster, pipeline)
            if target is None:
                pipeline.retry_at_s = None
                self._retry_later(pipeline, now)
                continue
            node, certain = target
            # A node that may not lead gets the oldest batch only: if it does not lead, one refusal says so.
            for round_number, batch in enumerate(pipeline.due(now, only_oldest=not certain)):
                self._assign(batch, node, rounds, round_number)

    def _drain(self, rounds: list[dict[NodeConnection, list[ProducerBatch]]]) -> None:
        """Takes ready batches until no partition has one that it may send."""
        if self.failure is not None:
            self._fail_transaction(self.failure)
            return
        # After the resends' rounds: a partition that resends does not drain, but its node serves others too.
        first = len(rounds)
        for depth in range(self._config.max_in_flight):
            # A node without a request in flight gets a batch at once, however small: waiting for more records would
            # only add latency. A busy node's batches fill up in the meantime.
            busy = {attempt.node for attempt in self._attempts}.union(*rounds)
            drained, deadline = self._accumulator.drain(self._can_send, partial(self._is_idle, busy))
            if deadline is not None:
                self._want_at(deadline)
            if not drained:
                return
            for batch in drained:
                pipeline = self._pipeline(batch.topic, batch.partition)
                found = self._cluster.leader(batch.topic, batch.partition)
                assert found is not None, "can_send saw a leader"
                pipeline.take_batch(batch)
                self._metrics.queued(batch.created_s, self._clock())
                if batch.notes is not None:
                    batch.notes.batched_s = self._clock()
                pipeline.leader_epoch = found[0].leader_epoch
                self._assign(batch, found[1], rounds, first + depth)

    def _assign(
        self,
        batch: ProducerBatch,
        node: NodeConnection,
        rounds: list[dict[NodeConnection, list[ProducerBatch]]],
        round_number: int,
    ) -> None:
        """Plans a batch into a request: at most one per partition in each, in order of the rounds."""
        while len(rounds) <= round_number:
            rounds.append({})
        rounds[round_number].setdefault(node, []).append(batch)
        batch.attempt = _PLANNED

    def _can_send(self, buffer: PartitionBuffer) -> bool:
        pipeline = self._pipeline(buffer.topic, buffer.partition)
        if self._config.idempotent and (pipeline.identity is None or pipeline.needs_identity):
            if self._identity is None or pipeline.gap:
                self._want_fresh_identity()
                return False
            pipeline.adopt(self._identity, self._clock())
        if not pipeline.can_take():
            return False
        if self._cluster.leader(buffer.topic, buffer.partition) is None:
            self._seek_leader(buffer.topic)
            return False
        if not pipeline.topic_id:
            pipeline.topic_id = self._cluster.metadata.topics[buffer.topic].topic_id
        return True

    def _is_idle(self, busy: Collection[NodeConnection], buffer: PartitionBuffer) -> bool:
        """True if a partition has a leader with no request in flight."""
        found = self._cluster.leader(buffer.topic, buffer.partition)
        return found is not None and found[1] not in busy

    def _pipeline(self, topic: str, partition: int) -> PartitionPipeline:
        key = TopicPartition(topic, partition)
        found = self._pipelines.get(key)
        if found is None:
            view = self._cluster.metadata.topics.get(topic)
            found = self._pipelines[key] = PartitionPipeline(
                topic,
                partition,
                idempotent=self._config.idempotent,
                max_in_flight=self._config.max_in_flight,
                codec=self._codec,
                first_sequence=(self._config.epoch_records or {}).get(key, 0),
            )
            found.topic_id = view.topic_id if view is not None else b""
        return found

    # --- requests and answers ------------------------------------------------------------------------------------

    def _request(self, node: NodeConnection, batches: list[ProducerBatch]) -> None:
        now = self._clock()
        attempt = ProduceAttempt(node, batches, request_bytes(batches), now)
        self._metrics.requested(sum(batch.record_count for batch in batches), attempt.size_bytes, now)
        request = OutgoingProduce(
            acks=self._config.wire_acks,
            timeout_ms=int(self._config.request_timeout_ms),
            # The topic that the sequences are for: another topic may have its name by now.
            batches=[
                (self._pipeline(batch.topic, batch.partition).topic_id, batch.partition, batch.entry or b"")
                for batch in batches
            ],
            trace=attempt.notes is not None,
            transactional_id=self._config.transaction_id,
        )
        if attempt.notes is not None:
            attempt.notes.sent(now)
        for batch in batches:
            batch.attempt = attempt
        self._attempts[attempt] = None
        if self._config.wire_acks == 0:
            node.produce.post(request).add_done_callback(
                lambda done: self._guarded(lambda: self._written(attempt, done))
            )
        else:
            answer = node.produce.submit(request)
            answer.add_done_callback(lambda done: self._guarded(lambda: self._answered(attempt, done)))

    def _written(self, attempt: ProduceAttempt, future: asyncio.Future[None]) -> None:
        """Resolves an ``acks=0`` request once it was passed to the connection, which is all that it waits for."""
        self._attempts.pop(attempt, None)
        error = error_of(future)
        if self._closed:
            return
        for batch in attempt.batches:
            if error is None:
                self._succeeded(batch, -1, -1)
            else:
                self._failed(attempt, batch, error)
        self._pump()

    def _answered(self, attempt: ProduceAttempt, future: asyncio.Future[data_plane_pb2.ProduceResponse]) -> None:
        self._attempts.pop(attempt, None)
        now = self._clock()
        results = attempt.outcome(future, now)
        if self._closed:
            return
        if isinstance(results, QuorumlogError):
            for batch in attempt.batches:
                self._failed(attempt, batch, results)
        else:
            self._metrics.answered(attempt.sent_at_s, now)
            if refused_together(results):
                self._packing.part(attempt)
                for result in results:
                    result.error.retriable = True  # Each may succeed alone.
            for batch, result in zip(attempt.batches, results, strict=True):
                self._settle(attempt, batch, result)
        self._pump()

    def _settle(self, attempt: ProduceAttempt, batch: ProducerBatch, result: data_plane_pb2.ProduceResult) -> None:
        if not result.HasField("error"):
            # A late success, from an attempt that was given up, is still valid.
            pipeline = self._pipeline(batch.topic, batch.partition)
            # Unless it is from a deleted topic: then only an acknowledgement of the new one counts.
            if not batch.delivery.done and (batch.attempt is attempt or pipeline.topic_id == result.topic_id):
                pipeline.log_sequence = max(pipeline.log_sequence, result.next_sequence)
                self._packing.taken(attempt)
                self._succeeded(batch, result.base_offset, result.log_append_time_ms)
            return
        if batch.attempt is not attempt:
            return
        news = self._cluster.learn_from(batch.topic, result.topic_id, batch.partition, result.error)
        # A new leader that the first of several pipelined batches reported applies to the others too.
        leader = self._cluster.leader(batch.topic, batch.partition)
        elsewhere = leader is not None and leader[1] is not attempt.node and not leader[1].suspect
        self._failed(attempt, batch, error_from_proto(result.error), at_once=news or elsewhere)

    def _succeeded(self, batch: ProducerBatch, base_offset: int, append_time_ms: int) -> None:
        pipeline = self._pipeline(batch.topic, batch.partition)
        now = self._clock()
        pipeline.succeeded(batch, now)
        self._outages.served(TopicPartition(batch.topic, batch.partition), now)
        if pipeline.retry_at_s is not None:
            self._troubled[pipeline] = None
        self._metrics.delivered(batch.topic, batch.record_count, len(batch.entry or b""), now)
        batch.delivery.succeed(base_offset, append_time_ms)
        self._accumulator.complete(batch)

    def _failed(
        self, attempt: ProduceAttempt, batch: ProducerBatch, error: QuorumlogError, *, at_once: bool = False
    ) -> None:
        if batch.attempt is not attempt:
            return  # Given up before; a later attempt decides.
        now = self._clock()
        pipeline = self._pipeline(batch.topic, batch.partition)
        self._last_errors[TopicPartition(batch.topic, batch.partition)] = error
        if self._config.producer_name is not None and isinstance(error, NAME_LOST):
            batch.attempt = None
            self._crash(error)
            return
        if self._config.transaction_id and isinstance(error, InvalidProducerEpochError):
            self._fail_transaction(error)
            return
        self._troubled[pipeline] = None
        verdict = pipeline.failed(batch, error, expired=now >= batch.created_s + self._delivery_s, now_s=now)
        if verdict is AttemptVerdict.FAIL:
            self._resolve_failed(batch, error)
        else:
            self._metrics.retried(batch.topic, batch.record_count, now)
            self._outages.failed(TopicPartition(batch.topic, batch.partition), error, now)
            if at_once:
                pipeline.retry_after(now, 0.0)
            else:
                self._retry_later(pipeline, now)
        # Also after a permanent failure: the topic may have been created again, and the next record is for that one.
        if isinstance(error, STALE_LEADER_ERRORS) and not at_once:
            self._seek_leader(batch.topic)

    def _retry_later(self, pipeline: PartitionPipeline, now: float) -> None:
        if pipeline.retry_at_s is None:  # Batches that failed together count once.
            pipeline.failures += 1
            pipeline.retry_after(now, self._cluster.backoff.delay_s(pipeline.failures))
        self._want_at(pipeline.retry_at_s or now)

    def _resolve_failed(self, batch: ProducerBatch, error: QuorumlogError) -> None:
        self._metrics.failed(batch.topic, batch.record_count, self._clock())
        final = final_error(batch, error)
        if self._config.transaction_id:
            # The transaction is not committed without it, whatever becomes of its attempts.
            final = type(final)(final.message, retriable=final.retriable, definite=True)
            if self.failure is None:
                self.failure = final
                asyncio.get_running_loop().call_soon(self._guarded, partial(self._fail_transaction, final))
        batch.delivery.resolve(final)
        self._accumulator.complete(batch)

    # --- transactions --------------------------------------------------------------------------------------------

    def begin_transaction(self, identity: ProducerIdentity) -> None:
        """Sends under another identity from now on. Nothing of a former transaction may be left."""
        self._restart()
        self._identity = identity
        self.failure = None

    def end_transaction(self, why: QuorumlogError) -> None:
        """Fails the records that are left, because the transaction is aborted."""
        self._fail_transaction(why)
        self._restart()
        self._identity = None

    @property
    def has_written(self) -> bool:
        """True if a batch was sent in this transaction."""
        return any(not pipeline.untouched for pipeline in self._pipelines.values())

    @property
    def identity(self) -> ProducerIdentity | None:
        """The identity under which batches are sent; None before it is known."""
        return self._identity

    def _restart(self) -> None:
        for pipeline in self._pipelines.values():
            pipeline.end()
        self._pipelines.clear()
        self._troubled.clear()
        self._last_errors.clear()

    def _fail_transaction(self, why: QuorumlogError) -> None:
        """Fails all records of a transaction that cannot be committed. Attempts under way have no effect."""
        if self.failure is None:
            self.failure = why
        error = TransactionAbortedError(f"the transaction cannot be committed: {why.message}")
        left = self._accumulator.expire(self._clock() + 1)
        for pipeline in self._pipelines.values():
            left += pipeline.end()
        for batch in left:
            batch.maybe_applied = False
            self._resolve_failed(batch, error)

    # --- leaders -------------------------------------------------------------------------------------------------

    def _seek_leader(self, topic: str) -> None:
        self._cluster.watch_topics([topic])
        self._cluster.request_refresh()

    def _leaders_changed(self) -> None:
        """Applies new metadata: partitions whose leader has moved are served at once."""
        if self._closed:
            return
        now = self._clock()
        if self._config.producer_name is None:
            self._troubled.update(
                dict.fromkeys(follow_recreated(self._pipelines.values(), self._cluster, self._identity, now))
            )
        else:
            for pipeline, lost, gone in stay_with_deleted(self._pipelines.values(), self._cluster):
                self._troubled.pop(pipeline, None)
                self._last_errors[TopicPartition(pipeline.topic, pipeline.partition)] = gone
                for batch in lost:
                    self._resolve_failed(batch, gone)
        self._drop_partitions()
        for pipeline in self._pipelines.values():
            if not pipeline.in_flight:
                continue
            view = self._cluster.metadata.partition(pipeline.topic, pipeline.partition)
            if view is None or view.leader < 0 or view.leader_epoch <= pipeline.leader_epoch:
                continue
            node = self._cluster.node(view.leader)
            if node is None:
                continue
            node.suspect = False
            for batch in list(pipeline.in_flight):
                if isinstance(batch.attempt, ProduceAttempt) and batch.attempt.node is not node:
                    error = NetworkError(f"{batch.attempt.node.address} was replaced as leader before it answered")
                    self._failed(batch.attempt, batch, error, at_once=True)
            if pipeline.retry_at_s is not None:
                pipeline.retry_after(now, 0.0)
        with self._accumulator.lock:
            topics = list(self._accumulator.topics.values())
            for topic in topics:
                known = self._cluster.metadata.topics.get(topic.name)
                if known is not None:
                    topic.learn(known)
        self._pump()

    def _drop_partitions(self) -> None:
        """Fails the batches of partitions that a recreated topic no longer has."""
        for name, topic in list(self._accumulator.topics.items()):
            known = self._cluster.metadata.topics.get(name)
            if known is None or len(known.partitions) >= len(topic.partitions):
                continue
            count = len(known.partitions)
            for batch in self._accumulator.drop_partitions(topic, count):
                self._resolve_failed(batch, no_such_partition(name, batch.partition, count))
            for where, pipeline in list(self._pipelines.items()):
                if pipeline.topic == name and pipeline.partition >= count:
                    del self._pipelines[where]
                    self._troubled.pop(pipeline, None)
                    for batch in pipeline.in_flight:
                        batch.attempt = None
                        self._resolve_failed(batch, no_such_partition(name, batch.partition, count))

    # --- identity ------------------------------------------------------------------------------------------------

    def _want_fresh_identity(self) -> None:
        if self._config.transactional_id is not None or (self._config.joins is not None and self._identity is not None):
            # Its records were counted from another identity: those and the missing ones look alike.
            if self._identity is not None:
                asyncio.get_running_loop().call_soon(self._guarded, self._lose_sequence)
        elif self._config.producer_name is not None and self._identity is not None:
            # A second claim of the name would fence the producer that has claimed it since, and records that follow
            # could not be distinguished from those that were lost. Not at once: the accumulator, which may be calling,
            # holds its lock.
            asyncio.get_running_loop().call_soon(self._lose_name)
        elif self._identity_task is None:
            self._identity_task = self._cluster.in_background(self._fetch_identity())

    def _lose_sequence(self) -> None:
        lost = (self._last_errors.get(where) for where, each in self._pipelines.items() if each.gap)
        cause = next((error for error in lost if error is not None), None)
        self._fail_transaction(cause or UnknownServerError("a partition has lost records of the transaction"))

    async def _fetch_identity(self) -> None:
        try:
            identity = await obtain_identity(self._config, self._cluster)
        except QuorumlogError as error:
            self._identity_task = None
            if isinstance(error, InvalidProducerEpochError) and self._config.joins is not None:
                self._guarded(partial(self._fail_transaction, error))
            elif isinstance(error, InvalidProducerEpochError):
                self._crash(error)
            else:
                self._fail_without_identity(error)
            return
        self._identity_task = None
        if not self._closed:
            self._guarded(lambda: self._adopt(identity))

    def _lose_name(self) -> None:
        if self._closed:
            return
        where, pipeline = next((where, each) for where, each in self._pipelines.items() if each.gap)
        self._crash(undelivered(self._config, pipeline, self._last_errors.get(where)))

    def check_complete(self) -> None:
        """Verifies that the log has exactly what was sent in a replayable epoch; see :func:`check_complete`."""
        check_complete(self._config, self._pipelines.values())

    def _adopt(self, identity: ProducerIdentity) -> None:
        self._identity = identity
        now = self._clock()
        for pipeline in self._pipelines.values():
            if pipeline.needs_identity:
                pipeline.adopt(identity, now)
        self._pump()

    def _fail_without_identity(self, error: QuorumlogError) -> None:
        """Fails the batches that wait for an identity, which no node gave within the delivery time; none was sent."""
        error = type(error)(error.message, retriable=error.retriable, definite=True)
        for batch in self._accumulator.expire(self._clock()):
            self._resolve_failed(batch, error)

    # --- time ----------------------------------------------------------------------------------------------------

    def _watch(self, now: float) -> None:
        """Handles everything that takes too long: batches, attempts, silent leaders, partitions without a leader."""
        self._next_watch_s = now + _WATCH_EVERY_S
        if now >= self._refresh_at_s:
            self._refresh_at_s = now + self._config.metadata_max_age_ms / 1000
            self._cluster.request_refresh()
        silent: dict[TopicPartition, None] = {}
        for attempt in list(self._attempts):
            age = now - attempt.sent_at_s
            if age >= self._request_s:
                self._attempts.pop(attempt, None)
                error = RequestTimedOutError(f"{attempt.node.address} did not answer within {self._request_s:g} s")
                for batch in attempt.batches:
                    self._failed(attempt, batch, error)
            elif age >= _SILENCE_S:
                silent.update(dict.fromkeys(TopicPartition(batch.topic, batch.partition) for batch in attempt.batches))
        if silent:
            self._cluster.request_refresh()
            self._probes.ask_about(silent)
        self._expire(now)

    def _expire(self, now: float) -> None:
        limit = now - self._delivery_s
        late = self._accumulator.expire(limit)
        for attempt in list(self._attempts):
            for batch in attempt.batches:
                if batch.attempt is attempt and batch.created_s < limit:
                    where = f"{batch.topic}-{batch.partition}"
                    error = RequestTimedOutError(f"no acknowledgement from {where} within {self._delivery_s:g} s")
                    self._failed(attempt, batch, error)
        for pipeline in self._troubled:
            late.extend(pipeline.expired(limit))
        for batch in late:
            cause = self._last_errors.get(TopicPartition(batch.topic, batch.partition))
            self._resolve_failed(batch, expiry_error(batch, self._delivery_s, cause))

    def _want_at(self, at_s: float) -> None:
        self._wanted_at = at_s if self._wanted_at is None else min(self._wanted_at, at_s)

    def _arm_timer(self) -> None:
        if self._attempts or self._troubled or self._accumulator.has_waiting():
            self._want_at(self._next_watch_s)
        if self._wanted_at is None:
            return
        if self._timer is not None:
            if self._timer_at <= self._wanted_at:
                return
            self._timer.cancel()
        self._timer_at = self._wanted_at
        self._timer = asyncio.get_running_loop().call_later(max(0.0, self._timer_at - self._clock()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.wake()

    # --- the end -------------------------------------------------------------------------------------------------

    def close(self, cause: QuorumlogError | None = None) -> None:
        """Stops sending; unresolved batches fail, indefinitely if an attempt may take effect."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._identity_task is not None:
            self._identity_task.cancel()
        self._probes.close()
        self._give_up(self._accumulator.shut(), cause)

    def _give_up(self, batches: Iterable[ProducerBatch], cause: QuorumlogError | None) -> None:
        for batch in batches:
            if batch.attempt is not None:
                batch.maybe_applied = True
            error = cause or ClientClosedError(
                f"the producer was closed before {batch.topic}-{batch.partition} acknowledged"
            )
            batch.delivery.resolve(final_error(batch, error))
            self._accumulator.complete(batch)
