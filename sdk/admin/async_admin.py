"""Administration of topics, groups and the cluster, from asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, Unpack

from quorumlog.sdk.admin.acl_admin import AclAdmin
from quorumlog.sdk.admin.cluster_admin import ClusterAdmin
from quorumlog.sdk.admin.cluster_watch import ClusterChange, checked_address, watch
from quorumlog.sdk.admin.config import AdminConfig, AdminOptions
from quorumlog.sdk.admin.credential_admin import CredentialAdmin
from quorumlog.sdk.admin.descriptions import TopicDescriptions, cluster_description
from quorumlog.sdk.admin.group_admin import GroupAdmin
from quorumlog.sdk.admin.node_admin import NodeAdmin
from quorumlog.sdk.admin.partition_admin import PartitionAdmin
from quorumlog.sdk.admin.producer_names import delete_producers, list_producers
from quorumlog.sdk.admin.quorum_admin import QuorumAdmin
from quorumlog.sdk.admin.quota_admin import QuotaAdmin
from quorumlog.sdk.admin.topic_changes import UNKNOWN_TOPIC_GRACE_S, TopicChanges
from quorumlog.sdk.admin.transaction_admin import TransactionAdmin
from quorumlog.sdk.arguments import (
    check_count,
    check_int32,
    checked_claim_time,
    checked_commits,
    checked_group,
    checked_groups,
    checked_numbers,
    checked_partitions,
    checked_prefix,
    checked_producer_names,
    checked_replicas,
    checked_states,
    checked_throttle,
    checked_topics,
)
from quorumlog.sdk.cluster.cluster import Cluster, parse_bootstrap_servers
from quorumlog.sdk.configuration import build_config
from quorumlog.sdk.errors import (
    ClientClosedError,
    QuorumlogError,
    UnknownTopicOrPartitionError,
    error_from_proto,
)
from quorumlog.sdk.help_text import named, shows_options
from quorumlog.sdk.runtime.backoff import Backoff
from quorumlog.sdk.runtime.client_runtime import SYSTEM_RUNTIME, ClientRuntime
from quorumlog.sdk.runtime.event_loop import close_when_dropped
from quorumlog.sdk.runtime.fork import ForkGuard
from quorumlog.sdk.types import (
    ClusterDescription,
    ConfigEntry,
    GroupDescription,
    GroupListing,
    GroupState,
    NewPartitions,
    NewTopic,
    NodeDescription,
    OffsetAndMetadata,
    PartitionReassignment,
    ProducerListing,
    QuorumDescription,
    RebalancePlan,
    TopicDescription,
    TopicPartition,
)
from quorumlog.v1 import data_plane_pb2


@shows_options(AdminConfig)
class AsyncAdmin(AclAdmin, ClusterAdmin, CredentialAdmin, QuotaAdmin, TransactionAdmin):
    """Administers topics, groups and the cluster, from asyncio.

    Same options as :class:`quorumlog.sdk.Admin`; use it on one event loop.

    Arguments:
        runtime: source of time, randomness and channels, for simulations.
    """

    def __init__(self, *, runtime: ClientRuntime = SYSTEM_RUNTIME, **options: Unpack[AdminOptions]) -> None:
        config = build_config(AdminConfig, options)
        self.config = config
        self._limit_s = config.request_timeout_ms / 1000
        self._fork = ForkGuard("Admin")
        self._closed = False
        self._described = TopicDescriptions()
        self._cluster = Cluster(
            parse_bootstrap_servers(config.bootstrap_servers),
            request_timeout_s=self._limit_s,
            bootstrap_timeout_s=config.bootstrap_timeout_ms / 1000,
            backoff=Backoff(runtime=runtime),
            client_id=config.client_id,
            runtime=runtime,
            security=config,
        )
        self._topics = TopicChanges(self._cluster, self._limit_s)
        self._partitions = PartitionAdmin(self._cluster, self._limit_s)
        self._groups = GroupAdmin(self._cluster, self._limit_s)
        self._quorum = QuorumAdmin(self._cluster, self._limit_s)
        self._nodes = NodeAdmin(self._cluster, self._limit_s)
        #: Detached by an owner that closes it.
        self.when_dropped = close_when_dropped(self, self._fork, self._cluster.open_on, self._cluster.close)

    def _check_usable(self) -> None:
        self._fork.check()
        if self._closed:
            raise ClientClosedError("the admin client is closed")

    async def create_topics(self, new_topics: Iterable[NewTopic], *, validate_only: bool = False) -> None:
        """Creates topics; see :meth:`quorumlog.sdk.Admin.create_topics`."""
        self._check_usable()
        await self._topics.create(new_topics, bool(validate_only))

    async def delete_topics(self, topics: Sequence[str]) -> None:
        """Deletes topics with all their records; see :meth:`quorumlog.sdk.Admin.delete_topics`."""
        self._check_usable()
        await self._topics.delete(checked_topics(topics))

    async def create_partitions(
        self, topic_partitions: Mapping[str, NewPartitions | int], *, validate_only: bool = False
    ) -> None:
        """Adds partitions to topics; see :meth:`quorumlog.sdk.Admin.create_partitions`."""
        self._check_usable()
        await self._topics.add_partitions(topic_partitions, bool(validate_only))

    async def alter_configs(
        self, configs: Mapping[str, Mapping[str, object | None]], *, validate_only: bool = False
    ) -> None:
        """Sets and clears configuration keys of topics; see :meth:`quorumlog.sdk.Admin.alter_configs`."""
        self._check_usable()
        await self._topics.alter_configs(configs, bool(validate_only))

    async def describe_configs(self, topics: Sequence[str]) -> dict[str, dict[str, ConfigEntry]]:
        """Returns every configuration key of topics; see :meth:`quorumlog.sdk.Admin.describe_configs`."""
        self._check_usable()
        return await self._topics.describe_configs(checked_topics(topics))

    async def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """Returns the names of all topics, sorted; see :meth:`quorumlog.sdk.Admin.list_topics`."""
        response = await self._metadata([], all_topics=True)
        shown = (topic for topic in response.topics if include_internal or not topic.internal)
        return sorted(topic.name for topic in shown if not topic.HasField("error"))

    async def describe_topics(
        self, topics: Sequence[str] | None = None, *, linearizable: bool = False, include_internal: bool = False
    ) -> list[TopicDescription]:
        """Describes topics, or all of them; see :meth:`quorumlog.sdk.Admin.describe_topics`."""
        names = checked_topics(topics or [])

        async def attempt() -> data_plane_pb2.MetadataResponse:
            response = await self._metadata(names, all_topics=topics is None, linearizable=linearizable)
            for topic in response.topics:
                if topic.HasField("error"):
                    error = error_from_proto(topic.error)
                    if isinstance(error, UnknownTopicOrPartitionError):
                        raise UnknownTopicOrPartitionError(f"topic {topic.name!r} does not exist: create it first")
                    raise error
            return response

        async for turn in self._cluster.backoff.retrying(0 if linearizable else UNKNOWN_TOPIC_GRACE_S):
            with turn:
                response = await attempt()
        shown = (topic for topic in response.topics if names or include_internal or not topic.internal)
        return [self._described.topic(topic) for topic in sorted(shown, key=lambda topic: topic.name)]

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, QuorumlogError | None]:
        """Moves the leadership of partitions to their preferred leaders; see
        :meth:`quorumlog.sdk.Admin.elect_leaders`.
        """
        self._check_usable()
        wanted = None if partitions is None else checked_partitions(partitions)
        return await self._partitions.elect_leaders(wanted)

    async def delete_records(self, records_to_delete: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Deletes the oldest records of partitions; see :meth:`quorumlog.sdk.Admin.delete_records`."""
        self._check_usable()
        wanted = checked_numbers(records_to_delete, -1, "the first offset to keep, or -1 for the end")
        return await self._partitions.delete_records(wanted)

    async def reassign_partitions(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        throttle_bytes_per_second: int = 0,
        validate_only: bool = False,
    ) -> None:
        """Starts to move partitions to other nodes; see :meth:`quorumlog.sdk.Admin.reassign_partitions`."""
        self._check_usable()
        throttle = checked_throttle(throttle_bytes_per_second)
        await self._partitions.reassign(checked_replicas(reassignments), throttle, validate_only=bool(validate_only))

    async def rebalance_partitions(
        self, *, most_moves: int = 1_000, throttle_bytes_per_second: int = 0, validate_only: bool = False
    ) -> RebalancePlan:
        """Spreads replicas and leaderships over the nodes; see :meth:`quorumlog.sdk.Admin.rebalance_partitions`."""
        self._check_usable()
        check_count(most_moves, "most_moves")
        check_int32(most_moves, "most_moves")
        throttle = checked_throttle(throttle_bytes_per_second)
        return await self._partitions.rebalance(most_moves, throttle, validate_only=bool(validate_only))

    async def list_partition_reassignments(self) -> dict[TopicPartition, PartitionReassignment]:
        """Returns the partitions that are being moved."""
        self._check_usable()
        return await self._partitions.reassignments()

    async def list_groups(self, states: Iterable[GroupState | str] | None = None) -> list[GroupListing]:
        """Returns all consumer groups, or those in the given states, sorted by id."""
        self._check_usable()
        return await self._groups.listing(checked_states(() if states is None else states))

    async def describe_groups(
        self, group_ids: Iterable[str], *, include_offsets: bool = False
    ) -> list[GroupDescription]:
        """Describes groups with their members; see :meth:`quorumlog.sdk.Admin.describe_groups`."""
        self._check_usable()
        return await self._groups.describe(checked_groups(group_ids), bool(include_offsets))

    async def list_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the offsets that a group has committed; see :meth:`quorumlog.sdk.Admin.list_group_offsets`."""
        self._check_usable()
        wanted = None if partitions is None else checked_partitions(partitions)
        return await self._groups.offsets(checked_group(group_id), wanted)

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]
    ) -> None:
        """Sets the committed offsets of a group without members; see
        :meth:`quorumlog.sdk.Admin.alter_group_offsets`.
        """
        self._check_usable()
        await self._groups.alter_offsets(checked_group(group_id), checked_commits(offsets))

    async def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Deletes the committed offsets of a group in partitions; see
        :meth:`quorumlog.sdk.Admin.delete_group_offsets`.
        """
        self._check_usable()
        await self._groups.delete_offsets(checked_group(group_id), checked_partitions(partitions))

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Deletes groups without members; see :meth:`quorumlog.sdk.Admin.delete_groups`."""
        self._check_usable()
        await self._groups.delete(checked_groups(group_ids))

    async def list_producers(self, prefix: str = "") -> list[ProducerListing]:
        """Returns the claimed producer names; see :meth:`quorumlog.sdk.Admin.list_producers`."""
        self._check_usable()
        return await list_producers(self._cluster, checked_prefix(prefix), self._limit_s)

    async def delete_producers(self, names: Iterable[str], *, claimed_before_ms: int | None = None) -> None:
        """Deletes producer names permanently; see :meth:`quorumlog.sdk.Admin.delete_producers`."""
        self._check_usable()
        before_ms = checked_claim_time(claimed_before_ms)
        await delete_producers(self._cluster, checked_producer_names(names), before_ms, self._limit_s)

    async def describe_cluster(self, *, linearizable: bool = False) -> ClusterDescription:
        """Returns the brokers and the active controller; see :meth:`quorumlog.sdk.Admin.describe_cluster`."""
        response = await self._metadata([], all_topics=False, linearizable=linearizable)
        return cluster_description(response)

    async def describe_quorum(self) -> QuorumDescription:
        """Returns the metadata quorum; see :meth:`quorumlog.sdk.Admin.describe_quorum`."""
        self._check_usable()
        return await self._quorum.describe()

    async def describe_nodes(self) -> list[NodeDescription | QuorumlogError]:
        """Returns the description that every registered broker gives of itself, or the error of the request to it, by
        node id.
        """
        await self._metadata([], all_topics=False)
        return await self._nodes.describe_all()

    async def describe_node(self, address: str | None = None) -> NodeDescription:
        """Returns the description that one node gives of itself: the node at ``address``, or the first bootstrap
        server.
        """
        self._check_usable()
        return await self._nodes.describe(address or self._cluster.bootstrap_servers[0])

    def watch_cluster(self, address: str | None = None) -> AsyncIterator[ClusterChange]:
        """Yields a node's view of the cluster, then every change; see :meth:`quorumlog.sdk.Admin.watch_cluster`."""
        self._check_usable()
        place = checked_address(address or self._cluster.bootstrap_servers[0])
        return watch(self._cluster, place, self._limit_s)

    async def _metadata(
        self, topics: Sequence[str], *, all_topics: bool, linearizable: bool = False
    ) -> data_plane_pb2.MetadataResponse:
        self._check_usable()
        return await self._cluster.retrying(
            lambda: self._cluster.ask_metadata(topics, all_topics=all_topics, linearizable=linearizable),
            self._limit_s,
            "the metadata request",
        )

    async def close(self, timeout: float | None = None) -> None:
        """Closes connections. May be called twice."""
        if not self._closed:
            self._closed = True
            await self._cluster.close()

    def __repr__(self) -> str:
        return named("AsyncAdmin", self.config.bootstrap_servers, self._closed)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
