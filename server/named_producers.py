"""Named producer identities: which id a name has, and the newest epoch with which it was claimed.

A part of the metadata image: pure, and the same on every node. Whoever claims a name fences who held it before, for
the partitions' logs take nothing of an older epoch. The next epoch is given to who knows the last one: a claim that is
repeated because its answer was lost, or was asked of two nodes at once, must not fence the very one who made it.

An epoch that is to be replayed can have a note: whoever claims it first decides what all runs of it go by (how many
partitions a topic had, which time stands in records that have none), and the log of the metadata says who was first.

An id is never given to another name, and names stay: a partition that has batches of an identity must go on recognising
them, however long ago they were sent.
"""

from __future__ import annotations

from collections.abc import Iterable

from quorumlog.server.wire_errors import error
from quorumlog.v1 import errors_pb2, metadata_log_pb2, peer_pb2
from quorumlog.v1.entry import FIRST_NAMED_PRODUCER_ID
from quorumlog.v1.errors_pb2 import ErrorCode

#: Length of a name, as of a topic's.
MAX_NAME_LENGTH = 249
#: Bytes of a note.
MAX_NOTE_BYTES = 1024
#: Names in one cluster.
MAX_NAMES = 100_000
#: Epochs are 64 bits wide, with a sign.
MAX_EPOCH = (1 << 63) - 1


class NamedProducers:
    """The named identities of a cluster."""

    def __init__(self) -> None:
        self._by_name: dict[str, metadata_log_pb2.NamedProducer] = {}
        self._epochs: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def epoch_of(self, producer_id: int) -> int:
        """The newest epoch with which an id was claimed; -1 when it is not known."""
        return self._epochs.get(producer_id, -1)

    def check(self, claim: peer_pb2.ClaimProducer) -> errors_pb2.Error | None:
        """Why a claim does not hold, or None."""
        known = self._by_name.get(claim.name)
        if known is None and len(self._by_name) >= MAX_NAMES:
            return error(
                ErrorCode.PRODUCER_LIMIT_EXCEEDED,
                f"{MAX_NAMES} producer names are in use, which is the limit: use one of them again",
            )
        newest = known.epoch if known is not None else -1
        if -1 < claim.epoch < newest:
            return error(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer name {claim.name!r} was claimed with epoch {newest}; epoch {claim.epoch} is fenced: another"
                " instance has taken over",
            )
        if claim.epoch == -1 and claim.known_epoch != newest:
            return error(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"producer name {claim.name!r} was claimed with epoch {newest}, the claim is based on"
                f" {claim.known_epoch}: ask again with that",
            )
        if claim.epoch == -1 and newest == MAX_EPOCH:
            return error(
                ErrorCode.PRODUCER_LIMIT_EXCEEDED, f"producer name {claim.name!r} has no epoch left: use another name"
            )
        return None

    def refusal(self, claim: peer_pb2.ClaimProducer) -> peer_pb2.ControllerResponse | None:
        """The answer to a claim that does not hold, with the identity as it is; None to one that does."""
        refused = self.check(claim)
        if refused is None:
            return None
        known = self._by_name.get(claim.name)
        now = peer_pb2.ProducerClaimed(producer_id=-1, producer_epoch=-1 if known is None else known.epoch)
        return peer_pb2.ControllerResponse(error=refused, producer_claimed=now)

    def claim(self, claim: peer_pb2.ClaimProducer) -> peer_pb2.ControllerResponse:
        """Carries out a claim, as the log decides it."""
        refusal = self.refusal(claim)
        if refusal is not None:
            return refusal
        known = self._by_name.get(claim.name)
        if known is None:
            # Names are never removed, so that their number is the next id.
            known = metadata_log_pb2.NamedProducer(
                name=claim.name, producer_id=FIRST_NAMED_PRODUCER_ID + len(self._by_name), epoch=-1
            )
        epoch = known.epoch + 1 if claim.epoch == -1 else claim.epoch
        if epoch > known.epoch:
            known.epoch, known.note = epoch, claim.note
        self._keep(known)
        claimed = peer_pb2.ProducerClaimed(producer_id=known.producer_id, producer_epoch=known.epoch, note=known.note)
        return peer_pb2.ControllerResponse(producer_claimed=claimed)

    def _keep(self, producer: metadata_log_pb2.NamedProducer) -> None:
        self._by_name[producer.name] = producer
        self._epochs[producer.producer_id] = producer.epoch

    def records(self) -> list[metadata_log_pb2.NamedProducer]:
        """All of them, as a snapshot holds them."""
        return [self._by_name[name] for name in sorted(self._by_name)]

    @classmethod
    def from_records(cls, records: Iterable[metadata_log_pb2.NamedProducer]) -> NamedProducers:
        """What ``records`` gave."""
        made = cls()
        for record in records:
            copy = metadata_log_pb2.NamedProducer()
            copy.CopyFrom(record)
            made._keep(copy)
        return made


def check_claim(claim: peer_pb2.ClaimProducer) -> errors_pb2.Error | None:
    """Why a claim cannot be meant, whatever has been claimed so far; None if it can."""
    if not 1 <= len(claim.name) <= MAX_NAME_LENGTH or not claim.name.isprintable():
        problem = f"producer name {claim.name[:40]!r} is not 1 to {MAX_NAME_LENGTH} printable characters"
    elif claim.epoch < -1:
        problem = f"epoch {claim.epoch} of producer name {claim.name!r} is negative: give 0 or more, or -1 for the next"
    elif len(claim.note) > MAX_NOTE_BYTES:
        problem = (
            f"the note of producer name {claim.name!r} has {len(claim.note)} bytes, at most {MAX_NOTE_BYTES} are kept"
        )
    elif claim.note and claim.epoch == -1:
        problem = f"producer name {claim.name!r} is claimed with a note but no epoch: nobody can repeat that"
    else:
        return None
    return error(ErrorCode.INVALID_REQUEST, problem)
