"""A writer of numbered records with Kafka's own client: librdkafka, through confluent-kafka."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import confluent_kafka

from quorumlog.chaos.processes.once_writers import (
    BATCH_BYTES,
    DELIVERY_TIMEOUT_MS,
    RESULT_TIMEOUT_S,
    Fate,
    Gate,
    OnceWriter,
)

#: Maximum number of records that wait for the client's threads: it keeps as many batches in flight as possible.
_QUEUED = 2_000
_SERVED_WITHIN_S = 0.1


class KafkaOnceWriter(OnceWriter):
    """An idempotent producer of librdkafka. Numbers its records from 0; record ``n`` has key ``n % KEYS``.

    Arguments:
        reached: connection settings of librdkafka.
        count: total number of records to send.
    """

    def __init__(self, number: int, count: int, reached: Mapping[str, str], topic: str, gate: Gate) -> None:
        super().__init__(number, count, topic, gate, f"librdkafka-{number}")
        self._under_way = 0
        self._producer = confluent_kafka.Producer(
            {
                **reached,
                "client.id": self.name,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "batch.size": BATCH_BYTES,
                "queue.buffering.max.messages": _QUEUED,
                "message.timeout.ms": DELIVERY_TIMEOUT_MS,
                "socket.timeout.ms": 5_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 2,
            }
        )

    def send_all(self) -> None:
        """Sends everything, and records the outcomes."""
        for record in range(self.count):
            if record >= self._gate.limit:
                self._settle_all()
                if not self._gate.wait_beyond(record + 1):
                    return
            self._send(record)
        self._settle_all()

    def _send(self, record: int) -> None:
        value, key = self.laid_out(record)
        on_delivery = partial(self._told, record)
        while True:
            try:
                self._producer.produce(self._topic, value, key, on_delivery=on_delivery, timestamp=self._base_ms)
                break
            except BufferError:
                self._producer.poll(_SERVED_WITHIN_S)
        self._under_way += 1
        self._producer.poll(0)

    def _settle_all(self) -> None:
        self._producer.flush(RESULT_TIMEOUT_S)
        if self._under_way:
            raise TimeoutError(f"{self._under_way} records are neither delivered nor given up: the client hangs")

    def _told(self, record: int, error: Any, message: Any) -> None:
        self._under_way -= 1
        if error is None:
            # The offset is unknown for a batch that was a duplicate.
            self.offsets[record] = max(-1, message.offset())
        self.fates[record] = Fate.UNKNOWN if error is not None else Fate.ACKNOWLEDGED
        self.settled += 1
