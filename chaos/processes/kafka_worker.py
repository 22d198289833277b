"""A worker that makes transfers with Kafka's own client: librdkafka, through confluent-kafka.

``python -m quorumlog.chaos.processes.kafka_worker '{"name": …}'``, with the fields of `WorkerPlan`. It consumes
requests in a consumer group. One transaction has a debit and a credit for each request of a batch, and the group's
offsets. SIGTERM stops it after its transaction; the end of its standard input, and so of its parent process, ends it
immediately.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import confluent_kafka
from confluent_kafka import KafkaException, Message, TopicPartition

from quorumlog.chaos.checkers.transfer_checkers import TransactionOutcome
from quorumlog.chaos.processes.transfer_log import FENCED_STATUS, WorkerLog, WorkerPlan

_POLL_S = 0.2
_CALL_S = 10.0
#: Clients that are replaced after a fatal error; a fenced worker ends instead.
_MAX_CLIENTS = 1_000


class FencedError(Exception):
    """Raised if another worker has this worker's transactional id."""


class KafkaWorker:
    """Makes transfers until it is stopped."""

    def __init__(self, plan: WorkerPlan, log: WorkerLog) -> None:
        self.stopping = False
        self._plan = plan
        self._log = log
        self._rng = random.Random(plan.name)
        self._attempts = 0
        self._gathered: list[Message] = []

    def work(self) -> None:
        """Makes transfers. A fatal error of the client other than fencing replaces it, as applications do."""
        for number in range(_MAX_CLIENTS):
            try:
                self._with_clients(first=number == 0)
                return
            except KafkaException as failure:
                error = failure.args[0]
                self._log.note(str(error))
                if self.stopping:
                    return
                if error.code() in (confluent_kafka.KafkaError._FENCED, confluent_kafka.KafkaError.PRODUCER_FENCED):
                    raise FencedError(str(error)) from None

    def _with_clients(self, *, first: bool) -> None:
        plan = self._plan
        common = {**plan.options, "client.id": plan.name, "log_level": 2, "reconnect.backoff.max.ms": 500}
        producer = confluent_kafka.Producer(
            {
                **common,
                "transactional.id": plan.transactional_id,
                "transaction.timeout.ms": plan.transaction_timeout_ms,
                "message.timeout.ms": plan.transaction_timeout_ms,
                "socket.timeout.ms": 5_000,
                "linger.ms": 1,
            }
        )
        self._retried(lambda: producer.init_transactions(_CALL_S))
        if first:
            self._log.started()
        consumer = confluent_kafka.Consumer(
            {
                **common,
                "group.id": plan.group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": plan.session_timeout_ms,
                "heartbeat.interval.ms": plan.session_timeout_ms // 4,
                "socket.timeout.ms": 10_000,
            }
        )
        consumer.subscribe([plan.requests], on_revoke=self._discard, on_lost=self._discard)
        try:
            while not self.stopping:
                self._gather(consumer)
                if self._gathered and not self._transaction(producer, consumer, self._gathered):
                    self._rewind(consumer)
        finally:
            consumer.close()

    def _gather(self, consumer: confluent_kafka.Consumer) -> None:
        self._gathered = []
        message = consumer.poll(_POLL_S)
        while message is not None:
            if message.error() is None:
                self._gathered.append(message)
            message = consumer.poll(0) if len(self._gathered) < self._plan.batch else None

    def _discard(self, consumer: confluent_kafka.Consumer, revoked: object) -> None:
        # Another member has these partitions now, and processes their requests from the committed offset on.
        self._gathered.clear()

    def _retried(self, call: Callable[[], object]) -> None:
        """Calls a function of a transactional producer, and repeats it after errors that it may repeat."""
        while True:
            try:
                call()
                return
            except KafkaException as failure:
                if not failure.args[0].retriable() or self.stopping:
                    raise

    def _transaction(
        self, producer: confluent_kafka.Producer, consumer: confluent_kafka.Consumer, requests: Sequence[Message]
    ) -> bool:
        """Makes the transfers of a batch; returns False if it was aborted."""
        self._attempts += 1
        attempt = f"{self._plan.name}.{self._attempts}"
        parsed = [tuple(map(int, (one.value() or b"").split(b","))) for one in requests]
        self._log.begun(attempt, [number for number, *_ in parsed])
        outcome = TransactionOutcome.UNKNOWN
        try:
            producer.begin_transaction()
            for number, source, target, amount in parsed:
                self._post(producer, attempt, number, source, -amount)
                self._post(producer, attempt, number, target, amount)
            offsets: dict[tuple[str, int], int] = {}
            for one in requests:
                offsets[one.topic() or "", one.partition() or 0] = (one.offset() or 0) + 1
            positions = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
            group = consumer.consumer_group_metadata()
            self._retried(lambda: producer.send_offsets_to_transaction(positions, group, _CALL_S))
            if self._rng.random() < self._plan.abort_share:
                self._retried(lambda: producer.abort_transaction(_CALL_S))
                outcome = TransactionOutcome.ABORTED
            else:
                self._retried(lambda: producer.commit_transaction(_CALL_S))
                outcome = TransactionOutcome.COMMITTED
        except KafkaException as failure:
            error = failure.args[0]
            self._log.note(f"{attempt}: {error}")
            if not error.txn_requires_abort():
                raise
            self._retried(lambda: producer.abort_transaction(_CALL_S))
            outcome = TransactionOutcome.ABORTED
        finally:
            self._log.ended(attempt, outcome)
        return outcome is TransactionOutcome.COMMITTED

    def _post(self, producer: confluent_kafka.Producer, attempt: str, number: int, account: int, amount: int) -> None:
        value = f"{number},{account},{amount},{attempt}"
        producer.produce(self._plan.accounts, value.encode(), b"%d" % account, account % self._plan.partitions)

    def _rewind(self, consumer: confluent_kafka.Consumer) -> None:
        """Returns to the committed offsets, after an abort."""
        while not self.stopping:
            try:
                assigned = consumer.assignment()
                for one in consumer.committed(assigned, _CALL_S) if assigned else ():
                    if one.offset < 0:
                        one.offset = confluent_kafka.OFFSET_BEGINNING
                    consumer.seek(one)
                return
            except KafkaException as failure:
                # Partitions may have been revoked in the meantime: the next poll reports it. Its record is read again.
                self._log.note(f"after an abort: {failure.args[0]}")
                consumer.poll(0)


def _end_with_the_starter() -> None:
    os.read(0, 1)
    os._exit(1)


def main() -> None:
    """Runs the worker whose plan is given as JSON."""
    plan = WorkerPlan(**json.loads(sys.argv[1]))
    threading.Thread(target=_end_with_the_starter, daemon=True).start()
    log = WorkerLog(Path(plan.log))
    worker = KafkaWorker(plan, log)

    def stop(number: int, frame: object) -> None:
        worker.stopping = True

    signal.signal(signal.SIGTERM, stop)
    try:
        worker.work()
    except FencedError as error:
        log.note(f"fenced: {error}")
        sys.exit(FENCED_STATUS)


if __name__ == "__main__":
    main()
