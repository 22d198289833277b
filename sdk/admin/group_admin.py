"""Administration of consumer groups, by requests to their coordinators, which are followed when they move."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.connection import NodeConnection
from quorumlog.sdk.cluster.coordinators import ATTEMPT_S, GRACE_S, CoordinatorCache
from quorumlog.sdk.cluster.offset_lookup import find_offsets
from quorumlog.sdk.cluster.offset_search import EARLIEST, LATEST
from quorumlog.sdk.cluster.request_parts import in_parts
from quorumlog.sdk.cluster.topic_ids import require_topic_ids, topic_ids_of
from quorumlog.sdk.errors import (
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    NonEmptyGroupError,
    OffsetOutOfRangeError,
    QuorumlogError,
    UnknownMemberIdError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
    error_from_proto,
)
from quorumlog.sdk.types import (
    GroupDescription,
    GroupKind,
    GroupListing,
    GroupState,
    MemberDescription,
    OffsetAndMetadata,
    TopicPartition,
)
from quorumlog.v1 import errors_pb2, groups_pb2
from quorumlog.wire.kafka.consumer_protocol import CONSUMER_PROTOCOL_TYPE, partitions_in, topics_in

_STATES = {
    groups_pb2.GROUP_EMPTY: GroupState.EMPTY,
    groups_pb2.GROUP_ASSIGNING: GroupState.ASSIGNING,
    groups_pb2.GROUP_RECONCILING: GroupState.RECONCILING,
    groups_pb2.GROUP_STABLE: GroupState.STABLE,
    groups_pb2.GROUP_DEAD: GroupState.DEAD,
    groups_pb2.GROUP_PREPARING_REBALANCE: GroupState.PREPARING_REBALANCE,
    groups_pb2.GROUP_COMPLETING_REBALANCE: GroupState.COMPLETING_REBALANCE,
}
#: A node that does not report a kind supports one kind only.
_KINDS = {
    groups_pb2.GROUP_KIND_UNSPECIFIED: GroupKind.CONSUMER,
    groups_pb2.GROUP_KIND_CONSUMER: GroupKind.CONSUMER,
    groups_pb2.GROUP_KIND_CLASSIC: GroupKind.CLASSIC,
}


class GroupAdmin:
    """Group administration of one client.

    Arguments:
        limit_s: time limit of one call, in seconds.
    """

    def __init__(self, cluster: Cluster, limit_s: float) -> None:
        self._cluster = cluster
        self._coordinators = CoordinatorCache(cluster)
        self._limit_s = limit_s
        self._attempt_s = min(limit_s, ATTEMPT_S)
        self._timeout_ms = int(self._attempt_s * 1000)
        self._rpc_s = self._attempt_s + GRACE_S

    async def listing(self, states: Sequence[GroupState]) -> list[GroupListing]:
        """Returns all groups, or those in some states, sorted by id."""
        wanted = [number for number, state in _STATES.items() if state in states]
        request = groups_pb2.ListGroupsRequest(states=wanted, timeout_ms=self._timeout_ms)
        found: dict[str, GroupListing] = {}
        answered: set[int] = set()

        async def ask(node: NodeConnection) -> None:
            reply = await node.call(node.groups.ListGroups(request, timeout=self._rpc_s))
            if reply.HasField("error"):
                raise error_from_proto(reply.error)
            answered.update(reply.coordinators)
            for group in reply.groups:
                found[group.group_id] = GroupListing(
                    group.group_id, _state(group.state), group.members, _kind(group.kind)
                )

        async def attempt() -> None:
            leading = await self._coordinators.require_all()
            nodes = dict.fromkeys(node for number, node in leading.items() if number not in answered)
            outcomes = await asyncio.gather(*(ask(node) for node in nodes), return_exceptions=True)
            for failure in outcomes:
                if failure is not None:
                    raise failure
            if leading.keys() - answered:  # It has moved to another node since the leaders were looked up.
                missing = min(leading.keys() - answered)
                raise CoordinatorNotAvailableError(f"__groups-{missing} has no leader at the moment: try again")

        await self._cluster.retrying(attempt, self._limit_s, "list_groups")
        return [found[group_id] for group_id in sorted(found)]

    async def describe(self, group_ids: Collection[str], include_offsets: bool = False) -> list[GroupDescription]:
        """Returns groups with their members, in the order of ``group_ids``.

        Arguments:
            include_offsets: include committed offsets. They are requested separately for a group with too many offsets
                for a response about several groups, and for one with a coordinator of an older version.
        """
        described: dict[str, GroupDescription] = {}

        async def ask(node: NodeConnection, part: list[str]) -> Sequence[groups_pb2.GroupDescription]:
            request = groups_pb2.DescribeGroupsRequest(
                group_ids=part, timeout_ms=self._timeout_ms, include_offsets=include_offsets
            )
            reply = await node.call(node.groups.DescribeGroups(request, timeout=self._rpc_s))
            if reply.HasField("error"):
                raise error_from_proto(reply.error)
            return reply.groups

        def take_description(group_id: str, group: groups_pb2.GroupDescription) -> None:
            described[group_id] = _description(group)

        async def attempt() -> None:
            missing = [group_id for group_id in group_ids if group_id not in described]
            await self._coordinators.ask_each(missing, ask, take_description)

        await self._cluster.retrying(attempt, self._limit_s, "describe_groups")
        if include_offsets:
            for group_id, group in described.items():
                if group.offsets is None:
                    described[group_id] = replace(group, offsets=await self.offsets(group_id, None))
        return [described[group_id] for group_id in group_ids]

    async def delete(self, group_ids: Collection[str]) -> None:
        """Deletes groups with their committed offsets."""
        deleted: set[str] = set()
        uncertain: set[str] = set()

        async def ask(node: NodeConnection, part: list[str]) -> Sequence[groups_pb2.GroupOutcome]:
            request = groups_pb2.DeleteGroupsRequest(group_ids=part, timeout_ms=self._timeout_ms)
            try:
                reply = await node.call(node.groups.DeleteGroups(request, timeout=self._rpc_s))
            except QuorumlogError:
                uncertain.update(part)
                raise
            if reply.HasField("error"):
                uncertain.update(part)
                raise error_from_proto(reply.error)
            for result in reply.results:
                if result.error.code == errors_pb2.GROUP_ID_NOT_FOUND and result.group_id in uncertain:
                    result.ClearField("error")  # An earlier attempt of this call deleted it.
                elif result.HasField("error") and not result.error.definite:
                    uncertain.add(result.group_id)
            return reply.results

        async def attempt() -> None:
            remaining = [group_id for group_id in group_ids if group_id not in deleted]
            await self._coordinators.ask_each(remaining, ask, lambda group_id, _: deleted.add(group_id))

        await self._change(attempt, "delete_groups")

    async def _change(self, attempt: Callable[[], Awaitable[None]], what: str) -> None:
        """Repeats a change until it succeeds. An attempt without a response may have taken effect, whatever later ones
        return."""
        uncertain = False

        async def noting() -> None:
            nonlocal uncertain
            try:
                await attempt()
            except QuorumlogError as error:
                uncertain |= not error.definite
                raise

        try:
            await self._cluster.retrying(noting, self._limit_s, what)
        except QuorumlogError as error:
            raise (error.as_indefinite() if uncertain else error) from None

    # --- committed offsets ---------------------------------------------------------------------------------------

    async def offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns a group's committed offsets, of some partitions or of all."""
        if partitions is not None:
            if not partitions:
                return {}
            await self._cluster.require_partitions(partitions, self._limit_s)
        # All are requested: with a topic id from before its topic was recreated, a partition would seem to have none.
        request = groups_pb2.FetchOffsetsRequest(group_id=group_id, member_epoch=-1, timeout_ms=self._timeout_ms)
        reply = await self._coordinators.ask(
            group_id,
            lambda node: node.groups.FetchOffsets(request, timeout=self._rpc_s),
            self._limit_s,
            "list_group_offsets",
        )
        committed = _offsets_of(reply.offsets)
        return {tp: offset for tp, offset in committed.items() if partitions is None or tp in partitions}

    async def alter_offsets(self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commits offsets for a group without members."""
        if offsets:
            await self._check_ranges(offsets)
            await self.restore_offsets(group_id, offsets)

    async def restore_offsets(self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commits offsets for a group without members, also offsets before a log's start."""
        ids = await require_topic_ids(self._cluster, (tp.topic for tp in offsets), self._limit_s)
        sizes = {tp: len(committed.metadata.encode()) for tp, committed in offsets.items()}
        pending = _PendingPartitions(self._cluster, sizes, ids, self._limit_s)

        def ask(node: NodeConnection) -> Awaitable[groups_pb2.CommitOffsetsResponse]:
            missing = pending.ask_for()
            request = groups_pb2.CommitOffsetsRequest(
                group_id=group_id,
                member_epoch=-1,
                offsets=_offsets_on_wire(ids, {tp: offsets[tp] for tp in missing}),
                timeout_ms=self._timeout_ms,
            )
            return node.groups.CommitOffsets(request, timeout=self._rpc_s)

        async def attempt() -> None:
            while not pending.done:
                await pending.settle((await self._coordinators.ask_once(group_id, ask)).results)

        try:
            await self._change(attempt, "alter_group_offsets")
        # A caller that is not a member receives the former.
        except (UnknownMemberIdError, NonEmptyGroupError) as error:
            refused = NonEmptyGroupError(
                f"group {group_id!r} has members, which would not notice the change: stop them first"
            )
            raise (refused if error.definite else refused.as_indefinite()) from None

    async def _check_ranges(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        starts, ends = await asyncio.gather(
            find_offsets(self._cluster, dict.fromkeys(offsets, EARLIEST), self._limit_s),
            # A group that reads uncommitted records may continue beyond the last stable offset.
            find_offsets(self._cluster, dict.fromkeys(offsets, LATEST), self._limit_s, "read_uncommitted"),
        )
        for tp, committed in offsets.items():
            start, end = starts[tp].offset, ends[tp].offset
            if not start <= committed.offset <= end:
                raise OffsetOutOfRangeError(
                    f"offset {committed.offset} is not in {tp.topic}-{tp.partition}: it has {start} to {end}"
                )

    async def delete_offsets(self, group_id: str, partitions: Collection[TopicPartition]) -> None:
        """Deletes a group's committed offsets of some partitions."""
        if not partitions:
            return
        # Current ids: with an id from before its topic was recreated nothing would be deleted, without an error.
        ids = await require_topic_ids(self._cluster, (tp.topic for tp in partitions), self._limit_s)
        await self._cluster.require_partitions(partitions, self._limit_s)
        pending = _PendingPartitions(self._cluster, dict.fromkeys(partitions, 0), ids, self._limit_s)

        def ask(node: NodeConnection) -> Awaitable[groups_pb2.DeleteOffsetsResponse]:
            request = groups_pb2.DeleteOffsetsRequest(
                group_id=group_id,
                topics=_partitions_on_wire(ids, pending.ask_for()),
                timeout_ms=self._timeout_ms,
            )
            return node.groups.DeleteOffsets(request, timeout=self._rpc_s)

        async def attempt() -> None:
            while not pending.done:
                await pending.settle((await self._coordinators.ask_once(group_id, ask)).results)

        try:
            await self._change(attempt, "delete_group_offsets")
        except GroupIdNotFoundError:
            # A group disappears with its last offset: the response to an earlier attempt may be lost.
            if pending.attempts < 2:
                raise


class _PendingPartitions:
    """The partitions for which a call has not succeeded yet.

    Arguments:
        partitions: each with the bytes of its metadata text.
        ids: of their topics when the call started. Repeated attempts are for the same topics.
    """

    def __init__(
        self, cluster: Cluster, partitions: Mapping[TopicPartition, int], ids: Mapping[str, bytes], limit_s: float
    ) -> None:
        self._cluster = cluster
        self._ids = ids
        self._limit_s = limit_s
        self._missing = list(partitions)
        self._text_bytes = partitions
        self._asked: dict[tuple[bytes, int], TopicPartition] = {}
        self.attempts = 0

    def ask_for(self) -> list[TopicPartition]:
        """Returns the partitions for the next request: as many as fit into it."""
        self.attempts += 1
        part = next(in_parts(self._missing, text_bytes=self._text_bytes.__getitem__), [])
        self._asked = {(self._ids[tp.topic], tp.partition): tp for tp in part}
        return part

    @property
    def done(self) -> bool:
        """True once the call has succeeded for all."""
        return not self._missing

    async def settle(self, results: Sequence[groups_pb2.PartitionOutcome]) -> None:
        """Removes the partitions that succeeded.

        Raises:
            QuorumlogError: the first failure, permanent ones first.
        """
        if {(result.topic_id, result.partition) for result in results} != self._asked.keys():
            raise UnknownServerError("a node answered for other partitions than requested", retriable=True)
        failed: dict[TopicPartition, QuorumlogError] = {}
        for result in results:
            if result.HasField("error"):
                tp = self._asked[result.topic_id, result.partition]
                failed[tp] = error_from_proto(result.error).about(*tp)
        # The request was for the first ones.
        self._missing = [*failed, *self._missing[len(self._asked) :]]
        lost = {tp.topic for tp, failure in failed.items() if isinstance(failure, UnknownTopicOrPartitionError)}
        if lost:
            await self._look_up(lost)
        if failed:
            failures = list(failed.values())
            raise next((failure for failure in failures if not failure.retriable), failures[0])

    async def _look_up(self, topics: Iterable[str]) -> None:
        """Checks whether topics were deleted, or are only unknown to a coordinator yet.

        Raises:
            UnknownTopicOrPartitionError: one was deleted, even if another one has its name.
        """
        for topic, topic_id in (await topic_ids_of(self._cluster, topics, self._limit_s)).items():
            if topic_id != self._ids[topic]:
                raise UnknownTopicOrPartitionError(f"topic {topic!r} was deleted during the call", retriable=False)


def _state(state: groups_pb2.GroupState.ValueType) -> GroupState:
    if state not in _STATES:
        raise UnknownServerError(f"a node reported an unknown state of a group: {state}")
    return _STATES[state]


def _kind(kind: groups_pb2.GroupKind.ValueType) -> GroupKind:
    if kind not in _KINDS:
        raise UnknownServerError(f"a node reported an unknown kind of group: {kind}")
    return _KINDS[kind]


def _description(group: groups_pb2.GroupDescription) -> GroupDescription:
    return GroupDescription(
        group_id=group.group_id,
        state=_state(group.state),
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor=(group.assignor or group.protocol) or None,
        members=tuple(_member(group, member) for member in group.members),
        coordinator=group.coordinator,
        kind=_kind(group.kind),
        protocol_type=group.protocol_type or None,
        generation=group.generation,
        leader=group.leader or None,
        offsets=_offsets_of(group.offsets) if group.has_offsets else None,
    )


def _member(group: groups_pb2.GroupDescription, member: groups_pb2.MemberDescription) -> MemberDescription:
    topics, assignment, target = tuple(member.topics), _partitions(member.assignment), _partitions(member.target)
    if group.protocol_type == CONSUMER_PROTOCOL_TYPE and group.kind == groups_pb2.GROUP_KIND_CLASSIC:
        topics = tuple(sorted(topics_in(member.classic_metadata) or ()))
        assigned = partitions_in(member.classic_assignment) or {}
        assignment = tuple(sorted(TopicPartition(topic, each) for topic, some in assigned.items() for each in some))
        target = assignment
    return MemberDescription(
        member_id=member.member_id,
        instance_id=member.instance_id or None,
        rack=member.rack or None,
        client_id=member.client_id,
        host=member.host,
        member_epoch=member.member_epoch,
        topics=topics,
        topic_pattern=member.topic_pattern or None,
        assignment=assignment,
        target=target,
        present=member.present,
        classic_metadata=member.classic_metadata,
        classic_assignment=member.classic_assignment,
    )


def _partitions(topics: Iterable[groups_pb2.TopicPartitions]) -> tuple[TopicPartition, ...]:
    """Returns partitions, without those of deleted topics, which have no name."""
    named = (each for each in topics if each.topic)
    return tuple(sorted(TopicPartition(each.topic, number) for each in named for number in each.partitions))


# Committed offsets between the clients' values and the wire, where topics are identified by id.


def _offsets_on_wire(
    ids: Mapping[str, bytes], offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> list[groups_pb2.CommittedOffset]:
    """Returns offsets to commit, in order; the ids of their topics are known."""
    return [
        groups_pb2.CommittedOffset(
            topic_id=ids[tp.topic],
            partition=tp.partition,
            offset=committed.offset,
            leader_epoch=-1 if committed.leader_epoch is None else committed.leader_epoch,
            metadata=committed.metadata,
        )
        for tp, committed in offsets.items()
    ]


def _offsets_of(offsets: Iterable[groups_pb2.CommittedOffset]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Returns the committed offsets of a response, by partition."""
    return {
        TopicPartition(each.topic, each.partition): OffsetAndMetadata(
            each.offset, each.metadata, each.leader_epoch if each.leader_epoch >= 0 else None
        )
        for each in sorted(offsets, key=lambda each: (each.topic, each.partition))
    }


def _partitions_on_wire(
    ids: Mapping[str, bytes], partitions: Iterable[TopicPartition]
) -> list[groups_pb2.TopicPartitions]:
    """Returns partitions by topic; the ids of the topics are known."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    return [groups_pb2.TopicPartitions(topic_id=ids[topic], partitions=numbers) for topic, numbers in by_topic.items()]
