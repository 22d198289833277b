"""The progress of a streaming query, in the format of its checkpoint.

The JSON is that of Spark's Kafka source, ``{"topic": {"partition": next}}``, and one more member, whose name no topic
can have, for a safe restart:

- ``ids``: each topic's id. A topic that was deleted and created again has another one.
- ``from``: start offsets of the micro-batch that ends here, in partitions that no micro-batch before it has read. Spark
  asks for the initial offset again when the first batch is repeated, and by then ``latest`` is elsewhere: the repeated
  batch must be the batch that failed.
- ``initial``: the start of the query; nothing has been read yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from quorumlog.sdk.spark.errors import CheckpointError
from quorumlog.sdk.spark.planning import OffsetRange, Partition

_EXTRAS = "$quorumlog"
_VERSION = 1
_TOPIC_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """A position in every partition that a query reads.

    Attributes:
        positions: the next offset to read in each partition.
        topic_ids: ids of the topics.
        starts: start offsets of the micro-batch that ends here, in partitions that are new in it.
        initial: the query starts here, and has read nothing yet.
    """

    positions: Mapping[Partition, int]
    topic_ids: Mapping[str, bytes]
    begins: Mapping[Partition, int] = field(default_factory=dict)
    initial: bool = False

    def to_json(self) -> dict[str, Any]:
        """Returns the stored form; the same offset always has the same text."""
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
    def from_json(cls, value: object) -> StreamOffset:
        """Parses the result of ``to_json``.

        Raises:
            CheckpointError: it has another format, or was written by a newer version.
        """
        if not isinstance(value, dict) or not isinstance(value.get(_EXTRAS), dict):
            raise CheckpointError(
                f"the checkpoint's offset was not written by this source: {str(value)[:200]}; use a checkpoint of its"
                " own for each query"
            )
        extras = value[_EXTRAS]
        if extras.get("version") != _VERSION:
            raise CheckpointError(
                f"the checkpoint's offset has format {extras.get('version')}, this version reads {_VERSION}: use the"
                " version of quorumlog that wrote it, or a new checkpoint"
            )
        try:
            positions = _flat({topic: places for topic, places in value.items() if topic != _EXTRAS})
            topic_ids = {topic: _topic_id(text) for topic, text in extras["ids"].items()}
            begins = _flat(extras.get("from", {}))
            if {topic for topic, _ in positions} != set(topic_ids) or not begins.keys() <= positions.keys():
                raise ValueError("it contradicts itself")
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"the checkpoint's offset is damaged ({error!r}): {str(value)[:200]}; restore it, or use a new one"
            ) from None
        return cls(positions, topic_ids, begins, bool(extras.get("initial", False)))


def ranges_between(start: StreamOffset, end: StreamOffset) -> list[OffsetRange]:
    """Returns the ranges of the micro-batch from ``start`` to ``end``; they depend on these two alone, so that a
    repeated batch is the same batch."""
    if end.initial:
        # The first micro-batch had nothing to read. A new look-up of the query's start might return an earlier offset
        # by now.
        return []
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


def _flat(nested: Mapping[str, Mapping[str, object]]) -> dict[Partition, int]:
    """Flattens the result of ``_nested`` strictly: an almost valid position would read other records."""
    flat: dict[Partition, int] = {}
    for topic, places in nested.items():
        for number, offset in places.items():
            if not (number.isascii() and number.isdigit() and int(number) < 1 << 31):
                raise ValueError(f"{topic} has no partition {number!r}")
            if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset < 1 << 63:
                raise ValueError(f"{offset!r} of {topic} partition {number} is not an offset")
            flat[topic, int(number)] = offset
    return flat


def _topic_id(text: str) -> bytes:
    topic_id = bytes.fromhex(text)
    if len(topic_id) != _TOPIC_ID_BYTES:
        raise ValueError(f"{text!r} is not a topic's id")
    return topic_id
