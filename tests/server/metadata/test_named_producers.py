"""Named producer identities in the metadata: claims, epochs, what survives a snapshot."""

import pytest

from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.producer_names import MAX_EPOCH, NamedProducers, check_claim, check_deletion
from quorumlog.v1 import admin_pb2, metadata_log_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import FIRST_NAMED_PRODUCER_ID


def claim(producers: NamedProducers, name: str, epoch: int = -1, wall_ms: int = 0) -> tuple[int, int] | int:
    """Returns the assigned id and epoch, or the error code; requests the next epoch as clients do."""
    response = producers.claim(peer_pb2.ClaimProducer(name=name, epoch=epoch, known_epoch=-1), wall_ms)
    if response.error.code == ErrorCode.INVALID_UPDATE_VERSION:
        known = response.producer_claimed.producer_epoch
        response = producers.claim(peer_pb2.ClaimProducer(name=name, epoch=epoch, known_epoch=known), wall_ms)
    if response.HasField("error"):
        return response.error.code
    return response.producer_claimed.producer_id, response.producer_claimed.producer_epoch


def restored(producers: NamedProducers) -> NamedProducers:
    """Returns the producers as restored from their snapshot."""
    return NamedProducers.from_snapshot(
        metadata_log_pb2.MetadataSnapshot(
            named_producers=producers.records(),
            next_named_producer_id=producers.next_id,
            producers_deleted_index=producers.deleted_index,
        )
    )


def deleted(producers: NamedProducers, index: int, *names: str, claimed_before_ms: int = 0) -> list[int]:
    """Deletes names by the entry at ``index``; each name's error code, or 0."""
    command = metadata_log_pb2.DeleteProducers(names=names, claimed_before_ms=claimed_before_ms)
    return [result.error.code for result in producers.delete(index, command).delete_producers.results]


def test_each_claim_gives_the_next_epoch_and_the_same_id() -> None:
    producers = NamedProducers()
    first = FIRST_NAMED_PRODUCER_ID
    assert [claim(producers, "a"), claim(producers, "b"), claim(producers, "a")] == [
        (first, 0),
        (first + 1, 0),
        (first, 1),
    ]
    assert (producers.epoch_of(first), producers.epoch_of(first + 1), producers.epoch_of(7)) == (1, 0, -1)


def test_a_given_epoch_is_taken_when_it_is_newer_and_repeated_when_it_is_equal() -> None:
    producers = NamedProducers()
    assert claim(producers, "a", 40) == (FIRST_NAMED_PRODUCER_ID, 40)
    assert claim(producers, "a", 40) == (FIRST_NAMED_PRODUCER_ID, 40)
    assert claim(producers, "a", 39) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert claim(producers, "a") == (FIRST_NAMED_PRODUCER_ID, 41)
    assert claim(producers, "a", MAX_EPOCH) == (FIRST_NAMED_PRODUCER_ID, MAX_EPOCH)
    assert claim(producers, "a") == ErrorCode.PRODUCER_LIMIT_EXCEEDED


def test_a_claim_that_arrives_once_more_does_not_fence_who_made_it() -> None:
    """A repeated claim advances no epoch: its answer was lost or it was sent to two nodes, and another client may have
    claimed the name in the meantime."""
    producers = NamedProducers()
    assert claim(producers, "a") == (FIRST_NAMED_PRODUCER_ID, 0)
    ghost = peer_pb2.ClaimProducer(name="a", epoch=-1, known_epoch=0)
    assert producers.claim(ghost, 0).producer_claimed.producer_epoch == 1
    for _ in range(2):
        again = producers.claim(ghost, 0)
        assert again.error.code == ErrorCode.INVALID_UPDATE_VERSION
        assert again.producer_claimed.producer_epoch == 1
    assert claim(producers, "a") == (FIRST_NAMED_PRODUCER_ID, 2)
    assert producers.claim(ghost, 0).error.code == ErrorCode.INVALID_UPDATE_VERSION
    assert producers.epoch_of(FIRST_NAMED_PRODUCER_ID) == 2


def note(producers: NamedProducers, epoch: int, proposed: bytes) -> bytes:
    """Returns the note in the answer to a claim of an epoch."""
    answer = producers.claim(peer_pb2.ClaimProducer(name="a", epoch=epoch, note=proposed), 0)
    assert not answer.HasField("error")
    return answer.producer_claimed.note


def test_the_first_claim_of_an_epoch_leaves_its_note_to_those_that_repeat_it() -> None:
    producers = NamedProducers()
    assert note(producers, 7, b"four partitions") == b"four partitions"
    assert note(producers, 7, b"five partitions") == b"four partitions"
    assert note(restored(producers), 7, b"") == b"four partitions"
    assert note(producers, 8, b"five partitions") == b"five partitions"
    assert note(producers, 9, b"") == b""


@pytest.mark.parametrize(("epoch", "size"), [(7, 1025), (-1, 1)])
def test_a_note_that_nobody_could_keep_or_use_is_refused(epoch: int, size: int) -> None:
    refused = check_claim(peer_pb2.ClaimProducer(name="a", epoch=epoch, note=bytes(size)))
    assert refused is not None
    assert refused.code == ErrorCode.INVALID_REQUEST


def test_names_have_a_limit_and_known_ones_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorumlog.server.metadata.producer_names.MAX_NAMES", 2)
    producers = NamedProducers()
    claim(producers, "a")
    claim(producers, "b")
    assert claim(producers, "c") == ErrorCode.PRODUCER_LIMIT_EXCEEDED
    assert claim(producers, "b") == (FIRST_NAMED_PRODUCER_ID + 1, 1)


def test_a_deleted_name_is_free_and_its_id_is_never_given_again() -> None:
    producers = NamedProducers()
    first = FIRST_NAMED_PRODUCER_ID
    for name in ("a", "b"):
        claim(producers, name)
    assert deleted(producers, 7, "b", "c", "b") == [0, *[ErrorCode.PRODUCER_NAME_NOT_FOUND] * 2]
    for each in (producers, restored(producers)):
        assert [each.is_deleted(first + n) for n in range(3)] == [False, True, False], "the third was never given out"
        assert (each.deleted_index, each.epoch_of(first + 1), len(each)) == (7, -1, 1)
        assert claim(each, "b") == (first + 2, 0)
        assert [each.is_deleted(first + n) for n in range(3)] == [False, True, False]


def test_a_deletion_makes_room_where_there_are_too_many_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorumlog.server.metadata.producer_names.MAX_NAMES", 2)
    producers = NamedProducers()
    claim(producers, "a")
    claim(producers, "b")
    refused = producers.check(peer_pb2.ClaimProducer(name="c"))
    assert refused is not None
    assert "quorumlog producers delete" in refused.message
    assert deleted(producers, 3, "a") == [0]
    assert claim(producers, "c") == (FIRST_NAMED_PRODUCER_ID + 2, 0)


def test_a_name_that_was_claimed_since_stays() -> None:
    producers = NamedProducers()
    claim(producers, "old", wall_ms=1_000)
    claim(producers, "used", 5, wall_ms=1_000)
    claim(producers, "used", 5, wall_ms=3_000)  # a replay is also a use
    claim(producers, "used", 5, wall_ms=2_500)  # by a controller whose clock is behind
    later = restored(producers)
    assert [each.claimed_ms for each in later.page("", "", 9)] == [1_000, 3_000]
    assert deleted(later, 9, "old", "used", claimed_before_ms=3_000) == [0, ErrorCode.PRODUCER_NAME_IN_USE]
    assert (len(later), later.deleted_index) == (1, 9)
    assert deleted(later, 10, "used", claimed_before_ms=3_000) == [ErrorCode.PRODUCER_NAME_IN_USE]
    assert later.deleted_index == 9, "nothing was deleted"
    assert deleted(later, 11, "used", claimed_before_ms=3_001) == [0]


def test_a_snapshot_from_before_ids_were_counted_goes_on_with_the_next() -> None:
    old = metadata_log_pb2.MetadataSnapshot()
    for number, name in enumerate("ab"):
        old.named_producers.add(name=name, producer_id=FIRST_NAMED_PRODUCER_ID + number, epoch=4)
    assert claim(NamedProducers.from_snapshot(old), "c") == (FIRST_NAMED_PRODUCER_ID + 2, 0)


def test_names_are_listed_in_pages() -> None:
    producers = NamedProducers()
    for name in ("q-1", "p", "q-0", "r", "q-2", "q"):
        claim(producers, name)
    pages = [
        ("", "", 9),
        ("q", "", 9),
        ("q-", "", 2),
        ("q-", "q-1", 2),
        ("q-", "q-2", 2),
        ("q-", "a", 1),
        ("a", "z", 9),
    ]
    listed = [[each.name for each in producers.page(*page)] for page in pages]
    assert listed == [
        ["p", "q", "q-0", "q-1", "q-2", "r"],
        ["q", "q-0", "q-1", "q-2"],
        ["q-0", "q-1"],
        ["q-2"],
        [],
        ["q-0"],
        [],
    ]


@pytest.mark.parametrize(("names", "before_ms"), [([], 0), (["a"] * 1_001, 0), (["a"], -1), (["x" * 250], 0)])
def test_a_deletion_that_cannot_be_meant_never_reaches_the_log(names: list[str], before_ms: int) -> None:
    problem = check_deletion(admin_pb2.DeleteProducersRequest(names=names, claimed_before_ms=before_ms))
    assert problem is not None
    assert problem.code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("name", "epoch"), [("", 0), ("x" * 250, 0), ("line\nbreak", 0), ("fine", -2)])
def test_what_cannot_be_meant_never_reaches_the_log(name: str, epoch: int) -> None:
    problem = check_claim(peer_pb2.ClaimProducer(name=name, epoch=epoch))
    assert problem is not None
    assert problem.code == ErrorCode.INVALID_REQUEST
    assert "\n" not in problem.message


def test_a_snapshot_of_the_image_keeps_names_ids_and_epochs() -> None:
    image = MetadataImage()
    for index, (name, epoch, known) in enumerate([("b", -1, -1), ("a", 2**62, 0), ("b", -1, 0)], start=1):
        body = peer_pb2.ClaimProducer(name=name, epoch=epoch, known_epoch=known)
        image.apply(index, metadata_log_pb2.MetadataCommand(claim_producer=body))
    for index, name in enumerate(("c", "d"), start=4):
        body = peer_pb2.ClaimProducer(name=name, epoch=-1, known_epoch=-1)
        image.apply(index, metadata_log_pb2.MetadataCommand(claim_producer=body))
    deletion = metadata_log_pb2.DeleteProducers(names=["d"])
    image.apply(6, metadata_log_pb2.MetadataCommand(delete_producers=deletion))
    later = MetadataImage.from_snapshot(image.to_snapshot())
    assert later.to_snapshot() == image.to_snapshot()
    for each in (image.named_producers, later.named_producers):
        assert claim(each, "a") == (FIRST_NAMED_PRODUCER_ID + 1, 2**62 + 1)
        assert claim(each, "b") == (FIRST_NAMED_PRODUCER_ID, 2)
        assert claim(each, "d") == (FIRST_NAMED_PRODUCER_ID + 4, 0), "the id of the deleted one is not given again"
        assert (each.deleted_index, each.is_deleted(FIRST_NAMED_PRODUCER_ID + 3)) == (6, True)
