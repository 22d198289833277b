"""Copies topics, consumer groups and offsets of an Apache Kafka cluster into this one, each record once.

- `security_script`: users and ACLs of the source as a script that creates them here.
- `source`: the source cluster, accessed through confluent-kafka.
- `offset_map`: maps offsets of the source to offsets here, of records and of committed offsets.
- `origins`: headers that show where records come from, and offsets of groups, for mirrors in both directions.
- `copy_intents`: plans of what is about to be copied, stored in a compacted topic beforehand.
- `target_topics`: selects topics, and creates and changes those here like those of the source.
- `mirror`: copies lap by lap, and resumes where it stopped.
- `commands`: the whole mirror as one call.

May import: `runtime`, `metrics`, `producer`, `consumer`, `admin`, and `sdk` itself.
"""
