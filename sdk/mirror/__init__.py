"""Copies topics, consumer groups and offsets of an Apache Kafka cluster into this one, each record once.

- `source`: what a mirror asks of a Kafka cluster, and the client library that does it.
- `offset_runs`: which offset here a record has that had another one there.
- `plans`: what is about to be copied, written down in a compacted topic before it is.
- `target_topics`: topics like those of the source.
- `mirror`: copies lap by lap, and goes on where it stopped.
- `group_offsets`: what groups had committed there, as offsets here.
- `commands`: all of it as one call.

May import: `runtime`, `producer`, `consumer`, `admin`, and `sdk` itself.
"""
