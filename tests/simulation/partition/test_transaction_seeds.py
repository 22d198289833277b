"""Simulated clusters with transactions: seeds that must hold, and a model that notices what must not be."""

from __future__ import annotations

from collections import Counter

import pytest

from quorumlog.raft.types import Entry
from quorumlog.server.deciding.connection_fence import ConnectionFence
from quorumlog.server.groups import shard_leader
from quorumlog.server.hosting.sealing import GroupSealer
from quorumlog.simulator.clients.transaction_load import SdkTransactions
from quorumlog.simulator.models.committed_partition import CommittedPartition, Violation
from quorumlog.simulator.seeds.story import Story, simulation_of
from quorumlog.simulator.seeds.transaction_simulation import SDK_SEEDS
from quorumlog.simulator.world.transactional_clients import Outcome, TransactionalClients
from quorumlog.simulator.world.transactions import TransactionalLoad
from quorumlog.v1.partition_log_pb2 import CompactLog, OpenTransaction, PartitionCommand, TrimLog
from quorumlog.wire.entry import Attributes, Codec, build_batch
from quorumlog.wire.kafka.control import LogPlace, build_marker
from tests.support.partition_rig import NOW_MS

SEEDS = range(1, 7)
#: A seed in which delayed requests of a client that keeps its epoch arrive in its next transaction.
SEED_OF_LATE_REQUESTS = 412


@pytest.mark.thorough
def test_transactions_are_atomic() -> None:
    """Readers of each level get what they must, while nodes fail; and transactions of both outcomes happen."""
    outcomes = [0, 0]
    told: Counter[Outcome] = Counter()
    happened: Counter[str] = Counter()
    for seed in SEEDS:
        simulation = simulation_of(seed, Story.TRANSACTIONS)
        result = simulation.run()
        assert result.violation is None, (
            f"python -m quorumlog.simulator.simulate --seed {seed} --transactions: {result.violation}"
        )
        load, clients, *others = simulation.transactions
        assert isinstance(load, TransactionalLoad) and isinstance(clients, TransactionalClients)
        outcomes[0] += load.committed
        outcomes[1] += load.aborted
        told += Counter(clients.outcomes)
        happened += result.happened
        assert any(isinstance(each, SdkTransactions) for each in others) is (seed % SDK_SEEDS == 0)
    assert min(told[Outcome.COMMITTED], told[Outcome.ABORTED]) >= len(SEEDS), told
    assert min(outcomes) > len(SEEDS), outcomes
    assert happened["held_backups"], happened
    for what in ("sdk committed", "sdk aborted", "descriptions of transactions"):
        assert happened[what] >= len(SEEDS), happened


class _NoFence(ConnectionFence):
    def refusal(self, name: str, connection: object) -> None:
        return None


@pytest.mark.thorough
@pytest.mark.interpreted("replaces methods of the node")
def test_without_the_fence_late_requests_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """KAFKA-17754: a delayed EndTxn of a client that keeps its epoch ends its next transaction, and a delayed
    TxnOffsetCommit becomes part of it. Only the order of its connections prevents that."""

    def run() -> str:
        return str(simulation_of(SEED_OF_LATE_REQUESTS, Story.TRANSACTIONS).run().violation)

    assert run() == "None"
    with monkeypatch.context() as groups_only:
        groups_only.setattr(shard_leader, "ConnectionFence", _NoFence)
        assert "has parts that count: {'- -1 4'}" in run(), "an offset"
    monkeypatch.setattr(ConnectionFence, "refusal", lambda self, name, connection: None)
    assert "has parts that count" in (found := run()) and "'payments-" in found, "records"


class JudgedLog:
    """A committed log that is written by hand."""

    def __init__(self) -> None:
        self.model = CommittedPartition(7)
        self._sealer = GroupSealer(7)
        self._index = 0

    def _commit(self, entry: Entry) -> None:
        self._index += 1
        self.model.commit(entry, NOW_MS)

    def command(self, command: PartitionCommand) -> None:
        """Commits a command."""
        self._commit(self._sealer.command(command.SerializeToString())(self._index + 1, 1, 0))

    def open(self, place: int, producer: int = 5, epoch: int = 0) -> None:
        """Opens a transaction."""
        command = OpenTransaction(producer_id=producer, producer_epoch=epoch, enlisted_term=1, enlisted_index=place)
        self.command(PartitionCommand(open_transaction=command))

    def write(self, sequence: int, producer: int = 5, epoch: int = 0, *, transactional: bool = True) -> None:
        """Commits a batch of one record."""
        batch = build_batch(
            b"v-%d\0\0\0\0\0" % (self._index % 10), record_count=1, codec=Codec.NONE, base_timestamp_ms=NOW_MS,
            max_timestamp_ms=NOW_MS, producer_id=producer, producer_epoch=epoch, base_sequence=sequence,
            attributes=Attributes.TRANSACTIONAL if transactional else Attributes.NONE,
        )  # fmt: skip
        seal = self._sealer.batch(batch, self.model.next_offset, NOW_MS, is_append_time=False)
        self._commit(seal(self._index + 1, 1, 0))

    def end(self, place: int, producer: int = 5, *, commit: bool = True) -> None:
        """Commits a marker."""
        marker = build_marker(producer, 0, LogPlace(1, place), NOW_MS, commit=commit)
        seal = self._sealer.batch(marker, self.model.next_offset, NOW_MS, is_append_time=False)
        self._commit(seal(self._index + 1, 1, 0))


@pytest.fixture
def log() -> JudgedLog:
    log = JudgedLog()
    log.open(1)
    log.write(0)
    return log


def test_the_model_follows_transactions(log: JudgedLog) -> None:
    """An open transaction holds the stable offset, and aborted batches do not count."""
    assert (log.model.stable_at(2), log.model.next_offset) == (0, 1)
    log.end(2, commit=False)
    log.open(3)
    log.write(1)
    log.end(4)
    assert log.model.stable_at(3) == 2 and log.model.stable_at(5) == 2 and log.model.stable_at(6) == 4
    assert len([*log.model.entries()]) == 1
    assert log.model.transactions.aborted_at(6) == {1: (5, 0)}


def test_the_model_notices_batches_behind_their_marker(log: JudgedLog) -> None:
    """A batch of a transaction that has ended is one that no leader should have appended."""
    log.end(2)
    with pytest.raises(Violation, match="belongs to no open transaction"):
        log.write(1)


def test_the_model_notices_second_markers(log: JudgedLog) -> None:
    """A decision has one marker."""
    log.end(2)
    with pytest.raises(Violation, match="ends nothing"):
        log.end(2)


def test_the_model_notices_markers_of_former_decisions(log: JudgedLog) -> None:
    """A late decision ends no later transaction."""
    log.end(2)
    log.open(5)
    with pytest.raises(Violation, match="ends nothing"):
        log.end(4)


def test_the_model_notices_other_batches_of_the_producer(log: JudgedLog) -> None:
    """While its transaction is open a producer writes nothing else."""
    with pytest.raises(Violation, match="does not belong to it"):
        log.write(1, transactional=False)


def test_the_model_notices_points_beyond_the_stable_offset(log: JudgedLog) -> None:
    """Neither compaction nor retention touches what may still be aborted."""
    log.write(1)
    with pytest.raises(Violation, match="beyond the last stable offset 0"):
        log.command(PartitionCommand(compact_log=CompactLog(end_offset=1)))
    log.model.deletable = 1
    log.command(PartitionCommand(trim_log=TrimLog(log_start_offset=1)))
    assert log.model.stable_at(9) == 1
