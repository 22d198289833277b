"""Expiry of silent producers, by the notes of a single leadership."""

from __future__ import annotations

from types import SimpleNamespace

from quorumlog.server.partition.forgotten_producers import LOOKS, ProducerExpiry
from quorumlog.v1.partition_log_pb2 import PartitionCommand

EXPIRATION_US = 8_000
LOOK_US = EXPIRATION_US // LOOKS


class Led:
    """A partition whose oldest producer has its last batch at ``oldest``, and what is proposed to it."""

    def __init__(self) -> None:
        self.group = 1_000
        self.leading_term = 1
        self.raft = SimpleNamespace(last_id=SimpleNamespace(index=10))
        self.producers = SimpleNamespace(oldest_index=10)
        self.proposed: list[int] = []

    @property
    def leads(self) -> bool:
        return self.leading_term != 0

    def propose_command(self, now: int, command: PartitionCommand) -> bool:
        self.proposed.append(command.forget_producers.up_to_index)
        return True


def expiry(partition: Led) -> ProducerExpiry:
    host = SimpleNamespace(touch=lambda group: None)
    return ProducerExpiry(0, EXPIRATION_US, host, {partition.group: partition})


def look(notes: ProducerExpiry, looks: int, first: int) -> int:
    for number in range(first, first + looks):
        notes.on_time(number * LOOK_US, 0)
    return first + looks


def test_who_has_been_silent_for_as_long_as_is_set_is_forgotten() -> None:
    partition = Led()
    notes = expiry(partition)
    after = look(notes, LOOKS, 1)
    assert partition.proposed == []
    look(notes, 1, after)
    assert partition.proposed == [10]


def test_notes_end_with_their_term() -> None:
    partition = Led()
    notes = expiry(partition)
    after = look(notes, LOOKS - 1, 1)
    # Deposed and elected again between two looks. Another leader has replaced the log's end: what lies at index 10 now
    # may have come a moment ago.
    partition.leading_term = 3
    after = look(notes, LOOKS, after)
    assert partition.proposed == [], "what was noted in another term says nothing of this log"
    look(notes, 1, after)
    assert partition.proposed == [10]


def test_a_follower_keeps_no_notes() -> None:
    partition = Led()
    notes = expiry(partition)
    after = look(notes, 4, 1)
    partition.leading_term = 0
    after = look(notes, 1, after)
    partition.leading_term = 1
    look(notes, LOOKS, after)
    assert partition.proposed == []
