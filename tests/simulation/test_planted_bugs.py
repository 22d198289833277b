"""The simulator is not blind: each of these bugs, planted into the shipped node, is found within a few seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from quorumlog.chaos.simulation import Simulation
from quorumlog.raft.outbox import Outbox
from quorumlog.raft.replication import Replication
from quorumlog.raft.types import Message
from quorumlog.server.acknowledgements import Acknowledgements, Waiter
from quorumlog.server.group_host import GroupHost
from quorumlog.server.partition import Partition
from quorumlog.server.producer_table import ProducerTable
from quorumlog.storage.transaction import Transaction
from quorumlog.v1.errors_pb2 import Error

Plant = Callable[[pytest.MonkeyPatch], None]
MOST_SEEDS = 100


def acknowledge_before_commit(patch: pytest.MonkeyPatch) -> None:
    def resolve(
        self: Acknowledgements, committed: int, durable: int, index_on: Callable[[int], int]
    ) -> Iterator[Waiter]:
        return original(self, durable, durable, lambda copies: durable)

    original = Acknowledgements.resolve
    patch.setattr(Acknowledgements, "resolve", resolve)


def say_before_the_sync_what_must_wait_for_it(patch: pytest.MonkeyPatch) -> None:
    def take(self: Outbox, *, writes: bool) -> tuple[list[Message], list[Message], int]:
        now, after, number = original(self, writes=writes)
        return now + after, [], number

    original = Outbox.take
    patch.setattr(Outbox, "take", take)


def forget_terms_and_votes(patch: pytest.MonkeyPatch) -> None:
    def take_transaction(self: GroupHost, now: int) -> Transaction | None:
        transaction = original(self, now)
        for write in transaction.writes if transaction is not None else ():
            if write.create is None and write.snapshot is None:
                write.hard_state = None
        return transaction

    original = GroupHost.take_transaction
    patch.setattr(GroupHost, "take_transaction", take_transaction)


def skip_deduplication(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerTable, "check", lambda self, header: None)


def keep_the_tail_of_a_lost_leadership(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerTable, "drop_tail", lambda self: None)
    patch.setattr(ProducerTable, "rebuild_tail", lambda self, uncommitted: None)


def serve_before_an_entry_of_the_own_term_is_committed(patch: pytest.MonkeyPatch) -> None:
    def check_readable(self: Partition, leader_epoch: int) -> Error | None:
        return self.check_epoch(leader_epoch) if self.leads else self.not_leader()

    patch.setattr(Partition, "check_readable", check_readable)


def commit_by_one_replica_less(patch: pytest.MonkeyPatch) -> None:
    def advance_commit(self: Replication) -> bool:
        return self._log.commit_to(self._log.durable_index) if self._log.durable_index >= self.term_start else False

    patch.setattr(Replication, "advance_commit", advance_commit)


#: Each with the seed to begin with: one that is known to notice it. When the code has moved on and it no longer does,
#: the search goes on from there.
PLANTED: dict[Plant, int] = {
    acknowledge_before_commit: 1,
    say_before_the_sync_what_must_wait_for_it: 1,
    forget_terms_and_votes: 1,
    skip_deduplication: 1,
    keep_the_tail_of_a_lost_leadership: 4,
    serve_before_an_entry_of_the_own_term_is_committed: 16,
    commit_by_one_replica_less: 1,
}


@pytest.mark.timeout(400)
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    first = PLANTED[plant]
    for seed in range(first, first + MOST_SEEDS):
        violation = Simulation(seed).run().violation
        if violation is not None:
            print(f"{plant.__name__}: seed {seed}: {violation[:200]}")
            return
    pytest.fail(f"{MOST_SEEDS} seeds do not notice this bug: {plant.__name__}")
