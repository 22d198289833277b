"""Restores topics, records, producers and groups from a backup in a fresh cluster.

Producer names come first, so that no partition has an unknown one; then the topics, with their former ids; then the
partitions; and the groups last, so that no consumer continues from a committed offset without the records there. After
any interruption, the same command resumes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from quorumlog.sdk.admin.group_admin import GroupAdmin
from quorumlog.sdk.admin.topic_changes import TopicChanges
from quorumlog.sdk.backup.concurrency import for_each_partition
from quorumlog.sdk.backup.manifest import Manifest, TopicBackup
from quorumlog.sdk.backup.partition_restore import PartitionRestore, StepOptions
from quorumlog.sdk.backup.sizes import SHIPPED_SIZES, BackupSizes
from quorumlog.sdk.backup.store import BackupStore
from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.errors import (
    GroupIdNotFoundError,
    IllegalStateError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    error_from_proto,
)
from quorumlog.sdk.types import OffsetAndMetadata, TopicPartition
from quorumlog.v1 import admin_pb2, data_plane_pb2
from quorumlog.wire.request_limits import MAX_CHANGED_TOPICS, MAX_PRODUCER_NAMES

#: The new cluster skips this many ids, which the old one may have assigned after the backup: a producer that still has
#: such an id must not be mistaken for another.
ID_MARGIN = 1 << 32


class RestoreOptions(NamedTuple):
    """Options of a restore.

    Arguments:
        topics: only these; None: all.
        replication_factor: of all topics; None: as in the backup.
        configs: settings that replace those in the backup, for all topics.
        limit_s: time limit of one request.
        sizes: of the steps in which partitions are restored.
    """

    topics: Sequence[str] | None
    replication_factor: int | None
    configs: Mapping[str, str]
    limit_s: float
    sizes: BackupSizes = SHIPPED_SIZES


class RestoreReport(NamedTuple):
    """Counts of restored items, and the bytes of batches."""

    topics: int
    partitions: int
    size_bytes: int
    groups: int
    producer_names: int


class BackupRestoration:
    """Restores one backup.

    Arguments:
        progress: called with the bytes restored so far.
    """

    def __init__(
        self,
        cluster: Cluster,
        store: BackupStore,
        manifest: Manifest,
        options: RestoreOptions,
        progress: Callable[[int], None],
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._manifest = manifest
        self._options = options
        self._progress = progress
        self._size_bytes = 0

    async def restore(self) -> RestoreReport:
        """Restores the selected topics with producers and groups.

        Raises:
            TopicAlreadyExistsError: a topic has a name that is in the backup.
            PolicyViolationError: the cluster is not fresh: ids or partitions are in use.
            CorruptBackupError: a file of the backup is damaged; data restored before stays.
        """
        topics = self._wanted()
        missing = await self._missing(topics)
        await self._restore_names()
        await self._create(missing)
        await self._restore_partitions(topics)
        groups = await self._restore_groups({topic.name for topic in topics})
        partitions = sum(len(topic.partitions) for topic in topics)
        names = len(self._manifest.producer_names)
        return RestoreReport(len(topics), partitions, self._size_bytes, groups, names)

    def _wanted(self) -> list[TopicBackup]:
        topics = {topic.name: topic for topic in self._manifest.topics}
        if self._options.topics is None:
            return list(topics.values())
        unknown = sorted(set(self._options.topics) - topics.keys())
        if unknown:
            raise UnknownTopicOrPartitionError(f"topic {unknown[0]!r} is not in the backup: name those that are")
        return [topics[name] for name in dict.fromkeys(self._options.topics)]

    # --- what the cluster has ------------------------------------------------------------------------------------

    async def _missing(self, topics: list[TopicBackup]) -> list[TopicBackup]:
        """Returns the topics that do not exist yet. Existing ones must be of this backup, from an earlier attempt."""

        async def attempt() -> data_plane_pb2.MetadataResponse:
            response = await self._cluster.ask_metadata([], all_topics=True, linearizable=True)
            if response.HasField("error"):
                raise error_from_proto(response.error)
            return response

        response = await self._cluster.retrying(attempt, self._options.limit_s, "the look at the cluster's topics")
        there = {topic.name: topic for topic in response.topics}
        missing = []
        for topic in topics:
            known = there.get(topic.name)
            if known is None:
                missing.append(topic)
            elif known.topic_id.hex() != topic.topic_id or len(known.partitions) != len(topic.partitions):
                raise TopicAlreadyExistsError(
                    f"topic {topic.name} exists already: restore into a cluster that has no such topic, or delete it"
                )
        factor = self._options.replication_factor or max((topic.replication_factor for topic in missing), default=1)
        # Nodes that are down count: they create their replicas when they return.
        nodes = len(response.brokers)
        if factor > nodes:
            raise IllegalStateError(
                f"the backup has topics with {factor} replicas, the cluster has {nodes} nodes: start more, or give"
                " --replication-factor"
            )
        return missing

    async def _restore_names(self) -> None:
        names = sorted(self._manifest.producer_names, key=lambda each: each.producer_id)
        parts = [names[first : first + MAX_PRODUCER_NAMES] for first in range(0, len(names), MAX_PRODUCER_NAMES)]
        for part in [*parts, []]:
            request = admin_pb2.RestoreProducerNamesRequest(timeout_ms=int(self._options.limit_s * 1000))
            for each in part:
                request.producers.add(
                    name=each.name,
                    producer_id=each.producer_id,
                    producer_epoch=each.epoch,
                    claimed_ms=each.claimed_ms,
                    note=bytes.fromhex(each.note),
                )
            if not part:
                # Last: names with ids below the next one count as deleted.
                request.next_producer_id = self._manifest.next_producer_id + ID_MARGIN
                request.next_named_producer_id = self._manifest.next_named_producer_id + ID_MARGIN
            await self._cluster.retrying(self._asking(request), self._options.limit_s, "the restore of producer names")

    def _asking(self, request: admin_pb2.RestoreProducerNamesRequest) -> Callable[[], Awaitable[object]]:
        async def attempt() -> object:
            return await self._cluster.ask_any(
                lambda node, limit: node.admin.RestoreProducerNames(request, timeout=limit)
            )

        return attempt

    async def _create(self, topics: list[TopicBackup]) -> None:
        items = [
            admin_pb2.NewTopic(
                name=topic.name,
                num_partitions=len(topic.partitions),
                replication_factor=self._options.replication_factor or topic.replication_factor,
                configs={**topic.configs, **self._options.configs},
                topic_id=bytes.fromhex(topic.topic_id),
            )
            for topic in topics
        ]
        changes = TopicChanges(self._cluster, self._options.limit_s)
        for first in range(0, len(items), MAX_CHANGED_TOPICS):
            await changes.restore(items[first : first + MAX_CHANGED_TOPICS])

    # --- what goes into it ---------------------------------------------------------------------------------------

    async def _restore_partitions(self, topics: list[TopicBackup]) -> None:
        options = StepOptions(
            self._store,
            self._manifest.restore_id,
            self._options.limit_s,
            self._count_bytes,
            self._options.sizes,
        )

        async def restore(topic: TopicBackup, number: int) -> None:
            tp = TopicPartition(topic.name, number)
            work = PartitionRestore(self._cluster, tp, bytes.fromhex(topic.topic_id), options)
            await work.restore(topic.partitions[number])

        await self._cluster.ensure_topics([topic.name for topic in topics], self._options.limit_s)
        await for_each_partition(
            [partial(restore, topic, number) for topic in topics for number in range(len(topic.partitions))]
        )

    async def _restore_groups(self, topics: set[str]) -> int:
        admin = GroupAdmin(self._cluster, self._options.limit_s)
        restored = 0
        for group in self._manifest.groups:
            # Leader epochs are those of the old cluster, and invalid here.
            offsets = {
                TopicPartition(each.topic, each.partition): OffsetAndMetadata(each.offset, each.metadata)
                for each in group.offsets
                if each.topic in topics
            }
            # Offsets that a group has committed here since an earlier attempt are kept.
            there = await self._committed(admin, group.group_id)
            offsets = {tp: each for tp, each in offsets.items() if tp not in there}
            if offsets:
                # Also below the log start: a group that lags behind retention continues according to its reset policy.
                await admin.restore_offsets(group.group_id, offsets)
                restored += 1
        return restored

    async def _committed(self, admin: GroupAdmin, group_id: str) -> Collection[TopicPartition]:
        try:
            return (await admin.offsets(group_id, None)).keys()
        except GroupIdNotFoundError:
            return ()

    def _count_bytes(self, size: int) -> None:
        self._size_bytes += size
        self._progress(self._size_bytes)
