"""Named producer identities in the metadata: claims, epochs, what survives a snapshot."""

import pytest

from quorumlog.server.metadata_image import MetadataImage
from quorumlog.server.named_producers import MAX_EPOCH, NamedProducers, check_claim
from quorumlog.v1 import metadata_log_pb2, peer_pb2
from quorumlog.v1.entry import FIRST_NAMED_PRODUCER_ID
from quorumlog.v1.errors_pb2 import ErrorCode


def claim(producers: NamedProducers, name: str, epoch: int = -1) -> tuple[int, int] | int:
    """Id and epoch given, or the error's code; the next epoch is asked for as the clients do."""
    response = producers.claim(peer_pb2.ClaimProducer(name=name, epoch=epoch, known_epoch=-1))
    if response.error.code == ErrorCode.INVALID_UPDATE_VERSION:
        known = response.producer_claimed.producer_epoch
        response = producers.claim(peer_pb2.ClaimProducer(name=name, epoch=epoch, known_epoch=known))
    if response.HasField("error"):
        return response.error.code
    return response.producer_claimed.producer_id, response.producer_claimed.producer_epoch


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
    """Its answer was lost, or it was asked of two nodes; meanwhile somebody else may have claimed the name too."""
    producers = NamedProducers()
    assert claim(producers, "a") == (FIRST_NAMED_PRODUCER_ID, 0)
    ghost = peer_pb2.ClaimProducer(name="a", epoch=-1, known_epoch=0)
    assert producers.claim(ghost).producer_claimed.producer_epoch == 1
    for _ in range(2):
        again = producers.claim(ghost)
        assert again.error.code == ErrorCode.INVALID_UPDATE_VERSION
        assert again.producer_claimed.producer_epoch == 1
    assert claim(producers, "a") == (FIRST_NAMED_PRODUCER_ID, 2)
    assert producers.claim(ghost).error.code == ErrorCode.INVALID_UPDATE_VERSION
    assert producers.epoch_of(FIRST_NAMED_PRODUCER_ID) == 2


def note(producers: NamedProducers, epoch: int, proposed: bytes) -> bytes:
    """The note that a claim of an epoch is answered with."""
    answer = producers.claim(peer_pb2.ClaimProducer(name="a", epoch=epoch, note=proposed))
    assert not answer.HasField("error")
    return answer.producer_claimed.note


def test_the_first_claim_of_an_epoch_leaves_its_note_to_those_that_repeat_it() -> None:
    producers = NamedProducers()
    assert note(producers, 7, b"four partitions") == b"four partitions"
    assert note(producers, 7, b"five partitions") == b"four partitions"
    assert note(NamedProducers.from_records(producers.records()), 7, b"") == b"four partitions"
    assert note(producers, 8, b"five partitions") == b"five partitions"
    assert note(producers, 9, b"") == b""


@pytest.mark.parametrize(("epoch", "size"), [(7, 1025), (-1, 1)])
def test_a_note_that_nobody_could_keep_or_use_is_refused(epoch: int, size: int) -> None:
    refused = check_claim(peer_pb2.ClaimProducer(name="a", epoch=epoch, note=bytes(size)))
    assert refused is not None
    assert refused.code == ErrorCode.INVALID_REQUEST


def test_names_have_a_limit_and_known_ones_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorumlog.server.named_producers.MAX_NAMES", 2)
    producers = NamedProducers()
    claim(producers, "a")
    claim(producers, "b")
    assert claim(producers, "c") == ErrorCode.PRODUCER_LIMIT_EXCEEDED
    assert claim(producers, "b") == (FIRST_NAMED_PRODUCER_ID + 1, 1)


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
    restored = MetadataImage.from_snapshot(image.to_snapshot())
    assert restored.to_snapshot() == image.to_snapshot()
    for each in (image, restored):
        assert claim(each.named_producers, "a") == (FIRST_NAMED_PRODUCER_ID + 1, 2**62 + 1)
        assert claim(each.named_producers, "b") == (FIRST_NAMED_PRODUCER_ID, 2)
        assert claim(each.named_producers, "c") == (FIRST_NAMED_PRODUCER_ID + 2, 0)
