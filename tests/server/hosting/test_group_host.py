"""Rounds of many groups: one transaction at a time, and no message before its state is durable."""

import random

import pytest

from quorumlog.raft.group import RaftGroup
from quorumlog.raft.options import RaftOptions
from quorumlog.raft.types import (
    ORIGIN,
    AppendRequest,
    AppendResponse,
    Configuration,
    Entry,
    EntryId,
    HardState,
    InstallSnapshot,
    Message,
    RaftLogServices,
    RestoredReplica,
    Snapshot,
)
from quorumlog.server.hosting.raft_host import HostedReplica, RaftHost
from quorumlog.server.hosting.sealing import GroupSealer
from quorumlog.storage.transaction import RaftGroupWrite
from tests.support.raft_services import NoStore


class Machine:
    """Counts what it applied."""

    def __init__(self) -> None:
        self.applied: list[int] = []

    def apply(self, entries: list[Entry]) -> None:
        self.applied += [entry.index for entry in entries]

    def restore(self, snapshot: Snapshot) -> None:
        self.applied = [snapshot.last.index]

    def take_rows(self) -> dict[bytes, bytes | None]:
        return {b"m": b"%d" % len(self.applied)} if self.applied else {}


class Rig:
    """A host of some groups of which node 1 is a member."""

    def __init__(self, voters: tuple[int, ...], groups: int = 1) -> None:
        self.sent: list[tuple[int, Message]] = []
        self.host = RaftHost(lambda group, message: self.sent.append((group, message)))
        self.machines: dict[int, Machine] = {}
        for group in range(1, groups + 1):
            restored = RestoredReplica(
                node_id=1,
                group=group,
                configuration=Configuration(voters),
                hard_state=HardState(),
                last=ORIGIN,
                first_index=1,
                anchor=ORIGIN,
                applied=0,
            )
            services = RaftLogServices(NoStore(), GroupSealer(group))
            raft = RaftGroup(restored, services, RaftOptions(), random.Random(group), now=0)
            self.machines[group] = Machine()
            self.host.create(RaftGroupWrite(group, create=Configuration(voters), hard_state=HardState()))
            self.host.add(group, HostedReplica(raft, self.machines[group], lazy_commit=False))

    def append(self, term: int, prev_index: int, prev_term: int, *entries: Entry) -> None:
        raft = self.host.replicas[1].raft
        raft.step(5, AppendRequest(2, 1, term, prev_index, prev_term, 0, list(entries)))
        self.host.touch(1)
        self.host.run_round()


def noop(index: int, term: int) -> Entry:
    return GroupSealer(1).noop(index, term, 0)


def confirmations(rig: Rig) -> list[tuple[int, int]]:
    return [(m.term, m.index) for _, m in rig.sent if isinstance(m, AppendResponse) and not m.rejected]


def test_all_groups_of_a_round_share_one_transaction() -> None:
    rig = Rig((1,), groups=3)
    for replica in rig.host.replicas.values():
        replica.raft.campaign(1)
    rig.host.run_round()
    transaction = rig.host.take_transaction(1)
    assert transaction is not None
    assert [write.group for write in transaction.writes] == [1, 2, 3]
    assert rig.host.take_transaction(1) is None, "one at a time"


@pytest.mark.scenario("3c")
def test_a_single_voter_commits_only_what_is_durable() -> None:
    rig = Rig((1,))
    rig.host.replicas[1].raft.campaign(1)
    number = 0
    while rig.machines[1].applied != [1]:
        rig.host.run_round()
        transaction = rig.host.take_transaction(2)
        assert transaction is not None, "nothing more to write, and nothing applied"
        assert not rig.machines[1].applied
        number += 1
        assert transaction.number == number
        rig.host.on_durable(3, number)
        rig.host.run_round()


def test_a_confirmation_waits_for_its_transaction() -> None:
    rig = Rig((1, 2, 3))
    rig.append(1, 0, 0, noop(1, 1))
    assert rig.host.take_transaction(6) is not None
    rig.append(1, 1, 1, noop(2, 1))
    assert confirmations(rig) == []
    rig.host.on_durable(7, 1)
    assert confirmations(rig) == [(1, 1)]
    assert rig.host.take_transaction(8) is not None
    rig.host.on_durable(9, 2)
    assert confirmations(rig)[-1] == (1, 2)


@pytest.mark.scenario("5")
def test_what_is_replaced_before_it_became_durable_is_never_confirmed() -> None:
    rig = Rig((1, 2, 3))
    rig.append(1, 0, 0, noop(1, 1))
    assert rig.host.take_transaction(6) is not None
    rig.append(1, 1, 1, noop(2, 1), noop(3, 1))
    rig.append(2, 1, 1, noop(2, 2))
    rig.host.on_durable(7, 1)
    second = rig.host.take_transaction(8)
    assert second is not None
    assert [(entry.index, entry.term) for entry in second.writes[0].entries] == [(2, 2)]
    assert second.writes[0].truncate_from == 2
    rig.host.on_durable(9, 2)
    assert (1, 3) not in confirmations(rig)
    assert confirmations(rig)[-1] == (2, 2)


def test_a_snapshot_replaces_what_gathered_before_it() -> None:
    rig = Rig((1, 2, 3))
    rig.append(1, 0, 0, noop(1, 1))
    assert rig.host.take_transaction(6) is not None
    rig.append(1, 1, 1, noop(2, 1))
    snapshot = Snapshot(EntryId(9, 2, 99), Configuration((1, 2, 3)), (b"state",))
    rig.host.replicas[1].raft.step(7, InstallSnapshot(2, 1, 2, snapshot))
    rig.host.touch(1)
    rig.host.run_round()
    rig.host.on_durable(8, 1)
    second = rig.host.take_transaction(9)
    assert second is not None
    (write,) = second.writes
    assert (write.snapshot, write.entries, write.truncate_from) == (snapshot, [], None)
    assert write.hard_state is not None
    assert write.hard_state.term == 2


def test_callbacks_wait_for_what_gathered_before_them() -> None:
    rig = Rig((1, 2, 3))
    said: list[str] = []
    rig.host.after_durable(lambda: said.append("created"))
    assert said == []
    rig.host.run_round()
    assert rig.host.take_transaction(1) is not None
    rig.host.after_durable(lambda: said.append("synced"))
    assert said == []
    rig.host.on_durable(2, 1)
    assert said == ["created", "synced"]
    rig.host.after_durable(lambda: said.append("nothing to wait for"))
    assert said[-1] == "nothing to wait for"


def test_a_replica_is_destroyed_together_with_the_table_of_the_group_that_says_so() -> None:
    rig = Rig((1,), groups=2)

    class Deciding(Machine):
        def apply(self, entries: list[Entry]) -> None:
            super().apply(entries)
            rig.host.destroy(2, decided_by=1)

    rig.host.replicas[1].machine = Deciding()
    for replica in rig.host.replicas.values():
        replica.raft.campaign(1)
    destroying = None
    for step in range(2, 10):
        rig.host.run_round()
        transaction = rig.host.take_transaction(step)
        if transaction is not None:
            rig.host.on_durable(step, transaction.number)
            if any(write.destroy for write in transaction.writes):
                destroying = {write.group: write for write in transaction.writes}
    assert destroying is not None
    assert destroying[2] == RaftGroupWrite(2, destroy=True)
    assert destroying[1].table == {b"m": b"1"}
    rig.host.fire_timers(1 << 60)
    assert 2 not in rig.host.run_round(), "its timer finds nothing"


def test_a_replica_that_never_became_durable_leaves_nothing_to_destroy() -> None:
    rig = Rig((1,))
    rig.host.create(RaftGroupWrite(9, create=Configuration((1, 2, 3)), hard_state=HardState()))
    rig.host.destroy(9, decided_by=1)
    transaction = rig.host.take_transaction(1)
    assert transaction is None or all(write.group != 9 for write in transaction.writes)


def test_a_replica_that_is_being_created_says_nothing_of_its_term_before_it_is_on_disk() -> None:
    rig = Rig((1, 2, 3))
    assert rig.host.take_transaction(1) is not None, "creates it"
    rig.host.replicas[1].raft.step(2, AppendRequest(2, 1, 0, 40, 0, 40, []))
    rig.host.touch(1)
    rig.host.run_round()
    assert rig.sent == []
    rig.host.on_durable(3, 1)
    rig.host.run_round()
    rig.host.take_transaction(4)
    assert [m.rejected for _, m in rig.sent if isinstance(m, AppendResponse)] == [True]
