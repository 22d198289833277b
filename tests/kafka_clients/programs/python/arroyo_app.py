"""Passes numbers on with Arroyo, at least once: ``arroyo_app.py SERVERS``."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping

from arroyo.backends.kafka import KafkaConsumer, KafkaPayload, KafkaProducer
from arroyo.backends.kafka.configuration import build_kafka_configuration, build_kafka_consumer_configuration
from arroyo.commit import ONCE_PER_SECOND
from arroyo.processing.processor import StreamProcessor
from arroyo.processing.strategies import CommitOffsets, Produce
from arroyo.processing.strategies.abstract import ProcessingStrategy, ProcessingStrategyFactory
from arroyo.types import Commit, Partition, Topic

servers = sys.argv[1].split(",")


class PassOn(ProcessingStrategyFactory[KafkaPayload]):
    """Sends each record to ``results`` and commits it once it is acknowledged."""

    def __init__(self) -> None:
        self._producer = KafkaProducer(build_kafka_configuration({}, servers, {"enable.idempotence": True}))

    def create_with_partitions(
        self, commit: Commit, partitions: Mapping[Partition, int]
    ) -> ProcessingStrategy[KafkaPayload]:
        return Produce(self._producer, Topic("results"), CommitOffsets(commit))

    def shutdown(self) -> None:
        self._producer.close().result()


if __name__ == "__main__":
    consumer = KafkaConsumer(build_kafka_consumer_configuration({}, "arroyo", "earliest", bootstrap_servers=servers))
    processor = StreamProcessor(consumer, Topic("numbers"), PassOn(), ONCE_PER_SECOND)
    signal.signal(signal.SIGINT, lambda *_: processor.signal_shutdown())
    processor.run()
