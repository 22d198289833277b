"""Acknowledgement of produce calls: the copies and commits that they wait for."""

from __future__ import annotations

from quorumlog.server.partition.acknowledgements import ACKS_ALL, ACKS_LEADER, Acknowledgements, ProduceCall, Waiter
from quorumlog.v1 import data_plane_pb2


def waiter(index: int, copies: int) -> Waiter:
    call = ProduceCall(1, data_plane_pb2.ProduceResponse(), 1 << 60, 1, {0})
    return Waiter(index, copies, call, 0, index, -1)


def test_a_committed_batch_waits_for_as_many_copies_as_it_was_promised() -> None:
    waiting = Acknowledgements()
    waiting.add(ACKS_ALL, waiter(5, copies=3))
    matches = {1: 9, 2: 7, 3: 4}
    assert not list(waiting.resolve(7, 9, matches.__getitem__, 3))
    matches[3] = 5
    assert [each.log_index for each in waiting.resolve(7, 9, matches.__getitem__, 3)] == [5]
    assert not waiting


def test_one_that_waits_for_the_leaders_disk_only_overtakes_the_commit() -> None:
    waiting = Acknowledgements()
    waiting.add(ACKS_LEADER, waiter(6, copies=1))
    assert not list(waiting.resolve(0, 5, lambda copies: 0, 3))
    assert [each.log_index for each in waiting.resolve(0, 6, lambda copies: 0, 3)] == [6]


def test_what_can_get_no_more_copies_is_taken_out_once_committed() -> None:
    waiting = Acknowledgements()
    waiting.add(ACKS_ALL, waiter(5, copies=3))
    assert not list(waiting.take_short(4, live=2))
    assert not list(waiting.take_short(5, live=3))
    assert [each.log_index for each in waiting.take_short(5, live=2)] == [5]


def test_a_batch_does_not_wait_for_replicas_that_have_been_taken_away() -> None:
    waiting = Acknowledgements()
    waiting.add(ACKS_ALL, waiter(5, copies=2))
    alone = {1: 9, 2: 0}
    assert not list(waiting.resolve(9, 9, alone.__getitem__, 2))
    assert [each.log_index for each in waiting.resolve(9, 9, alone.__getitem__, 1)] == [5]
