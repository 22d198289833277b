"""A mirror as one call that runs until it is done or stopped."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple, Unpack

from quorumlog.sdk.admin.admin import Admin
from quorumlog.sdk.consumer.consumer import Consumer
from quorumlog.sdk.errors import IllegalArgumentError, IllegalStateError, QuorumlogError
from quorumlog.sdk.metrics.prometheus import serve
from quorumlog.sdk.mirror.copy_intents import TOPIC as PLANS
from quorumlog.sdk.mirror.copy_intents import MirrorIdentity, MirrorPlans, mirrors_into, producer_name
from quorumlog.sdk.mirror.mirror import LapOptions, Mirror
from quorumlog.sdk.mirror.offset_map import GroupOffsets, translated
from quorumlog.sdk.mirror.origins import both_ways, headers_with_origin
from quorumlog.sdk.mirror.source import MirrorSource, SourceRecord, SourceTopic
from quorumlog.sdk.mirror.target_topics import TargetTopics, TopicRules, partitions_of
from quorumlog.sdk.producer.delivery import RecordFuture
from quorumlog.sdk.producer.producer import Producer
from quorumlog.sdk.runtime.properties_file import properties_of
from quorumlog.sdk.runtime.security import SecurityOptions
from quorumlog.sdk.types import TopicPartition

#: Interval of copying group offsets while the mirror follows, and of reading the file of paused topics.
GROUPS_EVERY_S, PAUSED_EVERY_S = 10.0, 1.0
#: Batches fit into every topic that was created like its source; a record may be as large as any topic accepts.
_BATCH_BYTES, _REQUEST_BYTES = 48 << 10, 8 << 20
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,100}")
_log = logging.getLogger(__name__)


class MirrorReport(NamedTuple):
    """Counts of what this run copied."""

    topics: int
    partitions: int
    records: int
    groups: int


@dataclass(slots=True, frozen=True)
class MirrorOptions:
    """Options of a mirror.

    Arguments:
        name: name under which progress is stored, 1 to 100 characters of ``[a-zA-Z0-9._-]``.
        rules: which topics are copied, and under which names; by default all except internal topics of the source.
        with_groups: copy committed offsets of groups.
        follow: continue with new records, topics, partitions and settings until stopped; otherwise end at the present
            end of the source.
        bidirectional: another mirror copies the target into the source: mark records with their origin, and do not send
            those back that came from the target.
        skip_to: offset at which a partition continues behind a batch that cannot be read.
        refresh_s: interval of looking for new topics, partitions and settings.
        paused: file with names or patterns of topics that are not copied for now, one on each line. It is read again
            every second.
        metrics_listen: host:port where Prometheus metrics are served.

    Raises:
        IllegalArgumentError: the name is invalid, or options exclude each other.
    """

    name: str = "kafka"
    rules: TopicRules = field(default_factory=TopicRules)
    with_groups: bool = True
    follow: bool = False
    bidirectional: bool = False
    skip_to: Mapping[TopicPartition, int] = field(default_factory=dict)
    refresh_s: float = 30.0
    paused: Path | None = None
    metrics_listen: str | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise IllegalArgumentError(
                f"mirror name {self.name!r}: give 1 to 100 characters of a-z, A-Z, 0-9, '.', '_' and '-'"
            )
        if self.bidirectional and self.rules.renames:
            raise IllegalArgumentError(
                "--rename and --bidirectional exclude each other: topics with the name of their cluster need no"
                " --bidirectional"
            )


def mirror(
    source: MirrorSource,
    *,
    bootstrap_servers: str,
    options: MirrorOptions = MirrorOptions(),
    should_stop: Callable[[], bool] = lambda: False,
    progress: Callable[[int], None] = lambda _records: None,
    **security: Unpack[SecurityOptions],
) -> MirrorReport:
    """Copies topics, records and committed offsets of groups into a cluster, each record once and in order.
    Called again with the same name, it resumes, also after a crash.

    Arguments:
        source: the cluster to copy.
        should_stop: called between laps, several times a second; True stops the mirror.
        progress: called with the number of records copied so far.
        security: options for TLS and authentication for this cluster, as for clients.

    Raises:
        IllegalArgumentError: the source lacks a topic, or an address cannot be used.
        IllegalStateError: a topic has records that were not copied, the name belongs to another mirror, another mirror
            of the name has started, records would be copied in a circle, or the source has a batch that cannot be read
            or has changed records of an incomplete lap.
        QuorumlogError: something could not be read or written. Another call resumes.
    """
    with ExitStack() as open_:
        run = _Run(source, bootstrap_servers, options, security, open_)
        run.begin()
        if options.metrics_listen is not None:
            open_.callback(serve(options.metrics_listen, {options.name: run.copier}))
        while not should_stop():
            copied = run.copier.lap()
            progress(run.copier.records)
            if options.follow:
                run.follow()
            elif run.copier.set_aside:
                raise IllegalStateError(next(iter(run.copier.set_aside.values())))
            elif not copied and run.copier.is_at_end:
                break
        return run.finish()


class _Run:
    """One run of a mirror.

    Arguments:
        open_: closes what the run opens.
    """

    def __init__(
        self, source: MirrorSource, servers: str, options: MirrorOptions, security: SecurityOptions, open_: ExitStack
    ) -> None:
        self._source, self._options = source, options
        self._servers, self._security = servers, security
        self._admin = open_.enter_context(Admin(bootstrap_servers=servers, **security))
        self._admin.list_topics()  # A wrong address fails before anything is created.
        self._source_id, target_id = source.cluster_id(), self._admin.describe_cluster().cluster_id
        listed = source.topics()
        self._rules = self._rules_beside_opposite(listed, target_id)
        self._wanted = self._rules.chosen(listed)
        identity = MirrorIdentity(self._source_id, options.bidirectional, options.rules.renames)
        self._written = open_.enter_context(MirrorPlans(options.name, identity, self._admin, servers, **security))
        self._consumer = open_.enter_context(Consumer(bootstrap_servers=servers, **security))
        wins = self._source_id < target_id if options.bidirectional else None
        self._targets = TargetTopics(self._admin, self._rules, self._written, self._end, wins)
        copying = LapOptions(target_id if options.bidirectional else None, options.skip_to)
        self.copier = Mirror(source, self._written, self._send_lap, copying)
        self._groups = GroupOffsets(self._admin, self._here)
        self._planned: set[str] = set()
        self._looked_s = self._copied_groups_s = self._read_paused_s = time.monotonic()
        #: Lines of the file of paused topics; None before it was read.
        self._paused: tuple[str, ...] | None = None
        self._pause_problem = ""

    def begin(self) -> None:
        """Resumes where the run before ended."""
        plans = self._written.load()
        if self._options.bidirectional:
            self._check_one_way()
        self._planned = {tp.topic for tp in plans}
        self.copier.load(plans)
        self._make(self._wanted, self._targets.make)
        self._pause()
        self.copier.resume(partitions_of(self._wanted))

    def follow(self) -> None:
        """Does what is due between two laps."""
        now_s = time.monotonic()
        if now_s - self._read_paused_s >= PAUSED_EVERY_S:
            self._pause()
            self._read_paused_s = now_s
        if now_s - self._looked_s >= self._options.refresh_s:
            self._try("looking for changes of topics", self._look)
            self._looked_s = time.monotonic()
        if self._options.with_groups and now_s - self._copied_groups_s >= GROUPS_EVERY_S:
            self._try("copying offsets of groups", lambda: self._groups.copy(self._source.group_offsets()))
            self._copied_groups_s = time.monotonic()

    def finish(self) -> MirrorReport:
        """Stores the progress, and copies the offsets of groups again."""
        self.copier.finish()
        count = self._groups.copy(self._source.group_offsets()) if self._options.with_groups else 0
        return MirrorReport(len(self._wanted), len(self.copier.partitions), self.copier.records, count)

    # -- topics -------------------------------------------------------------------------------------------------------

    def _rules_beside_opposite(self, listed: Iterable[SourceTopic], target_id: str) -> TopicRules:
        """Returns the rules without topics that a mirror of the opposite direction has brought under other names.

        Raises:
            IllegalArgumentError: both clusters are the same.
            IllegalStateError: records would be copied in a circle.
        """
        rules = self._options.rules
        if self._source_id == target_id:
            raise IllegalArgumentError(f"source and target are the same cluster, {target_id}: give another --from")
        opposite = mirrors_into(self._source) if any(topic.name == PLANS for topic in listed) else {}
        for name, other in opposite.items():
            if other.source != target_id:
                continue
            if other.bidirectional is not self._options.bidirectional:
                raise IllegalStateError(
                    f"mirror {name} copies this cluster into the source {'with' if other.bidirectional else 'without'}"
                    " --bidirectional: records would be copied in a circle. Start both mirrors with it, under new names"
                )
            if not other.bidirectional:
                _log.warning(
                    "mirror %s copies this cluster into the source: if both copy the same topics, start both with"
                    " --bidirectional", name,
                )  # fmt: skip
            rules = replace(rules, excluded=(*rules.excluded, *(each.partition("=")[2] for each in other.renames)))
        return rules

    def _check_one_way(self) -> None:
        for name, other in self._written.mirrors.items():
            if other.source == self._source_id and not other.bidirectional and not other.renames:
                raise IllegalStateError(
                    f"mirror {name} has copied the source without --bidirectional: its copies do not show their origin"
                    " and would be sent back. Mirror both directions between clusters without such copies"
                )

    def _make(self, wanted: list[SourceTopic], make: Callable[..., list[SourceTopic] | None]) -> list[SourceTopic]:
        missing = self._targets.missing(wanted)
        self.copier.forget(partitions_of(topic for topic in wanted if topic.name in missing))
        made = make(wanted, self._planned)
        found = wanted if made is None else made
        self._planned |= {topic.name for topic in found}
        self.copier.declare_compacted(
            topic.name for topic in wanted if "compact" in topic.configs.get("cleanup.policy", "")
        )
        return found

    def _look(self) -> None:
        """Follows the topics of the source."""
        listed = self._source.topics()
        there = {topic.name for topic in listed}
        gone = {tp.topic for tp in self.copier.partitions} - there
        for name in sorted(gone):
            _log.warning("topic %s was deleted in the source: it stays here, and is no longer copied", name)
        self.copier.drop(gone)
        wanted = self._make(self._rules.chosen(listed, strict=False), self._targets.follow)
        for topic in wanted:
            if topic.name not in {each.name for each in self._wanted}:
                _log.info("topic %s is new in the source: it is copied from now on", topic.name)
        self._wanted = wanted
        self.copier.add(partitions_of(wanted))

    def _pause(self) -> None:
        if self._options.paused is None:
            return
        try:
            lines = tuple(key for _, key, _ in properties_of(self._options.paused))
        except (OSError, UnicodeDecodeError) as problem:
            line = f"cannot read the file of paused topics: {problem}"
            if self._paused is None:
                raise IllegalArgumentError(line) from None
            if line != self._pause_problem:
                _log.error("%s; the same ones stay paused", line)
            self._pause_problem = line
            return
        self._pause_problem = ""
        topics = {topic.name for topic in self._wanted if any(fnmatchcase(topic.name, each) for each in lines)}
        if lines != self._paused:
            self._paused = lines
            _log.info("paused topics: %s", ", ".join(sorted(topics)) or "none")
        self.copier.pause(topics)

    def _try(self, what: str, call: Callable[[], object]) -> None:
        """Does what can be done again later if a node does not answer now."""
        try:
            call()
        except QuorumlogError as problem:
            if not problem.retriable:
                raise
            _log.warning("%s failed and will be repeated: %s", what, problem.message)

    # -- records ------------------------------------------------------------------------------------------------------

    def _end(self, topic: str, number: int) -> int:
        place = TopicPartition(topic, number)
        return self._consumer.end_offsets([place])[place]

    def _here(self, place: TopicPartition, offset: int) -> tuple[TopicPartition, int] | None:
        runs = self.copier.runs(place)
        if self._options.bidirectional:
            at = both_ways(runs, self.copier.returned(place), offset)
        else:
            at = translated(runs, offset)
        return None if at is None else (TopicPartition(self._rules.renamed(place.topic), place.partition), at)

    def _send_lap(self, lap: int, records: Iterable[SourceRecord], latest_ms: int) -> dict[TopicPartition, list[int]]:
        sent: dict[TopicPartition, list[RecordFuture]] = {}
        bidirectional = self._options.bidirectional
        with Producer(
            bootstrap_servers=self._servers,
            producer_name=producer_name(self._options.name),
            producer_epoch=lap,
            batch_size=_BATCH_BYTES,
            max_request_size=_REQUEST_BYTES,
            **self._security,
        ) as producer:
            for record in records:
                future = producer.send(
                    self._rules.renamed(record.partition.topic),
                    record.value,
                    key=record.key,
                    headers=headers_with_origin(record, self._source_id) if bidirectional else record.headers,
                    partition=record.partition.partition,
                    timestamp_ms=_timestamp_ms(record, latest_ms),
                )
                sent.setdefault(record.partition, []).append(future)
            producer.end_epoch()
            return {place: [future.result().offset for future in futures] for place, futures in sent.items()}


def _timestamp_ms(record: SourceRecord, latest_ms: int) -> int:
    """Returns the timestamp of a copied record.

    A record without one gets the time at which its lap was planned, approximately the time of the copy: retention
    counts from there. It must not be the current time, because a repeated lap must have the same records.
    """
    return latest_ms if record.timestamp_ms is None else min(record.timestamp_ms, latest_ms)
