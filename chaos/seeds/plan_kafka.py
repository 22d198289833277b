"""What a seed decides of Kafka's clients: who writes as they do, and who reads in their fetch sessions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from quorumlog.chaos.simulator.clients import PartitionName, SimProducerOptions
from quorumlog.chaos.simulator.kafka_readers import KafkaReaderPlan
from quorumlog.server.kafka.mapping.fetch_session import MOST_KEPT_PARTITIONS

#: Partitions of one reader.
MOST_READ = 8


@dataclass(slots=True)
class KafkaReading:
    """The readers of a seed, and what there is room for.

    Arguments:
        kept_partitions: how many the sessions at one node's port may have together.
        node_sessions: how many sessions a node keeps; None: as many as others.
    """

    readers: list[KafkaReaderPlan] = field(default_factory=list)
    kept_partitions: int = MOST_KEPT_PARTITIONS
    node_sessions: int | None = None


def draw_kafka_batches(rng: random.Random, producers: dict[str, SimProducerOptions]) -> None:
    """Batches of Kafka's clients, between others or alone. Named producers have no such clients."""
    if rng.random() > 0.2:
        return
    for name, options in producers.items():
        producers[name] = replace(options, kafka=0.0 if options.named else rng.choice((0.0, 0.3, 1.0)))


def draw_kafka_reading(rng: random.Random, partitions: Sequence[PartitionName]) -> KafkaReading:
    """One reader or two, in one seed of seven."""
    if rng.random() > 1 / 7:
        return KafkaReading()
    readers = [
        KafkaReaderPlan(
            f"kafka-reader-{number}",
            tuple(rng.sample(partitions, min(MOST_READ, len(partitions)))),
            by_id=rng.random() < 0.5,
            names_epochs=rng.random() < 0.5,
            throws_away=rng.choice((0.0, 0.1, 0.4)),
            leaves_out=rng.choice((0.0, 0.05, 0.3)),
            breaks=rng.choice((0.0, 0.02, 0.1)),
            begins_anew=rng.choice((0.0, 0.02, 0.1)),
            max_bytes=rng.choice(((1 << 20,), (300, 4_000, 1 << 20))),
            max_wait_ms=rng.choice((0, 20, 200)),
        )
        for number in range(rng.choice((1, 1, 2)))
    ]
    room = rng.random()
    return KafkaReading(readers, 3 if room < 0.15 else MOST_KEPT_PARTITIONS, 1 if room > 0.85 else None)
