"""Repair of damaged entries: beside a witness, whose traces repair nothing, and of large entries."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from quorumlog.raft.errors import UnreadableEntryError
from quorumlog.raft.types import Configuration, EntryId
from quorumlog.server.hosting.entry_repair import EntryRepair
from quorumlog.server.hosting.partition_replica import PartitionId
from quorumlog.server.partition.witness import PartitionWitness, witness_rows
from quorumlog.server.step.events import EntryFound, EntryWanted, PeerFrame, Stream
from quorumlog.storage.interface import DamageError

GROUP, DAMAGED, LEADER, OWN, WITNESS = 1000, 7, 1, 2, 3


class Storage:
    """One entry of its log is damaged."""

    def __init__(self) -> None:
        self.suspects: list[int] = []

    def entries(self, group: int, first: int, last: int, max_bytes: int) -> list[object]:
        if first <= DAMAGED <= last:
            raise DamageError("damaged", group, DAMAGED)
        return []

    def suspect(self, group: int) -> None:
        self.suspects.append(group)


def test_a_replica_begins_anew_once_all_that_have_records_have_compacted_what_it_lost() -> None:
    """A replica is set aside once all peers with records have compacted its lost entry: the witness may keep its trace
    indefinitely, and waiting for it would block the partition."""
    raft = SimpleNamespace(
        leader_id=LEADER,
        configuration=Configuration((LEADER, OWN, WITNESS), witnesses=(WITNESS,)),
        first_index=1,
        durable_index=10,
        is_witness=False,
    )
    host = SimpleNamespace(replicas={GROUP: SimpleNamespace(raft=raft)})
    links = SimpleNamespace(find=lambda peer: SimpleNamespace(up=True))
    storage = Storage()
    mender = EntryRepair(OWN, 0, 0, cast("Any", host), cast("Any", links), cast("Any", storage), lambda *_, **__: None)
    mender.take_up(DamageError("damaged", GROUP, DAMAGED))
    mender.on_time(0)
    ((peer, requests),) = mender.collect()
    assert (peer, [wanted.index for wanted in requests.wanted]) == (LEADER, [DAMAGED])
    gone = EntryFound(GROUP, DAMAGED, b"", "this log no longer has it", gone=True)
    with pytest.raises(DamageError, match="restart the node"):
        mender.on_frame(1, LEADER, PeerFrame(Stream.SNAPSHOT_ANSWER, entries_found=[gone]))
    assert storage.suspects == [GROUP]


def test_large_entries_that_are_asked_for_at_once_do_not_leave_in_one_frame() -> None:
    """An answer holds only as many large entries as fit into a message: a larger frame would break the stream, and the
    same entries would be requested again."""
    data = bytes(9 << 20)
    raft = SimpleNamespace(
        first_index=1,
        last_id=EntryId(10, 1, 5),
        entries_between=lambda first, last, most: [SimpleNamespace(data=data)],
    )
    host = SimpleNamespace(replicas={GROUP: SimpleNamespace(raft=raft)}, may_speak=lambda group, peer: True)
    nothing: Any = None
    mender = EntryRepair(LEADER, 0, 0, cast("Any", host), nothing, nothing, lambda *_, **__: None)
    wanted = [EntryWanted(GROUP, index) for index in range(1, 9)]
    mender.on_frame(0, OWN, PeerFrame(Stream.SNAPSHOT, wanted=wanted))
    ((_, answer),) = mender.collect()
    assert [(found.index, bool(found.data)) for found in answer.entries_found] == [
        (index, index <= 2) for index in range(1, 9)
    ]


def test_a_witness_keeps_its_traces_while_the_one_is_damaged_behind_which_it_would_give_them_up() -> None:
    unreadable = {DAMAGED}

    def entry_id(index: int) -> EntryId:
        if index in unreadable:
            raise UnreadableEntryError(index, "damaged")
        return EntryId(index, 1, 5)

    raft = SimpleNamespace(
        group=GROUP,
        is_witness=True,
        applied_index=DAMAGED,
        durable_index=10,
        anchor=EntryId(0, 0, 0),
        entry_id=entry_id,
    )
    witness = PartitionWitness(PartitionId(bytes(16), "orders", 0), cast("Any", raft), witness_rows(DAMAGED))
    assert witness.log_to_give_up(5) is None
    unreadable.clear()
    assert witness.log_to_give_up(5) == EntryId(DAMAGED, 1, 5)
