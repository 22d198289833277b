"""One transaction coordinator without a node: the shipped decisions, each applied at once or when the test says so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from quorumlog.raft.types import EntryId
from quorumlog.server.config.transaction_limits import TransactionLimits
from quorumlog.server.deciding.transaction_participants import Identity, Participant
from quorumlog.server.transactions import transaction_decisions as decisions
from quorumlog.server.transactions.transaction_draft import TransactionDraft
from quorumlog.server.transactions.transaction_record import TransactionalId
from quorumlog.server.transactions.transaction_table import TransactionTable
from quorumlog.v1 import peer_pb2, transaction_admin_pb2, transactions_pb2
from quorumlog.v1.transaction_log_pb2 import TransactionCommand
from quorumlog.wire.kafka.control import LogPlace

AnswerT = TypeVar("AnswerT")

NAME = "billing"
TOPIC = b"t" * 16
ORDERS, INVOICES, AUDIT = (Participant(TOPIC, number) for number in range(3))
GROUP = Participant(b"", 0, "readers")


@dataclass
class Ids:
    """Producer ids from 1 on; none while ``left`` is 0."""

    following: int = 1
    left: int = 1_000
    returned: list[int] = field(default_factory=list)

    def take(self) -> int | None:
        if not self.left:
            return None
        self.left -= 1
        self.following += 1
        return self.following - 1

    def give_back(self, producer_ids: Iterable[int]) -> None:
        self.returned.extend(producer_ids)


@dataclass
class Surroundings:
    """Three partitions exist; participants have answered what the test says."""

    metadata_index: int = 5
    answered: set[tuple[int, Participant]] = field(default_factory=set)

    def has_partition(self, topic_id: bytes, number: int) -> bool:
        return topic_id == TOPIC and 0 <= number < 3

    def is_answered(self, name: str, decided: LogPlace, producer_id: int, participant: Participant) -> bool:
        return (producer_id, participant) in self.answered


class TransactionRig:
    """A table, and decisions on it."""

    def __init__(self, limits: TransactionLimits | None = None) -> None:
        self.table = TransactionTable()
        self.limits = limits or TransactionLimits()
        self.ids = Ids()
        self.surroundings = Surroundings()
        self.wall_ms = 1_000
        self.index, self.term = 10, 3
        self.commands: list[TransactionCommand] = []
        self.draft = self.new_draft()

    def new_draft(self) -> TransactionDraft:
        """Starts the next decision."""
        self.draft = TransactionDraft(self.table, self.limits, self.ids, self.surroundings, self.wall_ms, self.index)
        return self.draft

    def apply(self) -> set[str]:
        """Applies what was decided since the last time."""
        command = self.draft.command()
        changed: set[str] = set()
        if command is not None:
            self.index += 1
            self.commands.append(command)
            changed = self.table.apply(command, EntryId(self.index, self.term, 0))
        self.new_draft()
        return changed

    @property
    def place(self) -> LogPlace:
        """The place of the newest entry."""
        return LogPlace(self.term, self.index)

    @property
    def record(self) -> TransactionalId:
        return self.table.records[NAME]

    # -- calls; each is applied, unless the test keeps the draft --------------------------------------------------

    def init(
        self, had: Identity | None = None, *, keep: bool = False, work: int | None = None, name: str = NAME,
        timeout_ms: int = 60_000, instance: int | None = None,
    ) -> transactions_pb2.InitTransactionsResponse:  # fmt: skip
        request = transactions_pb2.InitTransactionsRequest(
            transactional_id=name, transaction_timeout_ms=timeout_ms, work=work, instance=instance
        )
        if had is not None:
            request.identity.producer_id, request.identity.producer_epoch = had
        answer = decisions.init_transactions(self.draft, request)
        return self._done(answer, keep)

    def identity(self, **options: object) -> Identity:
        """The identity that a new instance receives."""
        answer = self.init(**options)  # type: ignore[arg-type]
        assert not answer.HasField("error"), answer
        return Identity(answer.identity.producer_id, answer.identity.producer_epoch)

    def join(self, of: Identity, *, keep: bool = False) -> transactions_pb2.JoinTransactionResponse:
        request = transactions_pb2.JoinTransactionRequest(transactional_id=NAME)
        request.identity.producer_id, request.identity.producer_epoch = of
        return self._done(decisions.join_transaction(self.draft, request), keep)

    def writer(self, of: Identity) -> Identity:
        """The identity of a new writer."""
        answer = self.join(of)
        assert not answer.HasField("error"), answer
        return Identity(answer.identity.producer_id, answer.identity.producer_epoch)

    def add(
        self, of: Identity, *participants: Participant, keep: bool = False
    ) -> transactions_pb2.AddToTransactionResponse:
        request = transactions_pb2.AddToTransactionRequest(transactional_id=NAME)
        request.identity.producer_id, request.identity.producer_epoch = of
        for each in participants:
            request.participants.add(topic_id=each.topic_id, partition=each.number, group_id=each.group_id)
        return self._done(decisions.add_to_transaction(self.draft, request), keep)

    def enlist(
        self, of: Identity, participant: Participant, *, only_confirm: bool = False, keep: bool = False
    ) -> peer_pb2.EnlistmentResult:
        item = peer_pb2.Enlistment(transactional_id=NAME, only_confirm=only_confirm)
        item.identity.producer_id, item.identity.producer_epoch = of
        item.participant.topic_id, item.participant.partition = participant.topic_id, participant.number
        item.participant.group_id = participant.group_id
        return self._done(decisions.enlist(self.draft, item), keep)

    def end(
        self, of: Identity, *, commit: bool = True, raises: bool = True, writers: Iterable[int] = (), keep: bool = False
    ) -> transactions_pb2.EndTransactionResponse:
        request = transactions_pb2.EndTransactionRequest(
            transactional_id=NAME, commit=commit, raises_epoch=raises, writers=writers
        )
        request.identity.producer_id, request.identity.producer_epoch = of
        return self._done(decisions.end_transaction(self.draft, request), keep)

    def ended(self, of: Identity, **options: object) -> Identity:
        """The identity after the end of a transaction."""
        answer = self.end(of, **options)  # type: ignore[arg-type]
        assert not answer.HasField("error"), answer
        return Identity(answer.identity.producer_id, answer.identity.producer_epoch)

    def expire(self) -> bool:
        """The open transaction has been open for too long."""
        assert self.record.open is not None
        done = decisions.expire_transaction(self.draft, NAME, self.record.open.place)
        return self._done(done, False)

    def abort(self, origin: LogPlace) -> transaction_admin_pb2.AbortTransactionResponse:
        """An operator aborts the transaction that started at a place."""
        request = transaction_admin_pb2.AbortTransactionRequest(transactional_id=NAME)
        request.place.term, request.place.index = origin
        return self._done(decisions.abort_transaction(self.draft, request), False)

    def all_answered(self) -> None:
        """Every participant has answered every decision."""
        for decision in self.record.decisions:
            decisions.record_ended(self.draft, NAME, decision.place)
        self.apply()

    def resolve(self, of: Identity, started: LogPlace) -> peer_pb2.ResolvedTransaction:
        item = peer_pb2.OpenInParticipant()
        item.identity.producer_id, item.identity.producer_epoch = of
        item.place.term, item.place.index = started
        return decisions.resolve(self.table, self.place, item)

    def _done(self, answer: AnswerT, keep: bool) -> AnswerT:
        if not keep:
            self.apply()
        return answer
