"""Administration of topics, groups and the cluster, from asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, Unpack

from quorumlog.sdk.acls import ACL, ACLDecision, ACLFilter, ACLOperation, ResourcePattern
from quorumlog.sdk.admin.acl_admin import (
    AclAdmin,
    checked_filter,
    checked_filters,
    checked_operation,
    checked_principal,
    checked_resource,
    checked_rules,
)
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
from quorumlog.sdk.admin.topic_changes import TopicChanges
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
from quorumlog.sdk.runtime.security import ClientSecurity
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

#: A topic that a node does not know may be newer than what the node knows; after this time it does not exist.
_UNKNOWN_TOPIC_GRACE_S = 1.0


@shows_options(AdminOptions, AdminConfig)
class AsyncAdmin(ClusterAdmin, CredentialAdmin, QuotaAdmin):
    """Creates and describes, from asyncio. Same options as :class:`quorumlog.sdk.Admin`; use it on one event loop.

    Arguments:
        runtime: where time, chance and channels come from, for a simulation.
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
            security=ClientSecurity.of(config),
        )
        self._topics = TopicChanges(self._cluster, self._limit_s)
        self._partitions = PartitionAdmin(self._cluster, self._limit_s)
        self._groups = GroupAdmin(self._cluster, self._limit_s)
        self._quorum = QuorumAdmin(self._cluster, self._limit_s)
        self._nodes = NodeAdmin(self._cluster, self._limit_s)
        self._acls = AclAdmin(self._cluster, self._limit_s)
        #: Detached by an owner that closes it.
        self.when_dropped = close_when_dropped(self, self._fork, self._cluster.open_on, self._cluster.close)

    def _check_usable(self) -> None:
        self._fork.check()
        if self._closed:
            raise ClientClosedError("the admin client is closed")

    async def create_topics(self, new_topics: Iterable[NewTopic], *, validate_only: bool = False) -> None:
        """Creates topics, and returns once every node that answers serves them.

        Arguments:
            validate_only: check only, create nothing.

        Raises:
            QuorumlogError: of the first topic that could not be created; the message says which others failed.
        """
        self._check_usable()
        await self._topics.create(new_topics, bool(validate_only))

    async def delete_topics(self, topics: Sequence[str]) -> None:
        """Deletes topics with all their records, for good, and returns once no node that answers shows them.

        Their names are free at once. The records go from the nodes' disks little by little, and from those of a node
        that is down when it is back.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
            QuorumlogError: of the first topic that could not be deleted; the message says which others failed.
        """
        self._check_usable()
        await self._topics.delete(checked_topics(topics))

    async def create_partitions(
        self, topic_partitions: Mapping[str, NewPartitions | int], *, validate_only: bool = False
    ) -> None:
        """Adds partitions to topics, and returns once every node that answers serves them.

        Records with keys go to other partitions from then on: the order of a key's records holds from before to after
        only within each partition. Consumers notice the new partitions and read them from their beginning.

        Arguments:
            topic_partitions: topic to how many partitions it is to have in all, or :class:`NewPartitions`.
            validate_only: check only, change nothing.

        Raises:
            InvalidPartitionsError: not more than the topic has, or too many.
            QuorumlogError: of the first topic that could not be changed; the message says which others failed.
        """
        self._check_usable()
        await self._topics.add_partitions(topic_partitions, bool(validate_only))

    async def alter_configs(
        self, configs: Mapping[str, Mapping[str, object | None]], *, validate_only: bool = False
    ) -> None:
        """Sets and clears single keys of topics' configurations, and returns once every node that answers goes by them.
        Keys that are not named stay as they are.

        Arguments:
            configs: topic to key to value, such as ``{"orders": {"retention.ms": 60000, "retention.bytes": None}}``;
                None clears the key, so that its default holds again.
            validate_only: check only, change nothing.

        Raises:
            InvalidConfigError: an unknown key, or a value outside its type or range.
            QuorumlogError: of the first topic that could not be changed; the message says which others failed.
        """
        self._check_usable()
        await self._topics.alter_configs(configs, bool(validate_only))

    async def describe_configs(self, topics: Sequence[str]) -> dict[str, dict[str, ConfigEntry]]:
        """Every configuration key of topics, by topic and key.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
        """
        self._check_usable()
        return await self._topics.describe_configs(checked_topics(topics))

    async def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """The names of all topics, sorted.

        Arguments:
            include_internal: list the cluster's own topics too, such as ``__groups``.
        """
        response = await self._metadata([], all_topics=True)
        shown = (topic for topic in response.topics if include_internal or not topic.internal)
        return sorted(topic.name for topic in shown if not topic.HasField("error"))

    async def describe_topics(
        self, topics: Sequence[str] | None = None, *, linearizable: bool = False, include_internal: bool = False
    ) -> list[TopicDescription]:
        """Describes topics, or all of them, sorted by name.

        Arguments:
            include_internal: of all topics, those of the cluster itself as well; one that is named is always shown.
            linearizable: show all that was done before this call, by anybody; the node asks the controller for it.

        Raises:
            UnknownTopicOrPartitionError: one does not exist.
        """
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

        async for turn in self._cluster.backoff.retrying(0 if linearizable else _UNKNOWN_TOPIC_GRACE_S):
            with turn:
                response = await attempt()
        shown = (topic for topic in response.topics if names or include_internal or not topic.internal)
        return [self._described.topic(topic) for topic in sorted(shown, key=lambda topic: topic.name)]

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, QuorumlogError | None]:
        """Hands partitions over to their preferred leaders, the first of their replicas (Kafka's PREFERRED election).

        Leaderships return by themselves as well (``auto.leader.rebalance.enable``); this does not wait for that.
        Idempotent producers do not notice.

        Arguments:
            partitions: which ones; None: all that are not led by their preferred leader.

        Returns:
            For each of them None once the preferred leader leads. Otherwise the error says why it does not:
            ElectionNotNeededError if it led already, PreferredLeaderNotAvailableError if it cannot.
        """
        self._check_usable()
        wanted = None if partitions is None else checked_partitions(partitions)
        return await self._partitions.elect_leaders(wanted)

    async def delete_records(self, records_to_delete: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Deletes the oldest records of partitions: the log start moves up, on every replica.

        What is deleted cannot be read any more once this returns; its disk space is given back in whole batches, in the
        background. Doing it again does no harm.

        Arguments:
            records_to_delete: for each partition the first offset to keep; -1 deletes everything there is.

        Returns:
            The offset at which each partition starts now.

        Raises:
            OffsetOutOfRangeError: an offset lies beyond the high watermark.
            PolicyViolationError: the topic is compacted.
            QuorumlogError: the error of the first partition that failed; others may have succeeded.
        """
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
        """Begins to move partitions to other nodes, and returns once that has been taken on.

        Each new replica copies the log first; then the voters change, and the replicas that are not wanted any more are
        deleted. Producers and consumers go on meanwhile. ``list_partition_reassignments`` says what is not done yet.

        Arguments:
            reassignments: for each partition the nodes of all its replicas, the preferred leader first; None cancels
                the move under way, and the partition goes back to where it was.
            throttle_bytes_per_second: that each node sends at most, of all moves with the same limit, at least 1 MiB;
                0: as fast as it goes. Whoever wishes for the same again with another one changes it under way.
            validate_only: check only, change nothing.

        Raises:
            InvalidReplicaAssignmentError: a node is not registered, is down, or is named twice.
            InvalidReplicationFactorError: an even number of nodes.
            ReassignmentInProgressError: there is nothing to cancel.
            QuorumlogError: of the first partition that could not be moved; the message says which others failed.
        """
        self._check_usable()
        throttle = checked_throttle(throttle_bytes_per_second)
        await self._partitions.reassign(checked_replicas(reassignments), throttle, validate_only=bool(validate_only))

    async def rebalance_partitions(
        self, *, most_moves: int = 1_000, throttle_bytes_per_second: int = 0, validate_only: bool = False
    ) -> RebalancePlan:
        """Spreads replicas, their bytes and leaderships evenly over the nodes that are up and stay, and over racks.

        Returns once the moves have been taken on; they go on and are cancelled like those of ``reassign_partitions``.

        Arguments:
            most_moves: partitions that change at most, the most worthwhile first; 1 to 1,000.
            throttle_bytes_per_second: as in ``reassign_partitions``.
            validate_only: plan only, change nothing.

        Raises:
            ReassignmentInProgressError: partitions are being moved, or a node is being drained: the plan would be
                about a cluster that is about to change.
        """
        self._check_usable()
        check_count(most_moves, "most_moves")
        check_int32(most_moves, "most_moves")
        throttle = checked_throttle(throttle_bytes_per_second)
        return await self._partitions.rebalance(most_moves, throttle, validate_only=bool(validate_only))

    async def list_partition_reassignments(self) -> dict[TopicPartition, PartitionReassignment]:
        """The partitions that are being moved, as of now."""
        self._check_usable()
        return await self._partitions.reassignments()

    async def list_groups(self, states: Iterable[GroupState | str] | None = None) -> list[GroupListing]:
        """All consumer groups, or those in some states, sorted by their ids."""
        self._check_usable()
        return await self._groups.listing(checked_states(() if states is None else states))

    async def describe_groups(
        self, group_ids: Iterable[str], *, include_offsets: bool = False
    ) -> list[GroupDescription]:
        """Groups with their members, in the order in which they are named.

        Arguments:
            include_offsets: with what each has committed, in :attr:`GroupDescription.offsets`.

        Raises:
            GroupIdNotFoundError: there is no such group.
        """
        self._check_usable()
        return await self._groups.describe(checked_groups(group_ids), bool(include_offsets))

    async def list_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets that a group has committed, never older than the call; those without one are left out.

        Arguments:
            partitions: of which ones; of all if None.
        """
        self._check_usable()
        wanted = None if partitions is None else checked_partitions(partitions)
        return await self._groups.offsets(checked_group(group_id), wanted)

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]
    ) -> None:
        """Sets where a group without members goes on, in the partitions named; a group that is not there yet is made.

        Raises:
            NonEmptyGroupError: the group has members, which would not notice.
            OffsetOutOfRangeError: an offset lies outside its partition; nothing was changed.
            QuorumlogError: the error of the first partition that failed; others may have succeeded.
        """
        self._check_usable()
        await self._groups.alter_offsets(checked_group(group_id), checked_commits(offsets))

    async def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Deletes what a group has committed of partitions that none of its members subscribes to.

        Raises:
            GroupSubscribedToTopicError: a member subscribes to one.
            QuorumlogError: the error of the first partition that failed; others may have succeeded.
        """
        self._check_usable()
        await self._groups.delete_offsets(checked_group(group_id), checked_partitions(partitions))

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Deletes groups without members, with what they have committed.

        Raises:
            NonEmptyGroupError: a group has members.
            GroupIdNotFoundError: there is no such group.
            QuorumlogError: of the first group that could not be deleted; others may have been.
        """
        self._check_usable()
        await self._groups.delete(checked_groups(group_ids))

    async def list_producers(self, prefix: str = "") -> list[ProducerListing]:
        """Producer names that are claimed, never older than the call, sorted by their names.

        Arguments:
            prefix: only those that begin with it.
        """
        self._check_usable()
        return await list_producers(self._cluster, checked_prefix(prefix), self._limit_s)

    async def delete_producers(self, names: Iterable[str], *, claimed_before_ms: int | None = None) -> None:
        """Deletes producer names, for good.

        A producer that claimed such a name before can write nothing more: it fails with
        :class:`InvalidProducerEpochError`. A producer that claims a deleted name is new to the cluster.

        Delete a name only when no work goes on under it. A producer that repeats work under a deleted name writes its
        records again, and neither the log nor anybody else notices.

        Arguments:
            claimed_before_ms: delete only names whose last claim is older than this time, in milliseconds since the
                epoch; None: all of them.

        Raises:
            ProducerNameNotFoundError: there is no such name.
            ProducerNameInUseError: it was claimed since.
            QuorumlogError: of the first name that could not be deleted; the message says which others failed.
        """
        self._check_usable()
        before_ms = checked_claim_time(claimed_before_ms)
        await delete_producers(self._cluster, checked_producer_names(names), before_ms, self._limit_s)

    async def create_acls(self, acls: Iterable[ACL]) -> int:
        """Creates rules of who may do what, and returns how many there were not before.

        Nodes decide by them as soon as they have heard of them, which takes milliseconds where nothing is wrong.

        Raises:
            InvalidRequestError: a rule makes no sense; none of the same thousand was created.
            PolicyViolationError: the cluster would have more than 10,000 rules.
            ClusterAuthorizationFailedError: who asks may not ``ALTER`` the cluster.
        """
        self._check_usable()
        return await self._acls.create(checked_rules(acls))

    async def describe_acls(self, acl_filter: ACLFilter | None = None) -> list[ACL]:
        """The rules of who may do what that a filter means, in order; all of them without one."""
        self._check_usable()
        return await self._acls.describe(checked_filter(ACLFilter() if acl_filter is None else acl_filter))

    async def delete_acls(self, acl_filters: Iterable[ACLFilter]) -> list[ACL]:
        """Deletes the rules that any of some filters means, and returns them. What is created meanwhile stays."""
        self._check_usable()
        return await self._acls.delete(checked_filters(acl_filters))

    async def check_acl(
        self, operation: ACLOperation, resource: ResourcePattern, *, principal: str | None = None
    ) -> ACLDecision:
        """What somebody may do, as the node decides that is asked, and by which rule.

        Arguments:
            resource: with the name of one.
            principal: who would do it; None: who asks. Of others only those may ask who may ``DESCRIBE`` the cluster.
        """
        self._check_usable()
        checked = checked_operation(operation), checked_resource(resource), checked_principal(principal)
        return await self._acls.check(*checked)

    async def describe_cluster(self, *, linearizable: bool = False) -> ClusterDescription:
        """The brokers and the active controller, as the answering node sees them.

        Arguments:
            linearizable: show all that was done before this call; the node asks the controller for it.
        """
        response = await self._metadata([], all_topics=False, linearizable=linearizable)
        return cluster_description(response)

    async def describe_quorum(self) -> QuorumDescription:
        """The metadata quorum as its leader sees it: voters and observers. If it has no leader, and so no majority of
        its voters is up, as some node does: then ``leader_id`` is None, and ``last_contact_ms`` says whom that node
        hears."""
        self._check_usable()
        return await self._quorum.describe()

    async def describe_nodes(self) -> list[NodeDescription | QuorumlogError]:
        """Every registered broker about itself, or the error it failed with, by node id."""
        await self._metadata([], all_topics=False)
        return await self._nodes.describe_all()

    async def describe_node(self, address: str | None = None) -> NodeDescription:
        """One node about itself: that at ``address``, or the first bootstrap server."""
        self._check_usable()
        return await self._nodes.describe(address or self._cluster.bootstrap_servers[0])

    def watch_cluster(self, address: str | None = None) -> AsyncIterator[ClusterChange]:
        """Everything that a node knows of the cluster, then what changes in it, at most five times in a second.

        The node tells it as it knows it, and asks nobody. Of logs it tells of those that it leads: who wants to see
        where all partitions end watches all nodes. What one may not describe is not there. The iteration lasts until
        the node does not answer; begin another one then.

        Arguments:
            address: of the node; None: the first bootstrap server.

        Raises:
            UnsupportedVersionError: a node of an older version.
            QuorumlogError: the node does not answer, or has too many who watch.

        Example::

            async for change in admin.watch_cluster():
                print([topic.name for topic in change.topics], change.logs)
        """
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
