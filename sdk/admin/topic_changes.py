"""Creates, deletes and changes topics: requests go to one node, are repeated if that is safe, and every node applies
them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from quorumlog.sdk.admin.quorum_admin import QuorumAdmin
from quorumlog.sdk.arguments import check_int32, checked_by_topic, checked_nodes, checked_settings, checked_topic
from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.connection import NodeConnection
from quorumlog.sdk.cluster.itemised_change import ItemResult, change_each
from quorumlog.sdk.cluster.request_parts import in_parts
from quorumlog.sdk.cluster.topic_ids import topic_ids_of
from quorumlog.sdk.errors import (
    IllegalArgumentError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    LeaderNotAvailableError,
    QuorumlogError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    error_from_proto,
)
from quorumlog.sdk.types import ConfigEntry, NewPartitions, NewTopic
from quorumlog.v1 import admin_pb2, data_plane_pb2
from quorumlog.wire.request_limits import MAX_CHANGED_TOPICS

#: A topic that a node does not have may be newer than the node's metadata; after this time it does not exist.
UNKNOWN_TOPIC_GRACE_S = 1.0
#: A change that took all the time of its call is checked for this long all the same: it may be visible by now.
_LOOKED_FOR_S = 1.0
#: Returns why a topic as a node shows it is not in the desired state yet; None when it is.
_Missing = Callable[[data_plane_pb2.TopicMetadata], str | None]


class _Result(ItemResult, Protocol):
    """The outcome of one topic."""

    name: str


#: Default of a topic, if the cluster has enough nodes.
DEFAULT_REPLICATION_FACTOR = 3


class _Response(Protocol):
    @property
    def results(self) -> Sequence[_Result]:
        """One per topic."""


class _Item(Protocol):
    name: str


Item = TypeVar("Item", bound=_Item)


class TopicChanges:
    """Topic administration of one client.

    Arguments:
        limit_s: time limit of one call, in seconds.
    """

    def __init__(self, cluster: Cluster, limit_s: float) -> None:
        self._cluster = cluster
        self._limit_s = limit_s
        self._quorum = QuorumAdmin(cluster, limit_s)
        self._timeout_ms = int(limit_s * 1000)

    async def create(self, topics: Iterable[NewTopic], validate_only: bool) -> None:
        """Creates topics."""
        deadline_s = self._deadline_s()
        if not isinstance(topics, Iterable):
            raise IllegalArgumentError(f"create_topics takes a list of NewTopic objects, not {type(topics).__name__}")
        items = [_new_topic(topic) for topic in topics]
        open_ones = [item for item in items if item.replication_factor == -1 and not item.replica_assignments]
        factor = await self._default_factor() if open_ones else -1
        for item in open_ones:
            item.replication_factor = factor

        def send(node: NodeConnection, pending: list[admin_pb2.NewTopic]) -> Awaitable[_Response]:
            request = admin_pb2.CreateTopicsRequest(
                topics=pending, timeout_ms=self._timeout_ms, validate_only=validate_only
            )
            return node.call(node.admin.CreateTopics(request, timeout=self._limit_s))

        await self._change("create_topics", items, send, TopicAlreadyExistsError)
        if not validate_only:
            await self._until_seen(
                {item.name: _unserved for item in items}, "was created, but is not served", deadline_s
            )

    async def _default_factor(self) -> int:
        """Returns three, which survive a loss, or one for a cluster configured with fewer nodes.

        The number of voters counts too: while the cluster starts, not all of its nodes are registered yet.
        """
        response = await self._cluster.retrying(
            lambda: self._cluster.ask_metadata([]), self._limit_s, "the metadata request"
        )
        if not 0 < len(response.brokers) < DEFAULT_REPLICATION_FACTOR:
            return DEFAULT_REPLICATION_FACTOR
        voters = (await self._quorum.describe()).voters
        return 1 if len(voters) < DEFAULT_REPLICATION_FACTOR else DEFAULT_REPLICATION_FACTOR

    async def restore(self, items: Sequence[admin_pb2.NewTopic]) -> None:
        """Creates topics with their ids from another cluster."""
        deadline_s = self._deadline_s()

        def send(node: NodeConnection, pending: list[admin_pb2.NewTopic]) -> Awaitable[_Response]:
            request = admin_pb2.CreateTopicsRequest(topics=pending, timeout_ms=self._timeout_ms)
            return node.call(node.admin.CreateTopics(request, timeout=self._limit_s))

        await self._change("restore_topics", items, send, TopicAlreadyExistsError)
        await self._until_seen({item.name: _unserved for item in items}, "was created, but is not served", deadline_s)

    async def delete(self, names: Sequence[str]) -> None:
        """Deletes topics."""
        deadline_s = self._deadline_s()
        items = [admin_pb2.TopicResult(name=name) for name in names]
        ids = await topic_ids_of(self._cluster, names, self._limit_s)

        def send(node: NodeConnection, pending: list[admin_pb2.TopicResult]) -> Awaitable[_Response]:
            request = admin_pb2.DeleteTopicsRequest(timeout_ms=self._timeout_ms)
            for item in pending:
                request.names.append(item.name)
                request.topic_ids.append(ids[item.name])
            return node.call(node.admin.DeleteTopics(request, timeout=self._limit_s))

        def still_there(topic: data_plane_pb2.TopicMetadata) -> str | None:
            return topic.name if topic.topic_id == ids[topic.name] else None

        await self._change("delete_topics", items, send, UnknownTopicOrPartitionError)
        await self._until_seen(dict.fromkeys(names, still_there), "was deleted, but is still shown", deadline_s)

    async def add_partitions(self, wanted: Mapping[str, NewPartitions | int], validate_only: bool) -> None:
        """Adds partitions to topics."""
        deadline_s = self._deadline_s()
        by_topic = checked_by_topic(wanted, "how many partitions each is to have")
        items = [_new_partitions(name, partitions) for name, partitions in by_topic.items()]
        totals = {item.name: item.total_count for item in items}
        ids = await self._add_ids(items)

        def send(node: NodeConnection, pending: list[admin_pb2.NewPartitions]) -> Awaitable[_Response]:
            request = admin_pb2.CreatePartitionsRequest(
                topics=pending, timeout_ms=self._timeout_ms, validate_only=validate_only
            )
            return node.call(node.admin.CreatePartitions(request, timeout=self._limit_s))

        def too_few(topic: data_plane_pb2.TopicMetadata) -> str | None:
            if topic.topic_id not in (b"", ids[topic.name]):
                return None  # It was deleted, and another topic has its name.
            return topic.name if len(topic.partitions) < totals[topic.name] else _unserved(topic)

        await self._change("create_partitions", items, send, InvalidPartitionsError)
        if not validate_only:
            await self._until_seen(
                dict.fromkeys(totals, too_few), "gained partitions, but not all are served", deadline_s
            )

    async def alter_configs(self, configs: Mapping[str, Mapping[str, object | None]], validate_only: bool) -> None:
        """Sets and clears configuration keys."""
        deadline_s = self._deadline_s()
        by_topic = checked_by_topic(configs, "the settings to change")
        items = [_altered(name, changes) for name, changes in by_topic.items()]
        changes = {item.name: item for item in items}
        ids = await self._add_ids(items)

        def send(node: NodeConnection, pending: list[admin_pb2.AlterTopicConfig]) -> Awaitable[_Response]:
            request = admin_pb2.AlterConfigsRequest(
                topics=pending, timeout_ms=self._timeout_ms, validate_only=validate_only
            )
            return node.call(node.admin.AlterConfigs(request, timeout=self._limit_s))

        def unaltered(topic: data_plane_pb2.TopicMetadata) -> str | None:
            if topic.topic_id not in (b"", ids[topic.name]):
                return None  # It was deleted, and another topic has its name.
            change = changes[topic.name]
            is_set = all(topic.configs.get(key) == value.strip() for key, value in change.set.items())
            return None if is_set and not any(key in topic.configs for key in change.clear) else topic.name

        await self._change("alter_configs", items, send, None)
        if not validate_only:
            await self._until_seen(dict.fromkeys(changes, unaltered), "was altered, but is not shown so", deadline_s)

    async def describe_configs(self, names: Sequence[str]) -> dict[str, dict[str, ConfigEntry]]:
        """Returns every configuration key of topics.

        Any node answers. One that has not applied the creation of a topic yet reports that it does not exist, although
        another has listed it: such an answer is final only after ``UNKNOWN_TOPIC_GRACE_S``.
        """
        described: dict[str, dict[str, ConfigEntry]] = {}
        for part in in_parts(names):
            described |= await self._describe_configs(admin_pb2.DescribeConfigsRequest(names=part))
        return described

    async def _describe_configs(self, request: admin_pb2.DescribeConfigsRequest) -> dict[str, dict[str, ConfigEntry]]:
        async def attempt() -> dict[str, dict[str, ConfigEntry]]:
            response = await self._cluster.ask_any(
                lambda node, limit: node.admin.DescribeConfigs(request, timeout=limit)
            )
            described: dict[str, dict[str, ConfigEntry]] = {}
            for topic in response.results:
                if topic.HasField("error"):
                    error = error_from_proto(topic.error)
                    error.retriable |= isinstance(error, UnknownTopicOrPartitionError)
                    raise error
                described[topic.name] = {
                    e.name: ConfigEntry(e.name, e.value, e.default_value, e.is_default, e.documentation)
                    for e in topic.entries
                }
            return described

        grace = (UnknownTopicOrPartitionError,), UNKNOWN_TOPIC_GRACE_S
        return await self._cluster.retrying(attempt, self._limit_s, "describe_configs", *grace)

    # --- how ---------------------------------------------------------------------------------------------------------

    async def _add_ids(
        self, items: Sequence[admin_pb2.NewPartitions] | Sequence[admin_pb2.AlterTopicConfig]
    ) -> dict[str, bytes]:
        """Sets the topic id in each change; returns the ids by name."""
        ids = await topic_ids_of(self._cluster, (item.name for item in items), self._limit_s)
        for item in items:
            item.topic_id = ids[item.name]
        return ids

    async def _change(
        self,
        what: str,
        items: Sequence[Item],
        send: Callable[[NodeConnection, list[Item]], Awaitable[_Response]],
        done_already: type[QuorumlogError] | None,
    ) -> None:
        """Requests changes until each has succeeded or failed permanently.

        Arguments:
            done_already: a refusal that may mean success: if an earlier attempt had no response, that attempt took
                effect.
        """
        by_name = {item.name: item for item in items}
        if len(by_name) < len(items):
            raise IllegalArgumentError(f"{what} was given a topic twice: name each once")

        async def ask(node: NodeConnection, names: list[str]) -> list[tuple[str, ItemResult]]:
            response = await send(node, [by_name[name] for name in names])
            return [(result.name, result) for result in response.results]

        def is_done(name: str, refusal: QuorumlogError) -> bool:
            return done_already is not None and isinstance(refusal, done_already)

        await change_each(self._cluster, by_name, ask, is_done, self._limit_s, what, most=MAX_CHANGED_TOPICS)

    def _deadline_s(self) -> float:
        """Returns the time limit of a call that starts now."""
        return self._cluster.runtime.monotonic_s() + self._limit_s

    async def _until_seen(self, wanted: Mapping[str, _Missing], what: str, deadline_s: float) -> None:
        """Waits until every broker that answers shows topics in the desired state.

        Nodes apply a change one after the other. Without this wait, the next call may go to another node, which does
        not have the topic yet. On a busy machine it may take long until each of a thousand partitions has a leader: the
        wait lasts as long as the call may take.
        """

        async def attempt() -> None:
            await self._cluster.ask_metadata(sorted(wanted))
            nodes = [self._cluster.connection(address) for address in self._cluster.metadata.addresses.values()]
            for problem in await asyncio.gather(*(self._missing(node, wanted) for node in nodes if not node.suspect)):
                if problem:
                    raise LeaderNotAvailableError(f"topic {problem!r} {what} everywhere yet")

        if wanted:
            left_s = deadline_s - self._cluster.runtime.monotonic_s()
            limit_s = min(self._limit_s, max(left_s, _LOOKED_FOR_S))
            await self._cluster.retrying(attempt, limit_s, "the wait for all nodes")

    async def _missing(self, node: NodeConnection, wanted: Mapping[str, _Missing]) -> str | None:
        """Returns the first of these topics that a node does not show in the desired state; a node without response is
        skipped."""
        for part in in_parts(sorted(wanted)):
            request = data_plane_pb2.MetadataRequest(topics=part)
            try:
                response = await node.call(node.data_plane.Metadata(request, timeout=min(1.0, self._limit_s)))
            except QuorumlogError:
                return None
            problem = next((problem for topic in response.topics if (problem := wanted[topic.name](topic))), None)
            if problem is not None:
                return problem
        return None


def _unserved(topic: data_plane_pb2.TopicMetadata) -> str | None:
    missing = topic.HasField("error") or any(partition.leader < 0 for partition in topic.partitions)
    return topic.name if missing else None


def _new_topic(topic: object) -> admin_pb2.NewTopic:
    if not isinstance(topic, NewTopic):
        raise IllegalArgumentError(f"create_topics takes NewTopic objects, not {type(topic).__name__}")
    name = checked_topic(topic.name)
    for number in ("num_partitions", "replication_factor"):
        check_int32(getattr(topic, number), f"{number} of topic {name!r}")
    assigned = topic.replica_assignments
    if not isinstance(assigned, Mapping) or not all(type(number) is int for number in assigned):
        raise IllegalArgumentError(
            f"replica_assignments of topic {name!r} are {assigned!r}: map partitions to node ids"
        )
    if sorted(assigned) != list(range(len(assigned))):
        raise InvalidReplicaAssignmentError(
            f"replica_assignments of topic {name!r} are for partitions {sorted(assigned)}: number them from 0 on,"
            " without gaps"
        )
    partitions, factor = topic.num_partitions, topic.replication_factor
    return admin_pb2.NewTopic(
        name=name,
        num_partitions=1 if partitions == -1 and not assigned else partitions,
        replication_factor=factor,
        configs=checked_settings(topic.topic_configs, f"topic_configs of topic {name!r}"),
        replica_assignments=[_assignment(assigned[number]) for number in sorted(assigned)],
    )


def _new_partitions(name: str, wanted: NewPartitions | int) -> admin_pb2.NewPartitions:
    partitions = NewPartitions(wanted) if type(wanted) is int else wanted
    if not isinstance(partitions, NewPartitions):
        raise IllegalArgumentError(f"create_partitions takes a number or NewPartitions for {name!r}, not {wanted!r}")
    check_int32(partitions.total_count, f"the number of partitions for {name!r}")
    assignments = partitions.new_assignments or ()
    if not isinstance(assignments, Iterable):
        raise IllegalArgumentError(
            f"new_assignments for {name!r} are {assignments!r}: give a list of node ids for each"
        )
    return admin_pb2.NewPartitions(
        name=name,
        total_count=partitions.total_count,
        replica_assignments=[_assignment(replicas) for replicas in assignments],
    )


def _assignment(replicas: Sequence[int]) -> admin_pb2.ReplicaAssignment:
    return admin_pb2.ReplicaAssignment(replicas=checked_nodes(replicas))


def _altered(name: str, changes: Mapping[str, object | None]) -> admin_pb2.AlterTopicConfig:
    values = checked_settings(changes, f"the settings of topic {name!r}")
    cleared = [key for key in changes if changes[key] is None]
    return admin_pb2.AlterTopicConfig(
        name=name, set={key: value for key, value in values.items() if key not in cleared}, clear=cleared
    )
