"""Copies topics, consumer groups and offsets of an Apache Kafka cluster into this one, each record once.

- `source`: what a mirror asks of a Kafka cluster, and the client library that does it.
- `offset_map`: offsets of the source as offsets here: of records, and of what groups committed.
- `copy_intents`: what is about to be copied, written down in a compacted topic before it is.
- `target_topics`: topics like those of the source.
- `mirror`: copies lap by lap, and goes on where it stopped.
- `commands`: all of it as one call.

May import: `runtime`, `producer`, `consumer`, `admin`, and `sdk` itself.
"""
