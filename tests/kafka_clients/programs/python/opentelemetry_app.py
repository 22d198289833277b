"""Passes numbers on with confluent-kafka, instrumented by OpenTelemetry: ``opentelemetry_app.py SERVERS``.

Each result has a ``traceparent`` header.
"""

from __future__ import annotations

import signal
import sys

import confluent_kafka
from opentelemetry import trace
from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor
from opentelemetry.sdk.trace import TracerProvider

servers = sys.argv[1]
trace.set_tracer_provider(TracerProvider())
ConfluentKafkaInstrumentor().instrument()
# The instrumentation replaces the classes of the module: import them after it.
consumer = confluent_kafka.Consumer(
    {
        "bootstrap.servers": servers,
        "group.id": "opentelemetry",
        "auto.offset.reset": "earliest",
        "enable.auto.offset.store": False,
    }
)
producer = confluent_kafka.Producer({"bootstrap.servers": servers, "enable.idempotence": True})
stopping: list[int] = []
signal.signal(signal.SIGINT, lambda number, _: stopping.append(number))
consumer.subscribe(["numbers"])
while not stopping:
    record = consumer.poll(0.2)
    if record is not None and record.error() is None:
        producer.produce("results", record.value(), record.key())
        producer.flush()
        consumer.store_offsets(record)
consumer.close()
