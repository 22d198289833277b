"""A mirror as one call that runs until it is done, or until it is told to stop."""

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

#: How often groups are looked at while the mirror follows.
GROUPS_EVERY_S = 10.0
#: Batches fit into every topic that ``make_topics`` has made; a record may be as large as any topic takes.
_BATCH_BYTES, _REQUEST_BYTES = 48 << 10, 8 << 20
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,100}")


class MirrorReport(NamedTuple):
    """What was copied by this run."""

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
    """Copies topics with their records, and what consumer groups have committed, into a cluster. Called again with the
    same name it goes on. Each record is there once, in the order of its partition, whatever ends it.

    Arguments:
        source: the cluster that is copied.
        name: of the mirror, 1 to 100 characters of ``[a-zA-Z0-9._-]``: under it is written down how far it is.
        topics: only these; None: all but those of the source itself.
        with_groups: copy what groups have committed.
        follow: go on with what comes, until told to stop; otherwise end where the source ends.
        should_stop: asked between laps, several times a second.
        progress: is told the records copied so far.
        security: how this cluster is reached, as clients are told.

    Raises:
        IllegalArgumentError: the name is none, or the source lacks a topic.
        IllegalStateError: a topic has records that were not copied, the name is of a mirror of another cluster,
            another mirror of the name has begun, or the source has changed what was half copied.
        QuorumlogError: something could not be read or written. Doing it again goes on where it was.
    """
    if not _NAME.fullmatch(name):
        raise IllegalArgumentError(f"mirror name {name!r}: give 1 to 100 characters of a-z, A-Z, 0-9, '.', '_' and '-'")
    with ExitStack() as open_:
        admin = open_.enter_context(Admin(bootstrap_servers=bootstrap_servers, **security))
        admin.list_topics()  # Who types a wrong address is told so before anything is made.
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

    A record without one gets the time at which its lap was planned, about when it is copied: retention counts from
    there. It must not be the clock's time, because a lap that is sent again has to have the same records.
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
