"""Views of transactional ids for operators, from a leader's table and the answers of participants. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import re2

from quorumlog.server.deciding.transaction_participants import Participant, identity_form, place_form
from quorumlog.server.step.wire_errors import error
from quorumlog.server.transactions.transaction_record import Decision, TransactionalId
from quorumlog.v1 import errors_pb2, transaction_admin_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.transaction_admin_pb2 import (
    TRANSACTION_STATE_COMPLETE_ABORT,
    TRANSACTION_STATE_COMPLETE_COMMIT,
    TRANSACTION_STATE_EMPTY,
    TRANSACTION_STATE_ONGOING,
    TRANSACTION_STATE_PREPARE_ABORT,
    TRANSACTION_STATE_PREPARE_COMMIT,
    TransactionState,
)
from quorumlog.v1.transactions_pb2 import TRANSACTION_CAUSE_UNSPECIFIED
from quorumlog.wire.kafka.control import LogPlace

#: Maximum number of transactional ids in one answer.
LISTED_PER_PAGE = 2_000
#: Limits of a pattern and of the filters in one request.
MAX_PATTERN_LENGTH = 1_000
MAX_FILTERS = 1_000
_PATTERN_BYTES = 1 << 20


class KnownAnswers(Protocol):
    """The answers of participants that a leader has."""

    def is_answered(self, name: str, place: LogPlace, producer_id: int, participant: Participant) -> bool:
        """True if a participant of a decision has answered."""

    def is_complete(self, name: str, place: LogPlace) -> bool:
        """True if all participants of a decision have answered."""


def state_of(record: TransactionalId, answers: KnownAnswers) -> TransactionState.ValueType:
    """Returns the state of a transactional id in Kafka's terms."""
    if record.open is not None:
        return TRANSACTION_STATE_ONGOING
    newest = record.newest
    if newest is None:
        return TRANSACTION_STATE_EMPTY
    if newest.ended or answers.is_complete(record.name, newest.place):
        return TRANSACTION_STATE_COMPLETE_COMMIT if newest.commit else TRANSACTION_STATE_COMPLETE_ABORT
    return TRANSACTION_STATE_PREPARE_COMMIT if newest.commit else TRANSACTION_STATE_PREPARE_ABORT


# -- lists ------------------------------------------------------------------------------------------------------------


class ListingFilter:
    """The filters of a list, which apply together.

    Arguments:
        wall_ms: milliseconds since the epoch.
        may_see: True for transactional ids that the client may see.

    Raises:
        ValueError: the pattern is not a regular expression, or a filter is too long.
    """

    def __init__(
        self, request: transaction_admin_pb2.ListTransactionsRequest, wall_ms: int, may_see: Callable[[str], bool]
    ) -> None:
        if len(request.name_pattern) > MAX_PATTERN_LENGTH:
            raise ValueError(f"a pattern has at most {MAX_PATTERN_LENGTH} characters")
        if max(len(request.states), len(request.producer_ids)) > MAX_FILTERS:
            raise ValueError(f"a request has at most {MAX_FILTERS} states and producer ids")
        self._states = frozenset(request.states)
        self._producer_ids = frozenset(request.producer_ids)
        self._started_before = wall_ms - request.longer_than_ms if request.HasField("longer_than_ms") else None
        self._pattern = _compiled(request.name_pattern) if request.name_pattern else None
        self._after = request.after
        self._may_see = may_see

    def page(self, records: Iterable[TransactionalId], answers: KnownAnswers) -> tuple[list[TransactionalId], bool]:
        """Returns the first page of the records that pass, by name, and whether there are more."""
        passed = sorted((each for each in records if self._passes(each, answers)), key=lambda each: each.name)
        return passed[:LISTED_PER_PAGE], len(passed) > LISTED_PER_PAGE

    def _passes(self, record: TransactionalId, answers: KnownAnswers) -> bool:
        if record.name <= self._after:
            return False
        if self._producer_ids and record.producer.identity.producer_id not in self._producer_ids:
            return False
        if self._started_before is not None and not (
            record.open is not None and record.open.started_ms < self._started_before
        ):
            return False
        if self._states and state_of(record, answers) not in self._states:
            return False
        if self._pattern is not None and not self._pattern.fullmatch(record.name):
            return False
        return self._may_see(record.name)


def _compiled(pattern: str) -> re2._Regexp[str]:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PATTERN_BYTES
    try:
        return re2.compile(pattern, options)
    except re2.error as problem:
        raise ValueError(f"the pattern {pattern} is not an RE2 expression") from problem


def listing(record: TransactionalId, answers: KnownAnswers) -> transaction_admin_pb2.TransactionListing:
    """Returns the list entry of a transactional id."""
    return transaction_admin_pb2.TransactionListing(
        transactional_id=record.name,
        identity=identity_form(record.producer.identity),
        state=state_of(record, answers),
        started_ms=record.open.started_ms if record.open is not None else 0,
    )


# -- descriptions -----------------------------------------------------------------------------------------------------


def describe(
    record: TransactionalId, answers: KnownAnswers, topic_name: Callable[[bytes], str | None]
) -> transaction_admin_pb2.DescribeTransactionResponse:
    """Returns a transactional id with the participants of its open transaction, and of decided ones that have not
    ended.

    Arguments:
        topic_name: returns the name of a topic; empty if it was deleted; None if the client may not see it.
    """
    newest, transaction = record.newest, record.open
    response = transaction_admin_pb2.DescribeTransactionResponse(
        state=state_of(record, answers),
        identity=identity_form(record.producer.identity),
        transaction_timeout_ms=record.producer.timeout_ms,
        started_ms=transaction.started_ms if transaction is not None else 0,
        place=place_form(transaction.place) if transaction is not None else None,
        cause=newest.cause if transaction is None and newest is not None else TRANSACTION_CAUSE_UNSPECIFIED,
    )
    every: dict[Participant, bool] = {}
    if transaction is not None:
        response.writers = len(transaction.writers)
        for writer in transaction.writers.values():
            every.update(dict.fromkeys(writer.participants, False))
    elif newest is not None:
        response.writers = len(newest.writers)
    for decision in record.decisions:
        for participant, unanswered in _participants(record.name, decision, answers):
            # Beside an open transaction, former ones are shown where they hold something up.
            if unanswered or (decision is newest and transaction is None):
                every[participant] = every.get(participant, False) or unanswered
    _add_participants(response, every, topic_name)
    return response


def _participants(name: str, decision: Decision, answers: KnownAnswers) -> Iterator[tuple[Participant, bool]]:
    if not decision.ended:
        for producer_id, _, participant in decision.participants():
            yield participant, not answers.is_answered(name, decision.place, producer_id, participant)


def _add_participants(
    response: transaction_admin_pb2.DescribeTransactionResponse,
    every: dict[Participant, bool],
    topic_name: Callable[[bytes], str | None],
) -> None:
    row: transaction_admin_pb2.TransactionTopic | None = None
    for participant in sorted(every):
        if participant.group_id:
            response.groups.add(group_id=participant.group_id, unanswered=every[participant])
            continue
        if row is None or row.topic_id != participant.topic_id:
            name = topic_name(participant.topic_id)
            row = transaction_admin_pb2.TransactionTopic(topic_id=participant.topic_id, topic=name or "")
            if name is not None:
                row = response.topics.add(topic_id=participant.topic_id, topic=name)
        row.partitions.append(participant.number)
        if every[participant]:
            row.unanswered.append(participant.number)


def no_such_id(name: str) -> errors_pb2.Error:
    """Returns the error for a transactional id that does not exist."""
    why = f"transactional id {name} does not exist: 'quorumlog transactions list' shows all"
    return error(ErrorCode.INVALID_PRODUCER_ID_MAPPING, why)
