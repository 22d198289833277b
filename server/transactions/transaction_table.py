"""The transactional ids of one coordinator, as its log has made them. Pure, and the same on every replica.

Applying stores values. The leader decided what they are, from the state after the preceding entries
(`TransactionDraft`); the version of each transactional id identifies that state. Only the place of an entry is not
known to the leader when it decides: it becomes the place of what the entry starts or decides.
"""

from __future__ import annotations

from quorumlog.raft.types import EntryId
from quorumlog.server.deciding.transaction_participants import identity_of, place_of
from quorumlog.server.transactions.transaction_forms import participants_of, producer_of, record_form, record_of
from quorumlog.server.transactions.transaction_record import Decision, OpenTransaction, TransactionalId, Writer
from quorumlog.v1 import transaction_log_pb2
from quorumlog.wire.kafka.control import LogPlace


class TransactionTable:
    """Transactional ids by name.

    Attributes:
        metadata_index: index of the metadata log that the decisions were based on; a leader needs at least that much.
        size_bytes: approximate size of all.
        by_producer: the transactional id of each producer id that is in use: of producers, and of writers of
            transactions that are open or have not been superseded by a newer decision.
    """

    def __init__(self) -> None:
        self.records: dict[str, TransactionalId] = {}
        self.metadata_index = 0
        self.size_bytes = 0
        self.by_producer: dict[int, str] = {}

    def apply(self, command: transaction_log_pb2.TransactionCommand, entry: EntryId) -> set[str]:
        """Applies one committed command; returns the transactional ids that it changed.

        Arguments:
            entry: its entry.

        Raises:
            AssertionError: the command is not based on this state, or would break an invariant. The node must stop:
                continuing would make replicas diverge.
        """
        place = LogPlace(entry.term, entry.index)
        changed: set[str] = set()
        for change in command.changes:
            name = change.transactional_id
            assert name not in changed, f"transactional id {name} changes twice in one command"
            known = self.records.get(name)
            version = known.version if known is not None else 0
            assert change.base_version == version, (
                f"a change of transactional id {name} is based on version {change.base_version}, not {version}"
            )
            # Versions of a new id start after all versions of a former one of its name.
            follows = change.version in (0, version + 1) if known is not None else change.version > 0
            assert follows, f"transactional id {name} skips versions"
            self._leave(known)
            after = None if not change.version else _changed(known, change, place, command.timestamp_ms)
            assert change.version or known is None or known.is_idle, f"transactional id {name} ends while it is in use"
            self._enter(name, after)
            changed.add(name)
        self.metadata_index = max(self.metadata_index, command.metadata_index)
        return changed

    def _leave(self, record: TransactionalId | None) -> None:
        if record is None:
            return
        self.size_bytes -= record.size_bytes
        for producer_id in _producer_ids(record):
            del self.by_producer[producer_id]

    def _enter(self, name: str, record: TransactionalId | None) -> None:
        if record is None:
            del self.records[name]
            return
        self.records[name] = record
        self.size_bytes += record.size_bytes
        for producer_id in _producer_ids(record):
            owner = self.by_producer.setdefault(producer_id, name)
            assert owner == name, f"transactional ids {owner} and {name} have the same producer id {producer_id}"

    # -- snapshots ----------------------------------------------------------------------------------------------------

    def to_snapshot(self, applied_index: int) -> bytes:
        """Returns the whole state, as of an index of the log."""
        return transaction_log_pb2.TransactionsSnapshot(
            records=[record_form(record) for _, record in sorted(self.records.items())],
            applied_index=applied_index,
            metadata_index=self.metadata_index,
        ).SerializeToString(deterministic=True)

    @classmethod
    def from_snapshot(cls, data: bytes) -> tuple[TransactionTable, int]:
        """Returns the table that ``to_snapshot`` wrote, and its index.

        Raises:
            google.protobuf.message.DecodeError: the bytes are not a snapshot.
        """
        snapshot = transaction_log_pb2.TransactionsSnapshot.FromString(data)
        table = cls()
        table.metadata_index = snapshot.metadata_index
        for form in snapshot.records:
            table._enter(form.transactional_id, record_of(form))
        return table, snapshot.applied_index


def _producer_ids(record: TransactionalId) -> set[int]:
    ids = {record.producer.identity.producer_id}
    if record.open is not None:
        ids.update(record.open.writers)
    for decision in record.decisions:
        ids.update(decision.writers)
    return ids


def _changed(
    record: TransactionalId | None, change: transaction_log_pb2.TransactionChange, place: LogPlace, now_ms: int
) -> TransactionalId:
    """Returns a transactional id after a change. The record itself is changed if there is one."""
    name = change.transactional_id
    if record is None:
        assert change.HasField("producer"), f"transactional id {name} starts without a producer"
        record = TransactionalId(name, change.version, producer_of(change.producer), now_ms)
    work = record.producer.work
    record.version, record.changed_ms = change.version, now_ms
    if change.HasField("start"):
        assert record.open is None, f"a transaction of {name} starts while another is open"
        record.open = OpenTransaction(place, change.start.started_ms, change.start.explicit)
    for form in change.writers:
        assert record.open is not None, f"a writer joins {name}, which has no open transaction"
        joined = record.open.writers.setdefault(form.identity.producer_id, Writer(form.identity.producer_epoch))
        assert joined.epoch == form.identity.producer_epoch, f"a writer of {name} has two epochs"
        joined.add(participants_of(form))
    if change.HasField("decision"):
        _decide(record, change, place, work)
    if change.HasField("producer"):
        record.producer = producer_of(change.producer)
    ended = {place_of(each) for each in change.ended}
    known = {decision.place for decision in record.decisions if not decision.ended}
    assert ended <= known, f"transactional id {name} ends decisions that it does not have"
    for decision in record.decisions:
        if decision.place in ended:
            decision.ended = True
            for writer in decision.writers.values():
                writer.forget_participants()
    newest = record.newest
    record.decisions = [each for each in record.decisions if not each.ended or each is newest]
    return record


def _decide(
    record: TransactionalId, change: transaction_log_pb2.TransactionChange, place: LogPlace, work: int | None
) -> None:
    decided = change.decision
    transaction, record.open = record.open, None
    writers = {} if transaction is None else transaction.writers
    own = record.producer.identity
    writers.setdefault(own.producer_id, Writer(own.epoch))
    committed = {own.producer_id, *decided.committed_writers} if decided.commit else set()
    assert committed <= writers.keys(), f"the decision on {record.name} commits writers that it does not have"
    for producer_id, writer in writers.items():
        writer.commit = producer_id in committed
    following = identity_of(decided.next)
    raised = following.producer_id != own.producer_id or following.epoch in (own.epoch, own.epoch + 1)
    assert raised, f"the decision on {record.name} raises the epoch from {own.epoch} to {following.epoch}"
    origin = place if transaction is None else transaction.place
    decision = Decision(place, origin, decided.commit, decided.cause, own, following, writers)
    decision.ended = not any(writer.participants for writer in writers.values())
    record.decisions.append(decision)
    if decided.commit and work is not None:
        assert record.committed_work is None or work > record.committed_work, (
            f"work of {record.name} is committed twice"
        )
        record.committed_work = work
