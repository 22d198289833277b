"""Creates a backup of a running cluster, or adds new data to one.

The order makes it consistent. First the committed offsets of groups, then the end of each partition with its records
and producers up to that end, then the producer names, and finally the list of topics that still exist. So no group is
ahead of the records, no partition has a producer whose records are missing, and no producer is ahead of its name.

If the cluster has transactions, their commits are held while the groups and the ends of all partitions are read: the
backup has all of a transaction, or nothing of it. Outside of transactions each partition is consistent at a moment of
its own: of records written to two partitions at once, the backup may have only one, as after any failure of their
producer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from quorumlog.sdk.admin.group_admin import GroupAdmin
from quorumlog.sdk.backup.commit_hold import BackupHold
from quorumlog.sdk.backup.concurrency import for_each_partition
from quorumlog.sdk.backup.manifest import (
    MANIFEST,
    CommittedBackup,
    GroupBackup,
    Manifest,
    PartitionBackup,
    ProducerNameBackup,
    TopicBackup,
    read_manifest,
)
from quorumlog.sdk.backup.partition_copy import CopyOptions, PartitionCopy, PartitionCut
from quorumlog.sdk.backup.sizes import SHIPPED_SIZES, BackupSizes
from quorumlog.sdk.backup.store import BackupStore
from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.errors import (
    IllegalArgumentError,
    IllegalStateError,
    QuorumlogError,
    UnknownTopicOrPartitionError,
    error_from_proto,
)
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1 import admin_pb2, data_plane_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.topic_names import GROUPS_TOPIC, TRANSACTIONS_TOPIC

_DELETE_RETENTION = "delete.retention.ms"
_DAY_MS = 86_400_000
#: Attempts to look at all partitions between two commits, and the pause after one: coordinators accept the next hold
#: when the last one has been over for as long as it lasted.
CUT_ATTEMPTS = 3
CUT_PAUSE_S = 5.0
#: Feature level from which on clusters have transactions.
_TRANSACTIONS_FROM_LEVEL = 3


class BackupReport(NamedTuple):
    """The result of a backup.

    Arguments:
        copied_bytes: of batches that were copied now.
        kept_bytes: of batches that were already in the backup.
        notes: restrictions of the backup for its users, a line each.
    """

    manifest: Manifest
    copied_bytes: int
    kept_bytes: int
    notes: tuple[str, ...]


class _TopicSource(NamedTuple):
    """A topic at the start of the backup."""

    name: str
    topic_id: bytes
    configs: dict[str, str]
    partitions: int
    replication_factor: int


#: The cuts of partitions by topic and number.
_Cuts = Mapping[tuple[str, int], PartitionCut]


class BackupCreation:
    """Creates one backup.

    Arguments:
        topics: only these; None: all except the cluster's own.
        limit_s: time limit of one request.
        progress: called with the bytes copied so far.
        sizes: of requests, and of segments.
    """

    def __init__(
        self,
        cluster: Cluster,
        store: BackupStore,
        topics: Sequence[str] | None,
        limit_s: float,
        progress: Callable[[int], None],
        sizes: BackupSizes = SHIPPED_SIZES,
    ) -> None:
        self._cluster = cluster
        self._runtime = cluster.runtime
        self._store = store
        self._topics = topics
        self._limit_s = limit_s
        self._progress = progress
        self._sizes = sizes
        self._copied_bytes = 0
        self._notes: list[str] = []
        self._cut_transactions = False

    async def create(self) -> BackupReport:
        """Creates the backup. Its manifest is written when everything else is durable."""
        before = await self._runtime.run_blocking(read_manifest, self._store)
        response = await self._metadata([])
        if before is not None and before.cluster_id != response.cluster_id:
            raise IllegalArgumentError(
                f"the backup is of cluster {before.cluster_id}, this is {response.cluster_id}: give another place"
            )
        sequence = 1 if before is None else before.sequence + 1
        options = CopyOptions(self._store, sequence, self._limit_s, self._count_bytes, self._sizes)
        taken_ms = self._runtime.wall_ns() // 1_000_000
        sources, groups, cuts = await self._ends(response, options)
        topics = await self._copy_all(sources, before, cuts, options)
        names, next_named, next_unnamed = await self._producer_names()
        topics = await self._still_there(topics, response)
        manifest = Manifest(
            sequence=sequence,
            cluster_id=response.cluster_id,
            feature_level=response.feature_level,
            taken_ms=taken_ms,
            topics=tuple(topics),
            groups=tuple(self._within(groups, topics)),
            producer_names=tuple(names),
            next_producer_id=next_unnamed,
            next_named_producer_id=next_named,
            cut_transactions=self._cut_transactions,
        )
        await self._runtime.run_blocking(self._store.write, MANIFEST, manifest.encode())
        await self._runtime.run_blocking(self._sweep, manifest, before)
        all_bytes = sum(s.file.size_bytes for t in manifest.topics for p in t.partitions for s in p.segments)
        return BackupReport(manifest, self._copied_bytes, max(0, all_bytes - self._copied_bytes), tuple(self._notes))

    def _sweep(self, manifest: Manifest, before: Manifest | None) -> None:
        """Deletes files of the previous backup, or of an interrupted one, that the manifest no longer lists."""
        named = {file.name for file in manifest.files()}
        found = {file.name for file in before.files()} if before is not None else set()
        for topic in manifest.topics:
            for partition in topic.partitions:
                found.update(self._store.names(_folder(topic.name, topic.topic_id, partition.number)))
        for name in sorted(found - named):
            self._store.delete(name)

    # --- metadata ------------------------------------------------------------------------------------------------

    async def _metadata(self, topics: Sequence[str]) -> data_plane_pb2.MetadataResponse:
        async def attempt() -> data_plane_pb2.MetadataResponse:
            response = await self._cluster.ask_metadata(topics, all_topics=not topics, linearizable=True)
            if response.HasField("error"):
                raise error_from_proto(response.error)
            return response

        return await self._cluster.retrying(attempt, self._limit_s, "the look at the cluster's topics")

    def _sources(self, response: data_plane_pb2.MetadataResponse) -> list[_TopicSource]:
        found = {topic.name: topic for topic in response.topics if not topic.internal and not topic.HasField("error")}
        missing = sorted(set(self._topics or ()) - found.keys())
        if missing:
            raise UnknownTopicOrPartitionError(f"topic {missing[0]!r} does not exist: name those that do")
        wanted = sorted(found) if self._topics is None else sorted(set(self._topics))
        return [
            _TopicSource(
                name,
                found[name].topic_id,
                dict(found[name].configs),
                len(found[name].partitions),
                len(found[name].partitions[0].replicas),
            )
            for name in wanted
        ]

    async def _still_there(
        self, topics: list[TopicBackup], before: data_plane_pb2.MetadataResponse
    ) -> list[TopicBackup]:
        """Returns the topics that were not deleted during the backup."""
        ids = {topic.name: topic.topic_id.hex() for topic in (await self._metadata([])).topics}
        if TRANSACTIONS_TOPIC in ids and not _has_transactions(before):
            self._note_cut("the cluster's first transaction started during the backup")
        for topic in topics:
            if ids.get(topic.name) != topic.topic_id:
                self._notes.append(f"topic {topic.name} was deleted during the backup: it is not in the backup")
        return [topic for topic in topics if ids.get(topic.name) == topic.topic_id]

    # --- groups and producer names -------------------------------------------------------------------------------

    async def _groups(self, response: data_plane_pb2.MetadataResponse, topics: set[str]) -> list[GroupBackup]:
        if all(topic.name != GROUPS_TOPIC for topic in response.topics):
            return []  # No group has ever existed: the request itself would create the coordinators.
        admin = GroupAdmin(self._cluster, self._limit_s)
        groups: list[GroupBackup] = []
        for listing in await admin.listing(()):
            committed = await admin.offsets(listing.group_id, None)
            offsets = tuple(
                CommittedBackup(
                    tp.topic,
                    tp.partition,
                    each.offset,
                    -1 if each.leader_epoch is None else each.leader_epoch,
                    each.metadata,
                )
                for tp, each in committed.items()
                if tp.topic in topics
            )
            if offsets:
                groups.append(GroupBackup(listing.group_id, offsets))
        return groups

    def _within(self, groups: list[GroupBackup], topics: list[TopicBackup]) -> list[GroupBackup]:
        """Returns groups with their committed offsets of topics in the backup."""
        ends = {(topic.name, each.number): each.end_offset for topic in topics for each in topic.partitions}
        kept = []
        for group in groups:
            offsets = [each for each in group.offsets if (each.topic, each.partition) in ends]
            ahead = [each for each in offsets if each.offset > ends[each.topic, each.partition]]
            if ahead:
                # Its topic was recreated or emptied since the group was read.
                self._notes.append(
                    f"group {group.group_id} was ahead of {ahead[0].topic}-{ahead[0].partition}: left out there"
                )
            kept.append(GroupBackup(group.group_id, tuple(each for each in offsets if each not in ahead)))
        return [group for group in kept if group.offsets]

    async def _producer_names(self) -> tuple[list[ProducerNameBackup], int, int]:
        """Returns the names, and the next ids for a named producer and for an unnamed one."""
        found: list[ProducerNameBackup] = []

        async def attempt() -> tuple[int, int]:
            while True:
                request = admin_pb2.ListProducersRequest(
                    after=found[-1].name if found else "", timeout_ms=int(self._limit_s * 1000), notes=True
                )
                response = await self._page(request)
                found.extend(
                    ProducerNameBackup(
                        each.name, each.producer_id, each.producer_epoch, each.claimed_ms, each.note.hex()
                    )
                    for each in response.producers
                )
                if not response.more:
                    return response.next_named_producer_id, response.next_producer_id

        next_named, next_unnamed = await self._cluster.retrying(attempt, self._limit_s, "the list of producer names")
        if not next_named:
            raise IllegalStateError("a node is of an older version, which cannot be backed up: upgrade all nodes first")
        return found, next_named, next_unnamed

    async def _page(self, request: admin_pb2.ListProducersRequest) -> admin_pb2.ListProducersResponse:
        response = await self._cluster.ask_any(lambda node, limit: node.admin.ListProducers(request, timeout=limit))
        if response.HasField("error"):
            raise error_from_proto(response.error)
        return response

    # --- the moment of the backup --------------------------------------------------------------------------------

    async def _ends(
        self, response: data_plane_pb2.MetadataResponse, options: CopyOptions
    ) -> tuple[list[_TopicSource], list[GroupBackup], _Cuts]:
        """Returns the topics and groups and, if there are transactions, where each partition ends between two
        commits."""
        if not _has_transactions(response):
            await self._note_if_hidden(response)
            return (*await self._topics_and_groups(response), {})
        why = ""
        for attempt in range(CUT_ATTEMPTS):
            if attempt:
                await asyncio.sleep(CUT_PAUSE_S)
            hold = BackupHold(self._cluster)
            try:
                await hold.begin()
            except QuorumlogError as problem:
                why = problem.message
                if not problem.retriable:
                    break
                continue
            try:
                # Topics too: a transaction may write to one that was created, or got partitions, in the meantime.
                sources, groups = await self._topics_and_groups(await self._metadata([]))
                cuts = await self._cuts(sources, options)
            finally:
                whole = await hold.end()
            if whole:
                return sources, groups, cuts
            why = "reading all groups and partitions took too long, or a coordinator was elected"
        self._note_cut(why)
        return (*await self._topics_and_groups(await self._metadata([])), {})

    async def _topics_and_groups(
        self, response: data_plane_pb2.MetadataResponse
    ) -> tuple[list[_TopicSource], list[GroupBackup]]:
        sources = self._sources(response)
        # Before the partitions: the committed offsets are before the ends that these have later.
        groups = await self._groups(response, {source.name for source in sources})
        await self._cluster.ensure_topics([source.name for source in sources], self._limit_s)
        return sources, groups

    async def _cuts(self, sources: list[_TopicSource], options: CopyOptions) -> _Cuts:
        async def cut(source: _TopicSource, number: int) -> tuple[tuple[str, int], PartitionCut] | None:
            try:
                return (source.name, number), await self._copy_of(source, number, options).cut()
            except UnknownTopicOrPartitionError:
                return None  # The copy fails likewise.

        works = [partial(cut, source, number) for source in sources for number in range(source.partitions)]
        return dict(each for each in await for_each_partition(works) if each is not None)

    async def _note_if_hidden(self, response: data_plane_pb2.MetadataResponse) -> None:
        """Notes it if the user may not learn whether there are transactions."""
        if response.feature_level < _TRANSACTIONS_FROM_LEVEL:
            return
        (described,) = (await self._metadata([TRANSACTIONS_TOPIC])).topics
        if described.error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._note_cut(f"the user has no Describe on the topic {TRANSACTIONS_TOPIC}, which shows if there are any")

    def _note_cut(self, why: str) -> None:
        self._cut_transactions = True
        self._notes.append(f"transactions may be in it in part, because commits could not be held: {why}")

    # --- records -------------------------------------------------------------------------------------------------

    def _copy_of(self, source: _TopicSource, number: int, options: CopyOptions) -> PartitionCopy:
        retention = int(source.configs.get(_DELETE_RETENTION, _DAY_MS))
        folder = _folder(source.name, source.topic_id.hex(), number)
        tp = TopicPartition(source.name, number)
        return PartitionCopy(self._cluster, tp, source.topic_id, folder, retention, options)

    async def _copy_all(
        self, sources: list[_TopicSource], before: Manifest | None, cuts: _Cuts, options: CopyOptions
    ) -> list[TopicBackup]:
        async def copy(source: _TopicSource, number: int) -> PartitionBackup | None:
            known = None if before is None else before.partition(source.topic_id.hex(), number)
            try:
                return await self._copy_of(source, number, options).copy(known, cuts.get((source.name, number)))
            except UnknownTopicOrPartitionError:
                return None  # The existence of the topic is checked again.

        works = [partial(copy, source, number) for source in sources for number in range(source.partitions)]
        copies: Iterator[PartitionBackup | None] = iter(await for_each_partition(works))
        topics = []
        for source in sources:
            partitions = [next(copies) for _ in range(source.partitions)]
            whole = tuple(each for each in partitions if each is not None)
            if len(whole) < len(partitions):
                await self._require_gone(source)
                continue
            topics.append(
                TopicBackup(source.name, source.topic_id.hex(), source.replication_factor, source.configs, whole)
            )
            self._note_missing(source.name, whole)
        return topics

    async def _require_gone(self, source: _TopicSource) -> None:
        """Verifies that a topic that was not found has been deleted."""
        ids = {topic.name: topic.topic_id for topic in (await self._metadata([])).topics}
        if ids.get(source.name) == source.topic_id:
            raise IllegalStateError(f"topic {source.name} cannot be read, although it exists: try again")
        self._notes.append(f"topic {source.name} was deleted during the backup: it is not in the backup")

    def _note_missing(self, topic: str, partitions: Sequence[PartitionBackup]) -> None:
        for partition in partitions:
            for first, end in partition.not_backed_up:
                self._notes.append(
                    f"{topic}-{partition.number}: offsets {first} to {end - 1} were gone before they were backed up"
                )

    def _count_bytes(self, size: int) -> None:
        self._copied_bytes += size
        self._progress(self._copied_bytes)


def _folder(topic: str, topic_id: str, partition: int) -> str:
    """Returns the folder of a partition's files."""
    return f"topics/{topic}.{topic_id}/{partition}"


def _has_transactions(response: data_plane_pb2.MetadataResponse) -> bool:
    """True if there has ever been a transaction in the cluster."""
    return any(topic.name == TRANSACTIONS_TOPIC for topic in response.topics)
