"""Connections of transactional producers: late requests on older ones are refused."""

from __future__ import annotations

from quorumlog.server.transactions.connection_fence import NO_CONNECTION, ConnectionFence
from quorumlog.v1.errors_pb2 import ErrorCode


def is_refused(fence: ConnectionFence, connection: int, name: str = "a") -> bool:
    problem = fence.refusal(name, connection)
    assert problem is None or problem.code == ErrorCode.INVALID_TXN_STATE
    return problem is not None


def test_older_connections_are_refused() -> None:
    fence = ConnectionFence()
    fence.accepted("a", 5)
    assert [is_refused(fence, number) for number in (4, 5, 6)] == [True, False, False]
    assert not is_refused(fence, 4, "b")


def test_requests_move_forward_only() -> None:
    fence = ConnectionFence()
    for number in (5, 4):
        fence.accepted("a", number)
    assert is_refused(fence, 4)


def test_new_instances_may_have_older_connections() -> None:
    """A process may have opened its connection long before it starts a producer."""
    fence = ConnectionFence()
    fence.accepted("a", 5)
    fence.initialized("a")
    fence.accepted("a", 3)
    assert [is_refused(fence, number) for number in (2, 3)] == [True, False]


def test_clients_without_a_fence_are_not_refused() -> None:
    fence = ConnectionFence()
    fence.accepted("a", 5)
    fence.accepted("b", NO_CONNECTION)
    assert not is_refused(fence, NO_CONNECTION) and is_refused(fence, 4)
    assert len(fence) == 1


def test_least_recent_names_are_forgotten() -> None:
    fence = ConnectionFence(most=2)
    for name in ("a", "b", "a", "c"):
        fence.accepted(name, 5)
    assert len(fence) == 2
    assert [is_refused(fence, 4, name) for name in ("a", "b", "c")] == [True, False, True]
