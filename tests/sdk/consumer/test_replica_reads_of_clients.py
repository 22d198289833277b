"""A consumer with a rack: which replica it reads from, and when it returns to the leader."""

from __future__ import annotations

from hand_driven_cluster import Code
from stored_batches import stored_batch
from test_fetcher import P0, Bench, fails, holds, numbers

from quorumlog.sdk.errors import NetworkError
from quorumlog.v1 import data_plane_pb2


def redirects(node: int) -> data_plane_pb2.FetchResult:
    """A leader's result that names another node to read from."""
    result = holds()
    result.preferred_replica = node
    return result


async def at_replica(**options: float) -> Bench:
    """A consumer that node 1, the leader, has sent to node 2."""
    bench = Bench(client_rack="b", **options)
    assert bench.asked()[0].client_rack == "b"
    await bench.answer(redirects(2))
    assert [one.fetch_offset for one in bench.asked(2)[0].partitions] == [0]
    return bench


async def test_named_replica_is_read() -> None:
    """It reads on at the same offset, and the leader's session has no partition of it any longer."""
    bench = await at_replica()
    await bench.answer(holds(0, stored_batch(0, 5)), node=2)
    assert bench.take() == numbers(0, range(5))
    assert len(bench.under_way(2)) == 1 and not bench.under_way(1)
    assert bench.asked(2)[0].client_rack == "b"


async def test_without_a_rack_leaders_are_read() -> None:
    """A consumer without a rack does not request another replica."""
    bench = Bench()
    assert not bench.asked()[0].client_rack and not bench.asked()[0].from_replicas


async def test_failing_replica_is_left_at_once() -> None:
    """An error of a replica does not concern the leader, which is asked without a pause, and does not send back."""
    bench = await at_replica()
    await bench.answer(fails(Code.OFFSET_NOT_AVAILABLE), node=2)
    assert not bench.under_way(2)
    (question,) = bench.under_way(1)
    assert [one.fetch_offset for one in question.request.partitions] == [0]
    assert not question.request.client_rack
    assert bench[P0].failures == 0


async def test_lost_replica_is_left_at_once() -> None:
    """The same if its stream breaks."""
    bench = await at_replica()
    bench.under_way(2)[0].answer.set_exception(NetworkError("gone"))
    await bench.after(0)
    assert len(bench.under_way(1)) == 1


async def test_replica_out_of_range_resets_nothing() -> None:
    """Only the leader can tell where the log starts and ends."""
    bench = await at_replica()
    await bench.answer(fails(Code.OFFSET_OUT_OF_RANGE, start=50, end=60), node=2)
    assert bench[P0].fetch_offset == 0
    assert len(bench.under_way(1)) == 1


async def test_damaged_batch_of_a_replica_is_read_from_the_leader() -> None:
    """Its disk may be damaged, and the leader's is another."""
    bench = await at_replica()
    batch = bytearray(stored_batch(0, 5))
    batch[-1] ^= 1
    await bench.answer(holds(0, bytes(batch)), node=2)
    assert bench[P0].fetch_offset == 0 and bench[P0].error is None
    assert len(bench.under_way(1)) == 1
    await bench.answer(holds(0, stored_batch(0, 5)))
    assert bench.take() == numbers(0, range(5))


async def test_leader_is_asked_for_a_replica_again() -> None:
    """After a failure once the cluster had time to notice; otherwise when the metadata are old."""
    bench = await at_replica(metadata_max_age_ms=60_000)
    await bench.answer(fails(Code.OFFSET_NOT_AVAILABLE), node=2)
    await bench.after(11)
    await bench.answer(holds(0, stored_batch(0, 5)))
    assert bench.asked()[-1].client_rack == "b"
    await bench.answer(redirects(3))
    assert len(bench.under_way(3)) == 1
    await bench.after(61)
    await bench.answer(holds(0, stored_batch(5, 5)), node=3)
    assert len(bench.under_way(1)) == 1


async def test_empty_result_of_a_replica_proves_no_position() -> None:
    """A replica that is behind a committed offset does not show that the log reaches it."""
    bench = await at_replica()
    bench[P0].unproven = True
    await bench.answer(holds(0, end=-1), node=2)
    assert bench[P0].unproven
    await bench.answer(holds(0, end=0), node=2)
    assert not bench[P0].unproven


async def test_unknown_replica_leaves_the_leader() -> None:
    """A named node whose address is not known yet: the leader is read on, and does not name it again and again."""
    bench = Bench(client_rack="b")
    await bench.answer(redirects(9))
    (question,) = bench.under_way(1)
    assert [one.fetch_offset for one in question.request.partitions] == [0]
    assert not question.request.client_rack
    assert bench.cluster.refreshes == 1
