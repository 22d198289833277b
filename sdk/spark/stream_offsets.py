"""How far a streaming query has come, as its checkpoint keeps it.

The JSON is that of Spark's Kafka source, ``{"topic": {"partition": next}}``, and one more member, whose name no topic
can have, for what a safe restart needs:

- ``ids``: each topic's id. A topic that was deleted and created anew has another one.
- ``from``: where the micro-batch that ends here begins in partitions that no micro-batch before it has read. Spark asks
  for the initial offset again when the first batch is repeated, and by then ``latest`` is elsewhere: the batch that is
  repeated must be the batch that failed.
- ``initial``: where the query begins; nothing has been read yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from quorumlog.sdk.spark.errors import CheckpointError
from quorumlog.sdk.spark.planning import OffsetRange, Partition

_EXTRAS = "$quorumlog"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """A place in the log of every partition that a query reads.

    Attributes:
        positions: of each partition the next offset to read.
        topic_ids: the topics that are meant.
        begins: where the micro-batch that ends here begins in partitions that are new in it.
        initial: the query begins here, and has read nothing yet.
    """

    positions: Mapping[Partition, int]
    topic_ids: Mapping[str, bytes]
    begins: Mapping[Partition, int] = field(default_factory=dict)
    initial: bool = False

    def to_json(self) -> dict[str, Any]:
        """As Spark keeps it; the same offset always gives the same text."""
        extras: dict[str, Any] = {
            "version": _VERSION,
            "ids": {topic: topic_id.hex() for topic, topic_id in sorted(self.topic_ids.items())},
        }
        if self.begins:
            extras["from"] = _nested(self.begins)
        if self.initial:
            extras["initial"] = True
        return {**_nested(self.positions), _EXTRAS: extras}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StreamOffset:
        """What ``to_json`` has made.

        Raises:
            CheckpointError: it is something else, or was written by a newer version.
        """
        extras = value.get(_EXTRAS)
        if not isinstance(extras, dict):
            raise CheckpointError(f"the checkpoint's offset was not written by this source: {str(value)[:200]}")
        if extras.get("version") != _VERSION:
            raise CheckpointError(
                f"the checkpoint's offset has format {extras.get('version')}, this version reads {_VERSION}: use the"
                " version of quorumlog that wrote it, or a new checkpoint"
            )
        try:
            positions = _flat({topic: places for topic, places in value.items() if topic != _EXTRAS})
            topic_ids = {str(topic): bytes.fromhex(text) for topic, text in extras["ids"].items()}
            begins = _flat(extras.get("from", {}))
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise CheckpointError(f"the checkpoint's offset is damaged ({error!r}): {str(value)[:200]}") from None
        if {topic for topic, _ in positions} != set(topic_ids) or not begins.keys() <= positions.keys():
            raise CheckpointError(f"the checkpoint's offset contradicts itself: {str(value)[:200]}")
        return cls(positions, topic_ids, begins, bool(extras.get("initial", False)))


def ranges_between(start: StreamOffset, end: StreamOffset) -> list[OffsetRange]:
    """What the micro-batch from ``start`` to ``end`` reads: a matter of these two alone, so that a batch that is
    repeated is the same batch."""
    ranges = []
    for partition, until in sorted(end.positions.items()):
        topic, number = partition
        topic_id = end.topic_ids[topic]
        begin = end.begins.get(partition)
        if begin is None:
            known = start.topic_ids.get(topic) == topic_id
            begin = start.positions.get(partition, 0) if known else 0
        if begin < until:
            ranges.append(OffsetRange(topic, topic_id, number, begin, until))
    return ranges


def _nested(places: Mapping[Partition, int]) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(places.items()):
        nested.setdefault(topic, {})[str(number)] = offset
    return nested


def _flat(nested: Mapping[str, Mapping[str, int]]) -> dict[Partition, int]:
    return {(topic, int(number)): int(offset) for topic, places in nested.items() for number, offset in places.items()}
