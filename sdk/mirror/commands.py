"""A mirror as one call that runs until it is done or stopped."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import NamedTuple, Unpack

from quorumlog.sdk.admin.admin import Admin
from quorumlog.sdk.consumer.consumer import Consumer
from quorumlog.sdk.errors import IllegalArgumentError
from quorumlog.sdk.mirror.copy_intents import MirrorPlans, producer_name
from quorumlog.sdk.mirror.mirror import Mirror
from quorumlog.sdk.mirror.offset_map import GroupOffsets
from quorumlog.sdk.mirror.source import MirrorSource, SourceRecord
from quorumlog.sdk.mirror.target_topics import chosen, make_topics, partitions_of
from quorumlog.sdk.producer.delivery import RecordFuture
from quorumlog.sdk.producer.producer import Producer
from quorumlog.sdk.runtime.security import SecurityOptions
from quorumlog.sdk.types import TopicPartition

#: Interval of copying group offsets while the mirror follows.
GROUPS_EVERY_S = 10.0
#: Batches fit into every topic that ``make_topics`` has created; a record may be as large as any topic accepts.
_BATCH_BYTES, _REQUEST_BYTES = 48 << 10, 8 << 20
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,100}")


class MirrorReport(NamedTuple):
    """Counts of what this run copied."""

    topics: int
    partitions: int
    records: int
    groups: int


def mirror(
    source: MirrorSource,
    *,
    bootstrap_servers: str,
    name: str = "kafka",
    topics: Sequence[str] | None = None,
    with_groups: bool = True,
    follow: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
    progress: Callable[[int], None] = lambda _records: None,
    **security: Unpack[SecurityOptions],
) -> MirrorReport:
    """Copies topics, records and committed offsets of groups into a cluster, each record once and in order.
    Called again with the same name, it resumes, also after a crash.

    Arguments:
        source: the cluster to copy.
        name: name under which progress is stored, 1 to 100 characters of ``[a-zA-Z0-9._-]``.
        topics: only these; None: all except internal topics of the source.
        with_groups: copy committed offsets of groups.
        follow: continue with new records until stopped; otherwise end at the present end of the source.
        should_stop: called between laps, several times a second; True stops the mirror.
        progress: called with the number of records copied so far.
        security: options for TLS and authentication for this cluster, as for clients.

    Raises:
        IllegalArgumentError: the name is invalid, or the source lacks a topic.
        IllegalStateError: a topic has records that were not copied, the name belongs to a mirror of another cluster,
            another mirror of the name has started, or the source has changed records of an incomplete lap.
        QuorumlogError: something could not be read or written. Another call resumes.
    """
    if not _NAME.fullmatch(name):
        raise IllegalArgumentError(f"mirror name {name!r}: give 1 to 100 characters of a-z, A-Z, 0-9, '.', '_' and '-'")
    with ExitStack() as open_:
        admin = open_.enter_context(Admin(bootstrap_servers=bootstrap_servers, **security))
        admin.list_topics()  # A wrong address fails before anything is created.
        cluster_id = source.cluster_id()
        wanted = chosen(source.topics(), topics)
        written = open_.enter_context(MirrorPlans(name, cluster_id, admin, bootstrap_servers, **security))
        plans = written.load()
        consumer = open_.enter_context(Consumer(bootstrap_servers=bootstrap_servers, **security))

        def end(topic: str, number: int) -> int:
            place = TopicPartition(topic, number)
            return consumer.end_offsets([place])[place]

        make_topics(admin, wanted, {tp.topic for tp in plans}, end)

        def send(lap: int, records: Iterable[SourceRecord], latest_ms: int) -> dict[TopicPartition, int]:
            return _send_lap(bootstrap_servers, security, name, lap, records, latest_ms)

        compacted = (topic.name for topic in wanted if "compact" in topic.configs.get("cleanup.policy", ""))
        copier = Mirror(source, written, send, partitions_of(wanted), compacted)
        groups = GroupOffsets(admin, copier.runs)
        copier.resume(plans)
        looked_s = time.monotonic()
        while not should_stop():
            copied = copier.lap()
            progress(copier.records)
            if not follow and not copied and copier.is_at_end:
                break
            if follow and with_groups and time.monotonic() - looked_s >= GROUPS_EVERY_S:
                groups.copy(source.group_offsets())
                looked_s = time.monotonic()
        copier.finish()
        count = groups.copy(source.group_offsets()) if with_groups else 0
        return MirrorReport(len(wanted), len(partitions_of(wanted)), copier.records, count)


def _timestamp_ms(record: SourceRecord, latest_ms: int) -> int:
    """Returns the timestamp of a copied record.

    A record without one gets the time at which its lap was planned, approximately the time of the copy: retention
    counts from there. It must not be the current time, because a repeated lap must have the same records.
    """
    return latest_ms if record.timestamp_ms is None else min(record.timestamp_ms, latest_ms)


def _send_lap(
    servers: str,
    security: SecurityOptions,
    name: str,
    lap: int,
    records: Iterable[SourceRecord],
    latest_ms: int,
) -> dict[TopicPartition, int]:
    last: dict[TopicPartition, RecordFuture] = {}
    with Producer(
        bootstrap_servers=servers,
        producer_name=producer_name(name),
        producer_epoch=lap,
        batch_size=_BATCH_BYTES,
        max_request_size=_REQUEST_BYTES,
        **security,
    ) as producer:
        for record in records:
            topic, partition = record.partition
            last[record.partition] = producer.send(
                topic,
                record.value,
                key=record.key,
                headers=record.headers,
                partition=partition,
                timestamp_ms=_timestamp_ms(record, latest_ms),
            )
        producer.end_epoch()
        return {place: future.result().offset for place, future in last.items()}
