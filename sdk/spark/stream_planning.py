"""From a query's position to the end of its next micro-batch: limits, new partitions, and removed data."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from quorumlog.sdk.spark.errors import DataLossError
from quorumlog.sdk.spark.options import ReadOptions
from quorumlog.sdk.spark.planning import (
    Bounds,
    Catalog,
    Partition,
    Selected,
    check_coverage,
    listed,
    require_topics,
    resolve,
    select,
    times_of,
)
from quorumlog.sdk.spark.rate_limits import shares
from quorumlog.sdk.spark.stream_offsets import StreamOffset

_log = logging.getLogger("quorumlog.sdk.spark")


@dataclass(frozen=True, slots=True)
class LogView:
    """The selected partitions of a query with their bounds, at one moment."""

    selected: Selected
    bounds: Mapping[Partition, Bounds]

    @classmethod
    def of(cls, catalog: Catalog, options: ReadOptions) -> LogView:
        """Returns the present view of the cluster.

        Raises:
            OptionError: option assign names a partition that its topic does not have.
        """
        selected = select(catalog, options.selection)
        bounds = catalog.bounds(selected.shapes, selected.partitions) if selected.partitions else {}
        return cls(selected, bounds)

    def topic_ids(self) -> dict[str, bytes]:
        """Returns the ids of the topics that are read."""
        return {topic: self.selected.shapes[topic].topic_id for topic, _ in self.selected.partitions}


@dataclass(frozen=True, slots=True)
class Standing:
    """A query's position in the present log.

    Attributes:
        floor: the first offset of each partition that can be read next.
        starts: start offsets of partitions that no micro-batch has read before.
        view: the log.
        lost: offsets that the query had yet to read were skipped.
    """

    floor: Mapping[Partition, int]
    begins: Mapping[Partition, int]
    view: LogView
    lost: bool = False

    @property
    def backlog(self) -> dict[Partition, int]:
        """Number of waiting offsets in each partition."""
        return {partition: self.view.bounds[partition].end - at for partition, at in self.floor.items()}

    def after(self, most: int | None) -> StreamOffset:
        """Returns the end of a micro-batch that starts here and covers all waiting offsets, or about ``most`` of
        them."""
        backlog = self.backlog
        taken = backlog if most is None else shares(most, backlog)
        positions = {partition: at + taken[partition] for partition, at in self.floor.items()}
        return StreamOffset(positions, self.view.topic_ids(), self.begins)


def initial_offset(catalog: Catalog, options: ReadOptions, target: LogView | None) -> StreamOffset:
    """Returns the start of a new query.

    Arguments:
        target: with Trigger.AvailableNow the log at the start of the query, which decides its end.

    Raises:
        OptionError: a topic or partition does not exist, or offsets name the wrong partitions.
        DataLossError: requested offsets do not exist and failOnDataLoss is on.
    """
    selected = target.selected if target is not None else select(catalog, options.selection)
    require_topics(selected.missing, options.selection)
    check_coverage(options.starting, selected.partitions, options.selection)
    found = times_of(catalog, options.starting, selected)
    if target is None:
        bounds = catalog.bounds(selected.shapes, selected.partitions) if selected.partitions else {}
        target = LogView(selected, bounds)
    positions = {
        partition: resolve(options.starting, partition, target.bounds[partition], found, options.fail_on_data_loss)
        for partition in selected.partitions
    }
    return StreamOffset(positions, target.topic_ids(), initial=True)


def seems_changed(start: StreamOffset, view: LogView) -> bool:
    """True if a topic that the query has read seems deleted or recreated: a newer view must confirm it."""
    topic_ids = view.topic_ids()
    return any(topic_ids.get(topic) != topic_id for topic, topic_id in start.topic_ids.items()) or not (
        start.positions.keys() <= view.bounds.keys()
    )


def standing(start: StreamOffset, view: LogView, options: ReadOptions) -> Standing:
    """Compares a query's position with the present log.

    Raises:
        DataLossError: offsets that the query has yet to read are gone, and failOnDataLoss is on.
        OptionError: a named topic that the query has not read so far does not exist, and failOnDataLoss is on.
    """
    if options.fail_on_data_loss:
        require_topics([topic for topic in view.selected.missing if topic not in start.topic_ids], options.selection)
    known, losses = _still_there(start, view, options.selection.option)
    floor: dict[Partition, int] = {}
    begins: dict[Partition, int] = {}
    for partition in view.selected.partitions:
        log_start, end = view.bounds[partition]
        position = known.get(partition, 0)
        if position < log_start:
            losses.append(_overtaken(partition, position, log_start, partition in known))
        if position > end:
            losses.append(_shrunk(partition, position, end))
        floor[partition] = min(max(position, log_start), end)
        if partition not in known or start.initial:
            begins[partition] = floor[partition]
    if losses and options.fail_on_data_loss:
        raise DataLossError(
            f"{losses[0]}: start with a new checkpoint, or set failOnDataLoss to false to continue without it"
        )
    for loss in losses:
        _log.warning("going on, since failOnDataLoss is false: %s", loss)
    return Standing(floor, begins, view, bool(losses))


def _still_there(start: StreamOffset, view: LogView, option: str) -> tuple[dict[Partition, int], list[str]]:
    """Returns the positions in partitions that still exist as the query has read them, and descriptions of losses."""
    topic_ids = view.topic_ids()
    losses: list[str] = []
    for topic, topic_id in start.topic_ids.items():
        if topic not in topic_ids:
            losses.append(
                f"topic {topic}, which the query has read so far, no longer exists, or is not selected by option"
                f" {option}"
            )
        elif topic_ids[topic] != topic_id:
            losses.append(f"topic {topic}, which the query has read so far, was deleted and created again")
    same = {
        (topic, number): position
        for (topic, number), position in start.positions.items()
        if topic_ids.get(topic) == start.topic_ids[topic]
    }
    gone = sorted(same.keys() - view.bounds.keys())
    if gone:
        losses.append(f"{listed(gone)}, which the query has read so far, are not selected by option {option}")
    return {partition: position for partition, position in same.items() if partition in view.bounds}, losses


def _overtaken(partition: Partition, position: int, log_start: int, read_before: bool) -> str:
    topic, number = partition
    standing_at = "the query has come to" if read_before else "a partition that is new to the query is read from"
    return (
        f"topic {topic} partition {number}: offsets [{position}, {log_start}) are gone, {standing_at} {position};"
        " retention or delete-records removed them"
    )


def _shrunk(partition: Partition, position: int, end: int) -> str:
    topic, number = partition
    return f"topic {topic} partition {number} ends at offset {end}, and the query has come to {position}"
