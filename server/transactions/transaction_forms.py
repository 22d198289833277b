"""Transactional ids in messages: in the coordinator's log, in its snapshots, and in requests.

Everything is written in sorted order, so that the same state is the same bytes on every replica.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from quorumlog.server.deciding.transaction_participants import (
    Identity,
    Participant,
    identity_form,
    identity_of,
    place_form,
    place_of,
)
from quorumlog.server.transactions.transaction_record import (
    Decision,
    OpenTransaction,
    TransactionalId,
    TransactionProducer,
    Writer,
)
from quorumlog.v1 import transaction_log_pb2
from quorumlog.v1.groups_pb2 import TopicPartitions


def producer_form(producer: TransactionProducer) -> transaction_log_pb2.TransactionalProducer:
    """Returns a producer as a record of the log."""
    return transaction_log_pb2.TransactionalProducer(
        identity=identity_form(producer.identity),
        former=None if producer.former is None else identity_form(producer.former),
        timeout_ms=producer.timeout_ms,
        work=producer.work,
        instance=producer.instance,
    )


def producer_of(form: transaction_log_pb2.TransactionalProducer) -> TransactionProducer:
    """Returns the producer that ``producer_form`` wrote."""
    return TransactionProducer(
        identity_of(form.identity),
        identity_of(form.former) if form.HasField("former") else None,
        form.timeout_ms,
        form.work if form.HasField("work") else None,
        form.instance if form.HasField("instance") else None,
    )


def writer_form(
    producer_id: int, epoch: int, participants: Iterable[Participant]
) -> transaction_log_pb2.TransactionWriter:
    """Returns a writer, with these participants, as a record of the log."""
    form = transaction_log_pb2.TransactionWriter(identity=identity_form(Identity(producer_id, epoch)))
    topics: dict[bytes, list[int]] = {}
    for participant in sorted(participants):
        if participant.group_id:
            form.group_ids.append(participant.group_id)
        else:
            topics.setdefault(participant.topic_id, []).append(participant.number)
    form.topics.extend(TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in topics.items())
    return form


def participants_of(form: transaction_log_pb2.TransactionWriter) -> set[Participant]:
    """Returns the participants in the record of a writer."""
    partitions = {Participant(row.topic_id, number) for row in form.topics for number in row.partitions}
    return partitions | {Participant(b"", 0, group_id) for group_id in form.group_ids}


# -- snapshots --------------------------------------------------------------------------------------------------------


def record_form(record: TransactionalId) -> transaction_log_pb2.TransactionRecord:
    """Returns a transactional id as a record of a snapshot."""
    return transaction_log_pb2.TransactionRecord(
        transactional_id=record.name,
        version=record.version,
        producer=producer_form(record.producer),
        committed_work=record.committed_work,
        changed_ms=record.changed_ms,
        open=None if record.open is None else _open_form(record.open),
        decisions=[_decision_form(decision) for decision in record.decisions],
    )


def record_of(form: transaction_log_pb2.TransactionRecord) -> TransactionalId:
    """Returns the transactional id that ``record_form`` wrote."""
    return TransactionalId(
        form.transactional_id,
        form.version,
        producer_of(form.producer),
        form.changed_ms,
        form.committed_work if form.HasField("committed_work") else None,
        _open_of(form.open) if form.HasField("open") else None,
        [_decision_of(decision) for decision in form.decisions],
    )


def _writer_forms(writers: Mapping[int, Writer]) -> list[transaction_log_pb2.TransactionWriter]:
    forms = []
    for producer_id, writer in sorted(writers.items()):
        form = writer_form(producer_id, writer.epoch, writer.participants)
        form.commit = writer.commit
        forms.append(form)
    return forms


def _writers_of(forms: Iterable[transaction_log_pb2.TransactionWriter]) -> dict[int, Writer]:
    writers = {}
    for form in forms:
        writer = writers[form.identity.producer_id] = Writer(form.identity.producer_epoch, commit=form.commit)
        writer.add(participants_of(form))
    return writers


def _open_form(open_one: OpenTransaction) -> transaction_log_pb2.OpenTransactionRecord:
    return transaction_log_pb2.OpenTransactionRecord(
        place=place_form(open_one.place),
        start=transaction_log_pb2.TransactionStart(started_ms=open_one.started_ms, explicit=open_one.explicit),
        writers=_writer_forms(open_one.writers),
    )


def _open_of(form: transaction_log_pb2.OpenTransactionRecord) -> OpenTransaction:
    return OpenTransaction(place_of(form.place), form.start.started_ms, form.start.explicit, _writers_of(form.writers))


def _decision_form(decision: Decision) -> transaction_log_pb2.DecidedTransactionRecord:
    return transaction_log_pb2.DecidedTransactionRecord(
        place=place_form(decision.place),
        origin=place_form(decision.origin),
        decision=transaction_log_pb2.TransactionDecision(
            commit=decision.commit, cause=decision.cause, next=identity_form(decision.following)
        ),
        writers=_writer_forms(decision.writers),
        ended=decision.ended,
        producer=identity_form(decision.producer),
    )


def _decision_of(form: transaction_log_pb2.DecidedTransactionRecord) -> Decision:
    return Decision(
        place_of(form.place),
        place_of(form.origin),
        form.decision.commit,
        form.decision.cause,
        identity_of(form.producer),
        identity_of(form.decision.next),
        _writers_of(form.writers),
        form.ended,
    )
