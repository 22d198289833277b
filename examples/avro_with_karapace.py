"""Avro records whose schemas are in a schema registry: Confluent's serializers with quorumlog's clients.

It needs ``pip install 'confluent-kafka[avro,schemaregistry]'`` and a registry, such as Karapace, whose address is in
``SCHEMA_REGISTRY_URL`` (default: http://127.0.0.1:8081). The registry may keep its schemas in the same cluster, over
the port for Kafka's clients. Here a producer starts with one schema and continues with a newer one, and a consumer
reads both by the newer one. The registry refuses a third schema, because it could not read the former records.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import tutorial
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from quorumlog.sdk import Consumer, Producer


def order_schema(*more: dict[str, Any]) -> str:
    """Returns the Avro schema of an order, with more fields."""
    fields = [{"name": "item", "type": "string"}, {"name": "count", "type": "int"}, *more]
    return json.dumps({"type": "record", "name": "Order", "fields": fields})


FIRST = order_schema()
SECOND = order_schema({"name": "gift", "type": "boolean", "default": False})
WITHOUT_DEFAULT = order_schema({"name": "price", "type": "int"})


def serializer(registry: SchemaRegistryClient, schema: str, topic: str) -> Callable[[Any], bytes]:
    """Returns a ``value_serializer``: Confluent's also has to be given the topic, which names the subject."""
    avro, context = AvroSerializer(registry, schema), SerializationContext(topic, MessageField.VALUE)
    return lambda value: avro(value, context)


def deserializer(registry: SchemaRegistryClient, schema: str, topic: str) -> Callable[[bytes], Any]:
    """Returns a ``value_deserializer`` that reads records of other versions of the schema too."""
    avro, context = AvroDeserializer(registry, schema), SerializationContext(topic, MessageField.VALUE)
    return lambda value: avro(value, context)


def story(servers: str) -> None:
    registry = SchemaRegistryClient({"url": os.environ.get("SCHEMA_REGISTRY_URL", "http://127.0.0.1:8081")})
    with tutorial.topic(servers, "avro-orders") as topic:
        with Producer(bootstrap_servers=servers, value_serializer=serializer(registry, FIRST, topic)) as producer:
            producer.send(topic, {"item": "apples", "count": 3})
        with Producer(bootstrap_servers=servers, value_serializer=serializer(registry, SECOND, topic)) as producer:
            producer.send(topic, {"item": "pears", "count": 2, "gift": True})

        read = deserializer(registry, SECOND, topic)
        with Consumer(topic, bootstrap_servers=servers, value_deserializer=read, consumer_timeout_ms=1000) as consumer:
            for record in consumer:
                print(f"offset {record.offset}: {record.value}")

        subject = f"{topic}-value"
        print(f"versions of {subject}: {registry.get_versions(subject)}")
        try:
            registry.register_schema(subject, Schema(WITHOUT_DEFAULT, "AVRO"))
        except SchemaRegistryError as error:
            print(f"a field without a default is refused: {error.http_status_code}")


if __name__ == "__main__":
    tutorial.run(story, __doc__)
