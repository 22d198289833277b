"""Commits and fetches a group's offsets for one consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.connection import NodeConnection
from quorumlog.sdk.cluster.coordinators import ATTEMPT_S, GRACE_S, CoordinatorCache
from quorumlog.sdk.cluster.request_parts import in_parts
from quorumlog.sdk.consumer.group_membership import GroupPartition, as_topic_partitions
from quorumlog.sdk.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    QuorumlogError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
    error_from_proto,
)
from quorumlog.sdk.types import OffsetAndMetadata, TransactionToken
from quorumlog.v1 import groups_pb2

#: How long a topic may be unknown before it counts as missing.
_UNKNOWN_TOPIC_S = 2.0
_THROWN_OUT = (UnknownMemberIdError, FencedMemberEpochError, FencedInstanceIdError)


class Committer(NamedTuple):
    """Identity for a commit: a member in its epoch; by default a consumer outside the group's assignment."""

    member_id: str = ""
    member_epoch: int = -1


class Commits:
    """Writes and reads a group's committed offsets for one consumer, on the cluster's event loop.

    Commits are sent one after the other, in the order of the calls: an earlier one never overwrites a later one.
    """

    def __init__(self, cluster: Cluster, coordinators: CoordinatorCache, group_id: str, limit_s: float) -> None:
        self._cluster = cluster
        self._coordinators = coordinators
        self._group_id = group_id
        self._limit_s = limit_s
        self._order = asyncio.Lock()
        #: Number of the last commit: the coordinator ignores a commit that arrives late, after a later one.
        self._number = 0

    async def commit(
        self,
        offsets: Mapping[GroupPartition, OffsetAndMetadata],
        committer: Callable[[Collection[GroupPartition]], Committer],
        transaction: TransactionToken | None = None,
    ) -> None:
        """Stores offsets; returns when they are stored.

        Arguments:
            committer: returns the identity for each attempt; raises if the consumer may no longer commit.
            transaction: of a producer: the offsets take effect with it.

        Raises:
            CommitFailedError: the consumer no longer has the partitions.
            QuorumlogError: it failed, or took too long; a part of the offsets may be committed.
        """
        left = dict(offsets)
        uncertain = False
        async with self._order:
            self._number += 1
            number = self._number
            began_s = asyncio.get_running_loop().time()

            async def attempt() -> None:
                nonlocal uncertain
                try:
                    await self._attempt(left, committer, number, transaction)
                except QuorumlogError as error:
                    uncertain |= not error.definite
                    # A topic that was just created may not be known to the coordinator yet; after that time it counts
                    # as deleted.
                    late = asyncio.get_running_loop().time() - began_s > _UNKNOWN_TOPIC_S
                    if isinstance(error, UnknownTopicOrPartitionError) and late:
                        error.retriable = False
                    raise

            try:
                await self._cluster.retrying(attempt, self._limit_s, "the commit")
            except QuorumlogError as error:
                failure: QuorumlogError = error
                # An earlier attempt without a response may have taken effect: a member that was suspended may find
                # itself removed from the group, with its earlier offsets stored.
                whole = not uncertain and len(left) == len(offsets)
                if isinstance(error, (*_THROWN_OUT, StaleMemberEpochError)):
                    what = "nothing" if whole else "perhaps not all"
                    failure = CommitFailedError(f"{what} was committed for group {self._group_id!r}: {error.message}")
                raise (failure if whole else failure.as_indefinite()) from None

    async def _attempt(
        self,
        left: dict[GroupPartition, OffsetAndMetadata],
        committer: Callable[[Collection[GroupPartition]], Committer],
        number: int,
        transaction: TransactionToken | None,
    ) -> None:
        """Commits the remaining offsets, and removes those that were stored."""
        failures: list[QuorumlogError] = []
        for places in list(in_parts(left, text_bytes=lambda place: len(left[place].metadata.encode()))):
            failures += await self._attempt_part(
                {place: left[place] for place in places}, left, committer, number, transaction
            )
        if failures:
            raise next((failure for failure in failures if not failure.retriable), failures[0])

    async def _attempt_part(
        self,
        part: Mapping[GroupPartition, OffsetAndMetadata],
        left: dict[GroupPartition, OffsetAndMetadata],
        committer: Callable[[Collection[GroupPartition]], Committer],
        number: int,
        transaction: TransactionToken | None,
    ) -> list[QuorumlogError]:
        """Commits a part that fits into one request; returns the errors of refused partitions."""
        who = committer(part)
        request = groups_pb2.CommitOffsetsRequest(
            group_id=self._group_id,
            member_id=who.member_id,
            member_epoch=who.member_epoch,
            timeout_ms=self._attempt_ms,
            number=number,
        )
        if transaction is not None:
            request.transactional_id, request.adds_group = transaction.transactional_id, True
            request.producer.producer_id = transaction.producer_id
            request.producer.producer_epoch = transaction.producer_epoch
        for place, committed in part.items():
            request.offsets.add(
                topic_id=place.topic_id,
                partition=place.partition,
                offset=committed.offset,
                leader_epoch=-1 if committed.leader_epoch is None else committed.leader_epoch,
                metadata=committed.metadata,
            )

        async def call(node: NodeConnection) -> groups_pb2.CommitOffsetsResponse:
            return await node.groups.CommitOffsets(request, timeout=self._attempt_ms / 1000 + GRACE_S)

        response = await self._coordinators.ask_once(self._group_id, call)
        places = list(part)
        if [(result.topic_id, result.partition) for result in response.results] != places:
            raise UnknownServerError("the coordinator answered for other partitions than requested", retriable=True)
        failures: list[QuorumlogError] = []
        for place, result in zip(places, response.results, strict=True):
            if result.HasField("error"):
                failures.append(error_from_proto(result.error))
            else:
                del left[place]
        return failures

    async def fetch(self, partitions: Collection[GroupPartition]) -> dict[GroupPartition, OffsetAndMetadata]:
        """Returns the committed offsets of these partitions; those without one are left out.

        Never older than the call: it includes all offsets committed before.
        """
        committed: dict[GroupPartition, OffsetAndMetadata] = {}
        for part in in_parts(partitions):
            committed |= await self._fetch_part(part)
        return committed

    async def _fetch_part(self, partitions: Collection[GroupPartition]) -> dict[GroupPartition, OffsetAndMetadata]:
        request = groups_pb2.FetchOffsetsRequest(
            group_id=self._group_id,
            member_epoch=-1,
            topics=as_topic_partitions(partitions),
            timeout_ms=self._attempt_ms,
            # A transaction may commit the offsets that follow: its records would be processed again.
            require_stable=True,
        )

        async def call(node: NodeConnection) -> groups_pb2.FetchOffsetsResponse:
            found = await node.groups.FetchOffsets(request, timeout=self._attempt_ms / 1000 + GRACE_S)
            if found.unstable:
                found.error.CopyFrom(found.unstable[0].error)
            return found

        response = await self._coordinators.ask(self._group_id, call, self._limit_s, "the look-up of committed offsets")
        return {
            GroupPartition(each.topic_id, each.partition): OffsetAndMetadata(
                each.offset, each.metadata, each.leader_epoch if each.leader_epoch >= 0 else None
            )
            for each in response.offsets
        }

    @property
    def _attempt_ms(self) -> int:
        return int(min(ATTEMPT_S, self._limit_s) * 1000)
