"""Participants of transactions: partitions and consumer groups.

Transaction coordinators and the leaders of both kinds of participants use this module.

A participant joins a transaction once the coordinator has enlisted it, and the
transaction ends there with a decision of the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from quorumlog.v1 import errors_pb2, peer_pb2, transactions_pb2
from quorumlog.wire.kafka.control import LogPlace

#: Approximate size of a participant without its texts.
_PARTICIPANT_BYTES = 40

#: Receives the answer to an enlistment.
OnEnlisted = Callable[[peer_pb2.EnlistmentResult], None]
#: Receives the error if a decision could not be carried out; None if its marker is committed, or if no such transaction
#: is open.
OnEnded = Callable[[errors_pb2.Error | None], None]


class Identity(NamedTuple):
    """A producer id with its epoch."""

    producer_id: int
    epoch: int


class Participant(NamedTuple):
    """A partition or a consumer group that takes part in a transaction. ``group_id`` is empty for a partition."""

    topic_id: bytes
    number: int
    group_id: str = ""

    @property
    def size_bytes(self) -> int:
        """Approximate size in bytes."""
        return _PARTICIPANT_BYTES + len(self.group_id)


@dataclass(slots=True, frozen=True)
class OpenHere:
    """A transaction that is open in a participant.

    Arguments:
        coordinator: number of the coordinator.
        place: where the transaction started.
    """

    participant: Participant
    identity: Identity
    coordinator: int
    place: LogPlace


class TransactionParticipants(Protocol):
    """The participants that this node leads."""

    def open(self, transaction: OpenHere, term: int, /) -> errors_pb2.Error | None:
        """Opens a transaction in a participant. Returns the error if it is no longer led in the term in which the
        coordinator was asked, or has learned of a decision at the place of the transaction or a later one."""

    def end(self, decision: peer_pb2.EndTransaction, ended: OnEnded, /) -> None:
        """Ends the transaction of a writer that started at or before the place of a decision: writes the marker, if one
        is open. Calls ``ended`` once the marker is committed; if none is open, once a quorum has confirmed that this
        node leads the participant. A transaction that starts later is not affected."""

    @property
    def are_open(self) -> bool:
        """True if a transaction may be open in a participant that this node leads."""

    def open_longer_than(self, age_us: int, /) -> Iterable[OpenHere]:
        """Returns the transactions that have been open for longer than an age, in participants that this node leads."""


class Enlisting(Protocol):
    """The way from participants to the coordinators of transactions."""

    def enlist(self, item: peer_pb2.Enlistment, term: int, on_enlisted: OnEnlisted, /) -> None:
        """Enlists a participant with the coordinator of its transactional id, and opens the transaction there.

        Arguments:
            term: the term in which this node leads the participant.
            on_enlisted: called in this step or a later one; without an error if the transaction is open now.
        """


# -- messages ---------------------------------------------------------------------------------------------------------


def place_form(place: LogPlace) -> transactions_pb2.TransactionPlace:
    """Returns a place as a message."""
    return transactions_pb2.TransactionPlace(term=place.term, index=place.index)


def place_of(form: transactions_pb2.TransactionPlace) -> LogPlace:
    """Returns the place that ``place_form`` wrote."""
    return LogPlace(form.term, form.index)


def identity_form(identity: Identity) -> transactions_pb2.ProducerIdentity:
    """Returns an identity as a message."""
    return transactions_pb2.ProducerIdentity(producer_id=identity.producer_id, producer_epoch=identity.epoch)


def identity_of(form: transactions_pb2.ProducerIdentity) -> Identity:
    """Returns the identity that ``identity_form`` wrote."""
    return Identity(form.producer_id, form.producer_epoch)


def participant_form(participant: Participant) -> transactions_pb2.TransactionParticipant:
    """Returns a participant as a message."""
    return transactions_pb2.TransactionParticipant(
        topic_id=participant.topic_id, partition=participant.number, group_id=participant.group_id
    )


def participant_of(form: transactions_pb2.TransactionParticipant) -> Participant:
    """Returns the participant that ``participant_form`` wrote."""
    if form.group_id:
        return Participant(b"", 0, form.group_id)
    return Participant(form.topic_id, form.partition)
