"""A coordinator's decisions on transactions, as functions on a draft: they change it, and return the answer.

Errors are those that Kafka's clients expect (KIP-98, 360, 447, 588, 890). Two rules differ from Kafka's. A decision
raises the producer's epoch by one, also when a new instance of the producer aborts the transaction of the former one;
Kafka raises it twice. And the order of the coordinator's log fences, not the epoch: the place of a decision is after
the places of all that was enlisted before it.
"""

from __future__ import annotations

from collections.abc import Iterable

from quorumlog.server.deciding.transaction_participants import (
    Identity,
    Participant,
    identity_form,
    identity_of,
    participant_form,
    participant_of,
    place_form,
    place_of,
)
from quorumlog.server.step.wire_errors import error
from quorumlog.server.transactions.transaction_draft import TransactionDraft, TransactionEdit, decision_form
from quorumlog.server.transactions.transaction_record import MAX_EPOCH, Decision, TransactionProducer
from quorumlog.server.transactions.transaction_table import TransactionTable
from quorumlog.server.transactions.transaction_views import no_such_id
from quorumlog.v1 import errors_pb2, peer_pb2, transaction_admin_pb2, transactions_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.peer_pb2 import (
    TRANSACTION_STANDING_DECIDED,
    TRANSACTION_STANDING_OPEN,
    TRANSACTION_STANDING_UNKNOWN,
)
from quorumlog.v1.transactions_pb2 import (
    TRANSACTION_CAUSE_NEW_INSTANCE,
    TRANSACTION_CAUSE_OPERATOR,
    TRANSACTION_CAUSE_PRODUCER,
    TRANSACTION_CAUSE_TIMEOUT,
    TransactionCause,
)
from quorumlog.wire.kafka.control import LogPlace

# -- the identity of a producer ---------------------------------------------------------------------------------------


def init_transactions(
    draft: TransactionDraft, request: transactions_pb2.InitTransactionsRequest
) -> transactions_pb2.InitTransactionsResponse:
    """Returns the identity of a producer, and fences its former instances. Aborts an open transaction."""
    name, most = request.transactional_id, draft.limits.max_timeout_ms
    if not 1 <= request.transaction_timeout_ms <= most:
        why = f"the transaction timeout is {request.transaction_timeout_ms} ms: choose one from 1 to {most}"
        return _no_init(error(ErrorCode.INVALID_TRANSACTION_TIMEOUT, why))
    edit = draft.find(name)
    if edit is None:
        return _create(draft, request)
    producer = edit.producer
    assert producer is not None, "a transactional id has a producer"
    if request.HasField("instance") and producer.instance is not None and request.instance <= producer.instance:
        return _of_instance(edit, producer, request)
    if edit.is_decided or edit.has_new_producer:
        return _no_init(_not_over(name))
    work = request.work if request.HasField("work") else None
    committed = edit.base.committed_work if edit.base is not None else None
    if work is not None and committed is not None and work <= committed:
        return _initialized(edit, producer.identity, work_committed=True)
    if request.HasField("identity"):
        had = identity_of(request.identity)
        if had == producer.former and not edit.is_open:
            # The answer was lost: the identity that it contained is still the newest one.
            return _initialized(edit, producer.identity)
        refused = _check_identity(edit, had)
        if refused is not None:
            return _no_init(refused)
    following = _raised(draft, producer.identity)
    if following is None:
        return _no_init(_no_producer_id())
    if edit.is_open:
        edit.decide(decision_form(commit=False, cause=TRANSACTION_CAUSE_NEW_INSTANCE, following=following))
    # A repeated request is recognised by the identity that its instance has had. That of another instance is not kept:
    # a fenced instance would receive the identity of the one that fenced it.
    former = producer.identity if request.HasField("identity") else None
    instance = request.instance if request.HasField("instance") else producer.after(following, work).instance
    edit.producer = TransactionProducer(following, former, request.transaction_timeout_ms, work, instance)
    return _initialized(edit, following)


def _of_instance(
    edit: TransactionEdit, producer: TransactionProducer, request: transactions_pb2.InitTransactionsRequest
) -> transactions_pb2.InitTransactionsResponse:
    """Returns the answer to another process of the producer's instance, or to one of an instance before it."""
    committed = edit.base.committed_work if edit.base is not None else None
    if request.HasField("work") and committed is not None and request.work <= committed:
        return _initialized(edit, producer.identity, work_committed=True)
    if request.instance == producer.instance:
        return _initialized(edit, producer.identity)
    if edit.is_decided:
        return _no_init(_not_over(edit.name))  # It may be the work of this request that is being committed.
    why = f"a later instance of {edit.name} has started, or the transaction of this one is over"
    return _no_init(error(ErrorCode.INVALID_PRODUCER_EPOCH, why))


def _initialized(
    edit: TransactionEdit, identity: Identity, *, work_committed: bool = False
) -> transactions_pb2.InitTransactionsResponse:
    return transactions_pb2.InitTransactionsResponse(
        identity=identity_form(identity),
        work_committed=work_committed,
        committed_work=edit.base.committed_work if edit.base is not None else None,
    )


def _create(
    draft: TransactionDraft, request: transactions_pb2.InitTransactionsRequest
) -> transactions_pb2.InitTransactionsResponse:
    if draft.is_full or not draft.has_room:
        full = (
            "the coordinator has as many transactional ids as it may: use one of them again, or wait until they expire"
        )
        return _no_init(error(ErrorCode.PRODUCER_LIMIT_EXCEEDED, full))
    producer_id = draft.take_producer_id()
    if producer_id is None:
        return _no_init(_no_producer_id())
    identity = Identity(producer_id, 0)
    work = request.work if request.HasField("work") else None
    instance = request.instance if request.HasField("instance") else None
    producer = TransactionProducer(identity, None, request.transaction_timeout_ms, work, instance)
    draft.create(request.transactional_id, producer)
    return transactions_pb2.InitTransactionsResponse(identity=identity_form(identity))


def _raised(draft: TransactionDraft, identity: Identity) -> Identity | None:
    """Returns the identity with the next epoch; with a new producer id if no epoch is left; None if no producer id is
    available."""
    if identity.epoch < MAX_EPOCH:
        return Identity(identity.producer_id, identity.epoch + 1)
    producer_id = draft.take_producer_id()
    return None if producer_id is None else Identity(producer_id, 0)


def _check_identity(edit: TransactionEdit, identity: Identity) -> errors_pb2.Error | None:
    """Returns the error for a request with another identity than the producer's."""
    assert edit.producer is not None, "a transactional id has a producer"
    own, newest = edit.producer.identity, edit.base.newest if edit.base is not None else None
    if identity == own:
        return None
    # After the last epoch of a producer id, only the newest decision contains that id.
    if identity.producer_id == own.producer_id or (newest is not None and identity.producer_id in newest.writers):
        why = (
            f"the producer {edit.name} has epoch {own.epoch}, the request has {identity.epoch}: another instance has"
            " started, or the transaction was aborted"
        )
        return error(ErrorCode.INVALID_PRODUCER_EPOCH, why)
    return _other_producer(edit.name, identity)


# -- participants -----------------------------------------------------------------------------------------------------


def join_transaction(
    draft: TransactionDraft, request: transactions_pb2.JoinTransactionRequest
) -> transactions_pb2.JoinTransactionResponse:
    """Adds a writer with a producer id of its own to a transaction, which starts if none is open."""
    name, identity = request.transactional_id, identity_of(request.identity)
    edit = draft.find(name)
    refused = _no_such_id(name) if edit is None else _check_identity(edit, identity)
    if edit is None or refused is not None:
        return transactions_pb2.JoinTransactionResponse(error=refused)
    if edit.is_decided:
        return transactions_pb2.JoinTransactionResponse(error=_not_over(name))
    if edit.writers >= draft.limits.writers or not draft.has_room:
        full = f"the transaction of {name} has {edit.writers} writers, or the coordinator is full: use fewer"
        return transactions_pb2.JoinTransactionResponse(error=error(ErrorCode.PRODUCER_LIMIT_EXCEEDED, full))
    producer_id = draft.take_producer_id()
    if producer_id is None:
        return transactions_pb2.JoinTransactionResponse(error=_no_producer_id())
    if not edit.is_open:
        edit.start(draft.wall_ms, explicit=False)
    writer = Identity(producer_id, 0)
    edit.join(writer)
    return transactions_pb2.JoinTransactionResponse(identity=identity_form(writer))


def add_to_transaction(
    draft: TransactionDraft, request: transactions_pb2.AddToTransactionRequest
) -> transactions_pb2.AddToTransactionResponse:
    """Adds participants to the transaction of a producer, which starts if none is open: all of them, or none."""
    name, identity = request.transactional_id, identity_of(request.identity)
    participants = {participant_of(each) for each in request.participants}
    edit = draft.find(name)
    refused = _no_such_id(name) if edit is None else _check_identity(edit, identity)
    if edit is not None and refused is None:
        refused = _check_participants(draft, edit, identity, participants)
    if edit is not None and refused is None:
        _add(draft, edit, identity, participants, explicit=True)
    return transactions_pb2.AddToTransactionResponse(error=refused)


def enlist(draft: TransactionDraft, request: peer_pb2.Enlistment) -> peer_pb2.EnlistmentResult:
    """Adds a participant that its leader has reported, or confirms that it is in the open transaction. The place is
    absent if the transaction starts: it is that of the entry."""
    name, identity, participant = (
        request.transactional_id,
        identity_of(request.identity),
        participant_of(request.participant),
    )
    edit = draft.find(name)
    refused = _no_such_id(name) if edit is None else _check_writer(edit, identity)
    if edit is None or refused is not None:
        return peer_pb2.EnlistmentResult(error=refused)
    if edit.is_open and edit.has(identity.producer_id, participant):
        return _enlisted(edit)
    if request.only_confirm:
        why = f"the transaction of {name} does not contain the participant: it is over, or none was started"
        return peer_pb2.EnlistmentResult(error=error(ErrorCode.INVALID_TXN_STATE, why))
    refused = _check_participants(draft, edit, identity, {participant})
    if refused is not None:
        due = draft.due(edit, identity.producer_id, participant)
        return peer_pb2.EnlistmentResult(
            error=refused, due=None if due is None else end_item(due, identity.producer_id, participant)
        )
    _add(draft, edit, identity, {participant}, explicit=False)
    return _enlisted(edit)


def _enlisted(edit: TransactionEdit) -> peer_pb2.EnlistmentResult:
    """Returns the answer for a participant of the open transaction. It has no place if that starts with this entry."""
    transaction = edit.base.open if edit.base is not None else None
    return peer_pb2.EnlistmentResult(place=None if transaction is None else place_form(transaction.place))


def _check_writer(edit: TransactionEdit, identity: Identity) -> errors_pb2.Error | None:
    """Returns the error for a batch of another producer than the transaction's, or than one of its writers."""
    assert edit.producer is not None, "a transactional id has a producer"
    if identity.producer_id == edit.producer.identity.producer_id:
        return _check_identity(edit, identity)
    epoch = edit.writer_epoch(identity.producer_id) if edit.is_open else None
    if epoch == identity.epoch:
        return None
    newest = edit.base.newest if edit.base is not None else None
    if epoch is not None or edit.is_decided or (newest is not None and identity.producer_id in newest.writers):
        why = f"the transaction of {edit.name} in which producer id {identity.producer_id} has written is over"
        return error(ErrorCode.INVALID_PRODUCER_EPOCH, why)
    return _other_producer(edit.name, identity)


def _check_participants(
    draft: TransactionDraft, edit: TransactionEdit, writer: Identity, participants: Iterable[Participant]
) -> errors_pb2.Error | None:
    if edit.is_decided:
        return _not_over(edit.name)
    new = [each for each in participants if not edit.is_open or not edit.has(writer.producer_id, each)]
    if edit.participants + len(new) > draft.limits.participants or not draft.has_room:
        most = f"{edit.participants} partitions and consumer groups, counted for each writer"
        why = f"the transactions of {edit.name} have {most}, or the coordinator is full: abort, and use fewer of both"
        return error(ErrorCode.TRANSACTION_ABORTABLE, why)
    for participant in new:
        if not participant.group_id and not draft.surroundings.has_partition(participant.topic_id, participant.number):
            # A participant that is not in the metadata of the coordinator counts as deleted, and gets no marker.
            why = f"the coordinator has no partition {participant.number} of that topic in its metadata: try again"
            return error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
        if draft.due(edit, writer.producer_id, participant) is not None:
            # An old client keeps its epoch, so its batch would join the former transaction.
            return _not_over(edit.name)
    return None


def _add(
    draft: TransactionDraft,
    edit: TransactionEdit,
    writer: Identity,
    participants: Iterable[Participant],
    *,
    explicit: bool,
) -> None:
    new = [each for each in participants if not edit.is_open or not edit.has(writer.producer_id, each)]
    if not new:
        return
    if not edit.is_open:
        edit.start(draft.wall_ms, explicit=explicit)
    edit.enlist(writer, new)


# -- the end of a transaction -----------------------------------------------------------------------------------------


def end_transaction(
    draft: TransactionDraft, request: transactions_pb2.EndTransactionRequest
) -> transactions_pb2.EndTransactionResponse:
    """Commits or aborts the transaction of a producer. A repeated request is answered from the decision that the first
    one has made."""
    name, identity = request.transactional_id, identity_of(request.identity)
    edit = draft.find(name)
    if edit is None:
        return _no_end(_no_such_id(name))
    if edit.is_decided:
        return _no_end(_not_over(name))
    repeated = _repeated(edit, identity, request)
    if repeated is not None:
        return repeated
    refused = _check_identity(edit, identity)
    if refused is not None:
        return _no_end(refused)
    producer = edit.producer
    assert producer is not None, "a transactional id has a producer"
    writers = set(request.writers) - {identity.producer_id}
    if not edit.is_open and (request.commit or not request.raises_epoch):
        # A client that raises its epoch may abort: it cannot tell whether one of its batches has started a transaction.
        return _no_end(error(ErrorCode.INVALID_TXN_STATE, f"no transaction of {name} is open"))
    if request.commit and any(edit.writer_epoch(each) is None for each in writers):
        return _no_end(error(ErrorCode.INVALID_TXN_STATE, f"a writer is not in the transaction of {name}: abort it"))
    following = _raised(draft, identity) if request.raises_epoch else identity
    if following is None:
        return _no_end(_no_producer_id())
    _decide(edit, following, commit=request.commit, cause=TRANSACTION_CAUSE_PRODUCER, writers=writers)
    return transactions_pb2.EndTransactionResponse(identity=identity_form(following))


def _decide(
    edit: TransactionEdit,
    following: Identity,
    *,
    commit: bool,
    cause: TransactionCause.ValueType,
    writers: Iterable[int] = (),
) -> None:
    producer = edit.producer
    assert producer is not None, "a transactional id has a producer"
    edit.decide(decision_form(commit=commit, cause=cause, following=following, writers=writers if commit else ()))
    # Work that is committed is not started again; work that is aborted may be.
    work = None if commit else producer.work
    edit.producer = producer.after(following, work)


def _repeated(
    edit: TransactionEdit, identity: Identity, request: transactions_pb2.EndTransactionRequest
) -> transactions_pb2.EndTransactionResponse | None:
    """Returns the answer if the newest decision was made for this identity already; None if it was not."""
    newest = edit.base.newest if edit.base is not None else None
    producer = edit.producer
    if newest is None or producer is None or identity != newest.producer or producer.identity != newest.following:
        return None
    if edit.is_open and identity == producer.identity:
        return None  # The producer keeps its epoch: the request is about the transaction that is open now.
    if newest.cause == TRANSACTION_CAUSE_NEW_INSTANCE:
        return None  # The identity that follows belongs to another instance.
    answer = transactions_pb2.EndTransactionResponse(identity=identity_form(newest.following))
    if newest.cause in (TRANSACTION_CAUSE_TIMEOUT, TRANSACTION_CAUSE_OPERATOR):
        if not request.raises_epoch:
            return None  # The client has no way to receive the next epoch from this answer.
        if request.commit:
            is_late = newest.cause == TRANSACTION_CAUSE_TIMEOUT
            what = "was open for longer than its timeout, and is aborted" if is_late else "was aborted by an operator"
            why = f"the transaction of {edit.name} {what}"
            return _no_end(error(ErrorCode.TRANSACTION_ABORTABLE, why))
        return answer
    committed = {producer_id for producer_id, writer in newest.writers.items() if writer.commit}
    if request.commit != newest.commit or (request.commit and committed != {*request.writers, identity.producer_id}):
        other = "committed" if newest.commit else "aborted"
        why = f"the transaction of {edit.name} has been {other}, perhaps with other writers"
        return _no_end(error(ErrorCode.INVALID_TXN_STATE, why))
    return answer


def expire_transaction(draft: TransactionDraft, name: str, place: LogPlace) -> bool:
    """Aborts a transaction that has been open for longer than its timeout. Returns False if it must be tried again."""
    edit = draft.find(name)
    if edit is None or edit.base is None or edit.base.open is None or edit.base.open.place != place:
        return True
    if edit.is_decided:
        return True
    assert edit.producer is not None, "a transactional id has a producer"
    following = _raised(draft, edit.producer.identity)
    if following is None:
        return False
    _decide(edit, following, commit=False, cause=TRANSACTION_CAUSE_TIMEOUT)
    return True


def abort_transaction(
    draft: TransactionDraft, request: transaction_admin_pb2.AbortTransactionRequest
) -> transaction_admin_pb2.AbortTransactionResponse:
    """Aborts a transaction for an operator, and fences its producer. The request names the place at which the
    transaction started: the next one of the same id is never aborted in its stead."""
    name, origin = request.transactional_id, place_of(request.place)
    edit = draft.find(name)
    if edit is None:
        return _no_abort(no_such_id(name))
    if edit.is_decided:
        return _no_abort(_not_over(name))
    transaction = edit.base.open if edit.base is not None else None
    if transaction is None or transaction.place != origin:
        newest = edit.base.newest if edit.base is not None else None
        if newest is not None and newest.origin == origin and not newest.commit:
            return transaction_admin_pb2.AbortTransactionResponse()
        over = "is committed" if newest is not None and newest.origin == origin else "is over, or has never existed"
        why = f"the transaction of {name} that started at {origin.term}/{origin.index} {over}: describe it again"
        return _no_abort(error(ErrorCode.INVALID_TXN_STATE, why))
    assert edit.producer is not None, "a transactional id has a producer"
    following = _raised(draft, edit.producer.identity)
    if following is None:
        return _no_abort(_no_producer_id())
    _decide(edit, following, commit=False, cause=TRANSACTION_CAUSE_OPERATOR)
    return transaction_admin_pb2.AbortTransactionResponse()


def record_ended(draft: TransactionDraft, name: str, decided: LogPlace) -> None:
    """Records that every participant of a decision has answered."""
    edit = draft.find(name)
    if edit is None or edit.base is None:
        return
    if any(decision.place == decided and not decision.ended for decision in edit.base.decisions):
        edit.end([decided])


def expire_id(draft: TransactionDraft, name: str) -> None:
    """Removes a transactional id that is not in use and has not been for long. One that has committed numbered work
    stays for longer: with the id, the coordinator would forget which work must not be committed again."""
    edit = draft.find(name)
    if edit is None or edit.base is None or edit.is_changed or not edit.base.is_idle:
        return
    limits = draft.limits
    retention_ms = limits.retention_ms if edit.base.committed_work is None else limits.work_retention_ms
    if draft.wall_ms - edit.base.changed_ms >= retention_ms:
        edit.is_deleted = True


# -- what became of a transaction -------------------------------------------------------------------------------------


def resolve(
    table: TransactionTable, applied: LogPlace, request: peer_pb2.OpenInParticipant
) -> peer_pb2.ResolvedTransaction:
    """Returns what became of a transaction that is open in a participant. Only a leader whose leadership is confirmed
    may answer.

    Arguments:
        applied: where the table is. It does not contain a transaction that started later.
    """
    identity, origin = identity_of(request.identity), place_of(request.place)
    if applied < origin:
        behind = "this node has not applied the start of the transaction: ask the leader of the coordinator"
        return peer_pb2.ResolvedTransaction(error=error(ErrorCode.COORDINATOR_NOT_AVAILABLE, behind))
    record = table.records.get(table.by_producer.get(identity.producer_id, ""))
    if record is not None:
        transaction = record.open
        if transaction is not None and transaction.place == origin:
            writer = transaction.writers.get(identity.producer_id)
            if writer is not None and writer.epoch == identity.epoch:
                return peer_pb2.ResolvedTransaction(standing=TRANSACTION_STANDING_OPEN)
        for decision in record.decisions:
            writer = decision.writers.get(identity.producer_id) if decision.origin == origin else None
            if writer is not None and writer.epoch == identity.epoch:
                return peer_pb2.ResolvedTransaction(
                    standing=TRANSACTION_STANDING_DECIDED,
                    decided=place_form(decision.place),
                    commit=writer.commit,
                    next_epoch=decision.next_epoch(identity.producer_id),
                )
    return peer_pb2.ResolvedTransaction(standing=TRANSACTION_STANDING_UNKNOWN)


def end_item(decision: Decision, producer_id: int, participant: Participant) -> peer_pb2.EndTransaction:
    """Returns the decision on a transaction for one writer in one participant."""
    writer = decision.writers[producer_id]
    return peer_pb2.EndTransaction(
        identity=identity_form(Identity(producer_id, writer.epoch)),
        participant=participant_form(participant),
        origin=place_form(decision.origin),
        decided=place_form(decision.place),
        commit=writer.commit,
        next_epoch=decision.next_epoch(producer_id),
    )


# -- errors -----------------------------------------------------------------------------------------------------------


def _no_init(problem: errors_pb2.Error) -> transactions_pb2.InitTransactionsResponse:
    return transactions_pb2.InitTransactionsResponse(error=problem)


def _no_end(problem: errors_pb2.Error) -> transactions_pb2.EndTransactionResponse:
    return transactions_pb2.EndTransactionResponse(error=problem)


def _no_abort(problem: errors_pb2.Error) -> transaction_admin_pb2.AbortTransactionResponse:
    return transaction_admin_pb2.AbortTransactionResponse(error=problem)


def _no_such_id(name: str) -> errors_pb2.Error:
    return error(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"transactional id {name} has no producer: call init first")


def _other_producer(name: str, identity: Identity) -> errors_pb2.Error:
    why = f"producer id {identity.producer_id} does not belong to transactional id {name}"
    return error(ErrorCode.INVALID_PRODUCER_ID_MAPPING, why)


def _not_over(name: str) -> errors_pb2.Error:
    return error(ErrorCode.CONCURRENT_TRANSACTIONS, f"a former transaction of {name} is not over yet: try again")


def _no_producer_id() -> errors_pb2.Error:
    none = "this node has no producer id left, and has asked the controller for more: try again shortly"
    return error(ErrorCode.COORDINATOR_NOT_AVAILABLE, none)
