"""Copies topics, consumer groups and offsets of an Apache Kafka cluster into this one, each record once.

- `source`: the source cluster, accessed through confluent-kafka.
- `offset_map`: maps offsets of the source to offsets here, of records and of committed offsets.
- `copy_intents`: plans of what is about to be copied, stored in a compacted topic beforehand.
- `target_topics`: creates topics like those of the source.
- `mirror`: copies lap by lap, and resumes where it stopped.
- `commands`: the whole mirror as one call.

May import: `runtime`, `producer`, `consumer`, `admin`, and `sdk` itself.
"""
