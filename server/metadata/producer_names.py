"""Named producers: the id of each name, and the newest epoch with which it was claimed.

A part of the metadata image: pure, and identical on every node. A claim of a name fences its former holder, because the
partitions' logs accept nothing of an older epoch. The next epoch goes to the client that has the last one: a claim
that is repeated because its answer was lost, or that was sent to two nodes at once, must not fence the client that made
it.

An epoch that may be replayed can have a note: the first claim decides the parameters of all its runs (the number of
partitions of a topic, the timestamp of records without one), and the metadata log determines which claim was first.

Names stay until a client deletes them: a partition that has batches of a producer must keep recognising them, however
long ago they were sent. An id is never assigned again, neither to another name nor to the same one after its deletion.
So an id below the next one that no name has was deleted: a batch with it is late, and would be taken for new where the
partition has forgotten the producer. The index of the last deletion shows which nodes may have applied it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice, repeat, takewhile

from sortedcontainers import SortedDict

from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import admin_pb2, errors_pb2, metadata_log_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import FIRST_NAMED_PRODUCER_ID
from quorumlog.wire.request_limits import MAX_PRODUCER_NAMES

#: Maximum length of a name in characters, as of a topic's.
MAX_NAME_LENGTH = 249
#: Maximum size of a note in bytes.
MAX_NOTE_BYTES = 1024
#: Maximum number of names in one cluster.
MAX_NAMES = 100_000
#: The next ids that a restore may set must leave room for all future ones.
MAX_NEXT_ID = FIRST_NAMED_PRODUCER_ID - (1 << 40)
MAX_NEXT_NAMED_ID = (1 << 63) - (1 << 40)
#: Epochs are signed 64-bit integers.
MAX_EPOCH = (1 << 63) - 1


class NamedProducers:
    """The named producers of a cluster.

    Attributes:
        next_id: the id of the next new name.
        deleted_index: of the last entry of the metadata log that deleted a name; 0 if none has.
    """

    def __init__(self) -> None:
        self._by_name: SortedDict = SortedDict()
        self._epochs: dict[int, int] = {}
        self.next_id = FIRST_NAMED_PRODUCER_ID
        self.deleted_index = 0

    def __len__(self) -> int:
        return len(self._by_name)

    def epoch_of(self, producer_id: int) -> int:
        """Returns the newest epoch with which an id was claimed; -1 if the id is unknown."""
        return self._epochs.get(producer_id, -1)

    def is_claimed(self, producer_id: int) -> bool:
        """True if a name has this id."""
        return producer_id in self._epochs

    def is_deleted(self, producer_id: int) -> bool:
        """True if an id belonged to a deleted name; False also if it has not been assigned yet."""
        return FIRST_NAMED_PRODUCER_ID <= producer_id < self.next_id and producer_id not in self._epochs

    def claim_of(self, name: str) -> admin_pb2.ProducerClaim:
        """Returns the id and the newest epoch of a name; id -1 if it was never claimed."""
        known = self._by_name.get(name)
        if known is None:
            return admin_pb2.ProducerClaim(producer_id=-1, producer_epoch=-1)
        return admin_pb2.ProducerClaim(producer_id=known.producer_id, producer_epoch=known.epoch)

    def listed(self, names: Iterable[str]) -> list[metadata_log_pb2.NamedProducer]:
        """Returns those of the names that exist, sorted."""
        return [self._by_name[name] for name in sorted(set(names)) if name in self._by_name]

    def page(
        self, prefix: str, after: str, size: int, may_list: Callable[[str], bool] = lambda name: True
    ) -> list[metadata_log_pb2.NamedProducer]:
        """Returns the first names, in order, that start with a prefix, follow ``after``, and may be listed."""
        first = max(prefix, after)
        names = self._by_name.irange(first, inclusive=(first != after, True))
        matching = takewhile(lambda name: name.startswith(prefix), names)
        return [self._by_name[name] for name in islice(filter(may_list, matching), size)]

    def check(self, claim: peer_pb2.ClaimProducer) -> errors_pb2.Error | None:
        """Returns the error for a claim that is invalid or outdated, or None."""
        known = self._by_name.get(claim.name)
        if known is None and len(self._by_name) >= MAX_NAMES:
            return error(
                ErrorCode.PRODUCER_LIMIT_EXCEEDED,
                f"{MAX_NAMES} producer names are in use, which is the limit: use one of them again, or delete unused"
                " ones (quorumlog producers delete)",
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
        """Returns the response to an invalid claim, with the current identity; None if the claim is valid."""
        refused = self.check(claim)
        if refused is None:
            return None
        known = self._by_name.get(claim.name)
        now = peer_pb2.ProducerClaimed(producer_id=-1, producer_epoch=-1 if known is None else known.epoch)
        return peer_pb2.ControllerResponse(error=refused, producer_claimed=now)

    def claim(self, claim: peer_pb2.ClaimProducer, wall_ms: int) -> peer_pb2.ControllerResponse:
        """Carries out a claim when its entry is applied.

        Arguments:
            wall_ms: when it was proposed, in milliseconds since the epoch.
        """
        refusal = self.refusal(claim)
        if refusal is not None:
            return refusal
        known = self._by_name.get(claim.name)
        if known is None:
            known = metadata_log_pb2.NamedProducer(name=claim.name, producer_id=self.next_id, epoch=-1)
        epoch = known.epoch + 1 if claim.epoch == -1 else claim.epoch
        if epoch > known.epoch:
            known.epoch, known.note = epoch, claim.note
        known.claimed_ms = max(known.claimed_ms, wall_ms)
        self._keep(known)
        claimed = peer_pb2.ProducerClaimed(producer_id=known.producer_id, producer_epoch=known.epoch, note=known.note)
        return peer_pb2.ControllerResponse(producer_claimed=claimed)

    def _keep(self, producer: metadata_log_pb2.NamedProducer) -> None:
        self._by_name[producer.name] = producer
        self._epochs[producer.producer_id] = producer.epoch
        # This also covers names claimed before ids were counted: their number was the next id then.
        self.next_id = max(self.next_id, producer.producer_id + 1)

    def check_deletion(
        self, name: str, claimed_before_ms: int, meant: admin_pb2.ProducerClaim | None
    ) -> errors_pb2.Error | None:
        """Returns the error if a name cannot be deleted, or None.

        Arguments:
            claimed_before_ms: the last claim must be older than this, in milliseconds since the epoch; 0: any age.
            meant: the claim to delete. A deletion that is late, or repeated because its answer was lost, must not take
                the name from a client that has claimed it since. None: any claim.
        """
        known = self._by_name.get(name)
        if known is None or (meant is not None and meant.producer_id != known.producer_id):
            return error(
                ErrorCode.PRODUCER_NAME_NOT_FOUND,
                f"producer name {name!r} does not exist: it was never claimed, or was deleted",
            )
        if meant is not None and meant.producer_epoch != known.epoch:
            return error(
                ErrorCode.PRODUCER_NAME_IN_USE,
                f"producer name {name!r} was claimed with epoch {known.epoch}, after its deletion was asked for in"
                f" epoch {meant.producer_epoch}: it is in use and stays",
            )
        if claimed_before_ms and known.claimed_ms >= claimed_before_ms:
            return error(
                ErrorCode.PRODUCER_NAME_IN_USE,
                f"producer name {name!r} was claimed at {known.claimed_ms} ms, not before {claimed_before_ms}: it is"
                " in use and stays",
            )
        return None

    def delete(self, index: int, deletion: metadata_log_pb2.DeleteProducers) -> peer_pb2.ControllerResponse:
        """Carries out a deletion when its entry is applied.

        Arguments:
            index: of the entry.
        """
        response = peer_pb2.ControllerResponse(delete_producers=admin_pb2.DeleteProducersResponse())
        claims = deletion.claims or repeat(None, len(deletion.names))
        for name, claim in zip(deletion.names, claims, strict=True):
            refused = self.check_deletion(name, deletion.claimed_before_ms, claim)
            response.delete_producers.results.add(name=name, error=refused)
            if refused is None:
                del self._epochs[self._by_name.pop(name).producer_id]
                self.deleted_index = index
        return response

    def check_restore(self, names: Iterable[admin_pb2.ListedProducer]) -> errors_pb2.Error | None:
        """Returns the error if names cannot be restored from a backup, or None. Names that exist may be restored
        again."""
        new = 0
        for each in names:
            known = self._by_name.get(each.name)
            taken = known is None and each.producer_id < self.next_id
            if taken or (known is not None and known.producer_id != each.producer_id):
                return error(
                    ErrorCode.POLICY_VIOLATION,
                    f"producer name {each.name!r} cannot be restored with id {each.producer_id}: this cluster has given"
                    " that id, or the name, to another client; restore into a cluster where no name was claimed",
                )
            new += known is None
        if len(self._by_name) + new > MAX_NAMES:
            return error(ErrorCode.PRODUCER_LIMIT_EXCEEDED, f"a cluster has at most {MAX_NAMES} producer names")
        return None

    def restore(self, names: Iterable[admin_pb2.ListedProducer], next_id: int) -> errors_pb2.Error | None:
        """Restores names from a backup, all or none, when the entry is applied.

        Arguments:
            next_id: lower bound for the id of the next name; 0: no change.
        """
        refused = self.check_restore(names)
        if refused is not None:
            return refused
        for each in names:
            known = self._by_name.get(each.name)
            if known is None or known.epoch < each.producer_epoch:
                restored = metadata_log_pb2.NamedProducer(
                    name=each.name,
                    producer_id=each.producer_id,
                    epoch=each.producer_epoch,
                    note=each.note,
                    claimed_ms=each.claimed_ms,
                )
                self._keep(restored)
        self.next_id = max(self.next_id, next_id)
        return None

    def records(self) -> list[metadata_log_pb2.NamedProducer]:
        """Returns all names in the form of a snapshot."""
        return list(self._by_name.values())

    @classmethod
    def from_snapshot(cls, snapshot: metadata_log_pb2.MetadataSnapshot) -> NamedProducers:
        """Returns the named producers from a snapshot."""
        made = cls()
        for record in snapshot.named_producers:
            copy = metadata_log_pb2.NamedProducer()
            copy.CopyFrom(record)
            made._keep(copy)
        made.next_id = max(made.next_id, snapshot.next_named_producer_id)
        made.deleted_index = snapshot.producers_deleted_index
        return made


def check_claim(claim: peer_pb2.ClaimProducer) -> errors_pb2.Error | None:
    """Returns the error for a claim that is invalid regardless of existing ones, or None."""
    if not 1 <= len(claim.name) <= MAX_NAME_LENGTH or not claim.name.isprintable():
        problem = f"producer name {claim.name[:40]!r} is not 1 to {MAX_NAME_LENGTH} printable characters"
    elif claim.epoch < -1:
        problem = f"epoch {claim.epoch} of producer name {claim.name!r} is negative: give 0 or more, or -1 for the next"
    elif len(claim.note) > MAX_NOTE_BYTES:
        problem = (
            f"the note of producer name {claim.name!r} has {len(claim.note)} bytes, at most {MAX_NOTE_BYTES} are kept"
        )
    elif claim.note and claim.epoch == -1:
        problem = f"producer name {claim.name!r} is claimed with a note but no epoch: such a claim cannot be repeated"
    else:
        return None
    return error(ErrorCode.INVALID_REQUEST, problem)


def check_deletion(request: admin_pb2.DeleteProducersRequest) -> errors_pb2.Error | None:
    """Returns the error for a deletion that is invalid regardless of existing names, or None."""
    if not 1 <= len(request.names) <= MAX_PRODUCER_NAMES:
        problem = f"{len(request.names)} producer names in the request: name 1 to {MAX_PRODUCER_NAMES} in one request"
    elif request.claimed_before_ms < 0:
        problem = f"producer names claimed before {request.claimed_before_ms} ms: times are counted from 1970 on"
    elif any(len(name) > MAX_NAME_LENGTH for name in request.names):
        problem = f"producer names have at most {MAX_NAME_LENGTH} characters"
    elif len(request.claims) not in (0, len(request.names)):
        problem = f"{len(request.names)} producer names come with {len(request.claims)} claims: give one each, or none"
    else:
        return None
    return error(ErrorCode.INVALID_REQUEST, problem)


def check_restored_names(request: admin_pb2.RestoreProducerNamesRequest) -> errors_pb2.Error | None:
    """Returns the error for names of a backup that are invalid regardless of existing ones, or None."""
    ids = [each.producer_id for each in request.producers]
    problem = None
    if len(ids) > MAX_PRODUCER_NAMES:
        problem = f"{len(ids)} producer names in one request: at most {MAX_PRODUCER_NAMES} are allowed"
    elif ids != sorted(set(ids)) or len({each.name for each in request.producers}) < len(ids):
        problem = "producer names of a backup come in the order of their ids, each once"
    elif ids and not FIRST_NAMED_PRODUCER_ID <= ids[0] <= ids[-1] < MAX_NEXT_NAMED_ID:
        problem = f"ids of producer names lie between {FIRST_NAMED_PRODUCER_ID} and {MAX_NEXT_NAMED_ID}"
    elif (
        not 0 <= request.next_producer_id <= MAX_NEXT_ID or not 0 <= request.next_named_producer_id < MAX_NEXT_NAMED_ID
    ):
        problem = "the ids to be given out next are negative, or leave no room for others"
    for each in request.producers:
        if not 1 <= len(each.name) <= MAX_NAME_LENGTH or not each.name.isprintable():
            problem = f"producer name {each.name[:40]!r} is not 1 to {MAX_NAME_LENGTH} printable characters"
        elif each.producer_epoch < 0 or each.claimed_ms < 0 or len(each.note) > MAX_NOTE_BYTES:
            problem = (
                f"producer name {each.name!r} has a negative epoch or time, or a note of more than {MAX_NOTE_BYTES} B"
            )
    return None if problem is None else error(ErrorCode.INVALID_REQUEST, problem)
