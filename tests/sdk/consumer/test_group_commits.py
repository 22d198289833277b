"""Errors of commits: what a commit that fails says of its effect."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

import pytest

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.coordinators import CoordinatorCache
from quorumlog.sdk.consumer.commits import Commits, Committer
from quorumlog.sdk.consumer.group_membership import GroupPartition
from quorumlog.sdk.errors import CommitFailedError, NetworkError, QuorumlogError, UnknownMemberIdError
from quorumlog.sdk.runtime.backoff import Backoff
from quorumlog.sdk.types import OffsetAndMetadata
from quorumlog.v1 import groups_pb2
from quorumlog.v1.errors_pb2 import Error, ErrorCode

TOPIC = b"t" * 16
OFFSETS = {GroupPartition(TOPIC, number): OffsetAndMetadata(7) for number in (0, 1)}
STALE = Error(code=ErrorCode.STALE_MEMBER_EPOCH, message="an older epoch", definite=True)

Answer = QuorumlogError | groups_pb2.CommitOffsetsResponse


class ScriptedCoordinator(CoordinatorCache):
    """Answers attempts in turn."""

    def __init__(self, cluster: Cluster, *answers: Answer) -> None:
        super().__init__(cluster)
        self._answers = list(answers)

    async def ask_once(self, group_id: str, call: Callable[..., Awaitable[object]]) -> groups_pb2.CommitOffsetsResponse:  # type: ignore[override]
        answer = self._answers.pop(0)
        if isinstance(answer, QuorumlogError):
            raise answer
        return answer


async def failure_of(*answers: Answer, committer: Callable[[Collection[GroupPartition]], Committer]) -> QuorumlogError:
    """Returns how a commit of two partitions fails."""
    cluster = Cluster(
        [("127.0.0.1", 1)], request_timeout_s=1, bootstrap_timeout_s=1, backoff=Backoff(0.001, 0.001), client_id="test"
    )
    commits = Commits(cluster, ScriptedCoordinator(cluster, *answers), "g", 5)
    with pytest.raises(QuorumlogError) as failed:
        await commits.commit(OFFSETS, committer)
    return failed.value


def a_member(partitions: Collection[GroupPartition]) -> Committer:
    return Committer("member", 3)


async def test_a_member_that_was_thrown_out_has_committed_nothing() -> None:
    error = await failure_of(UnknownMemberIdError("gone"), committer=a_member)
    assert isinstance(error, CommitFailedError)
    assert error.definite
    assert "nothing was committed" in error.message


@pytest.mark.parametrize("is_noticed", [False, True])
async def test_an_attempt_before_that_nobody_answered_may_have_been_carried_out(is_noticed: bool) -> None:
    count = 0

    def committer(partitions: Collection[GroupPartition]) -> Committer:
        nonlocal count
        count += 1
        if is_noticed and count > 1:
            raise CommitFailedError("the consumer is no longer a member")
        return Committer("member", 3)

    error = await failure_of(NetworkError("broken"), UnknownMemberIdError("gone"), committer=committer)
    assert isinstance(error, CommitFailedError)
    assert not error.definite
    assert "nothing was committed" not in error.message


async def test_what_was_stored_of_a_commit_before_the_rest_was_refused_is_not_denied() -> None:
    results = [
        groups_pb2.PartitionOutcome(topic_id=TOPIC, partition=0),
        groups_pb2.PartitionOutcome(topic_id=TOPIC, partition=1, error=STALE),
    ]
    error = await failure_of(groups_pb2.CommitOffsetsResponse(results=results), committer=a_member)
    assert isinstance(error, CommitFailedError)
    assert not error.definite
    assert "perhaps not all was committed" in error.message
