"""Connections of transactional producers: late requests on older ones are refused."""

from __future__ import annotations

from quorumlog.server.deciding.connection_fence import ClientConnection, ConnectionFence
from quorumlog.v1.errors_pb2 import Error, ErrorCode

BEGAN_US = 1_000


def at(number: int) -> ClientConnection:
    """A connection that the node has accepted in this term."""
    return ClientConnection(number, BEGAN_US + number, never_closed)


def never_closed(why: Error) -> None:
    raise AssertionError(why)


def is_refused(fence: ConnectionFence, connection: int, name: str = "a") -> bool:
    problem = fence.refusal(name, at(connection))
    assert problem is None or problem.code == ErrorCode.INVALID_TXN_STATE
    return problem is not None


def test_older_connections_are_refused() -> None:
    fence = ConnectionFence(BEGAN_US)
    fence.accepted("a", at(5))
    assert [is_refused(fence, number) for number in (4, 5, 6)] == [True, False, False]
    assert not is_refused(fence, 4, "b")


def test_requests_move_forward_only() -> None:
    fence = ConnectionFence(BEGAN_US)
    for number in (5, 4):
        fence.accepted("a", at(number))
    assert is_refused(fence, 4)


def test_connections_older_than_the_term_are_refused() -> None:
    """The producer may have used another node in the meantime, which has not notified this one."""
    fence = ConnectionFence(BEGAN_US)
    for opened_us, is_outdated in ((0, True), (BEGAN_US - 1, True), (BEGAN_US, True), (BEGAN_US + 1, False)):
        closed: list[Error] = []
        problem = fence.refusal("a", ClientConnection(7, opened_us, closed.append))
        assert closed == ([problem] if is_outdated else [])
        assert (problem is not None and problem.code == ErrorCode.NOT_COORDINATOR) is is_outdated


def test_new_instances_may_have_older_connections() -> None:
    """A process may have opened its connection long before it starts a producer."""
    fence = ConnectionFence(BEGAN_US)
    fence.accepted("a", at(5))
    fence.initialized("a")
    fence.accepted("a", at(3))
    assert [is_refused(fence, number) for number in (2, 3)] == [True, False]


def test_clients_without_a_fence_are_not_refused() -> None:
    fence = ConnectionFence(BEGAN_US)
    fence.accepted("a", at(5))
    fence.accepted("b", None)
    assert fence.refusal("a", None) is None and is_refused(fence, 4)
    assert len(fence) == 1


def test_least_recent_names_are_forgotten() -> None:
    fence = ConnectionFence(BEGAN_US, most=2)
    for name in ("a", "b", "a", "c"):
        fence.accepted(name, at(5))
    assert len(fence) == 2
    assert [is_refused(fence, 4, name) for name in ("a", "b", "c")] == [True, False, True]
