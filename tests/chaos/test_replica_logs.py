"""Replicas whose logs differ are found out from their data directories."""

from __future__ import annotations

from pathlib import Path

from quorumlog.chaos.processes.replica_logs import replicas_agree
from quorumlog.raft.types import ORIGIN, Configuration, Entry, EntryId, EntryKind, HardState
from quorumlog.storage.storage import Storage
from quorumlog.storage.transaction import RaftGroupWrite, StorageTransaction
from quorumlog.wire.entry import EnvelopeKind, entry_hash, seal

GROUP = 1000


def write_log(data_dir: Path, terms: list[int]) -> None:
    """A log with one empty entry per term."""
    entries: list[Entry] = []
    previous = ORIGIN
    for term in terms:
        data = seal(GROUP, term, previous.index + 1, previous.hash, EnvelopeKind.NOOP, b"")
        entries.append(Entry(previous.index + 1, term, EntryKind.NOOP, entry_hash(data), data))
        previous = EntryId(previous.index + 1, term, entries[-1].hash)
    hard_state = HardState(terms[-1], 1, 0)
    write = RaftGroupWrite(GROUP, create=Configuration((1, 2, 3)), entries=entries, hard_state=hard_state)
    with Storage(data_dir) as storage:
        storage.commit(StorageTransaction(1, [write]))


def test_equal_logs_and_a_shorter_one_agree(tmp_path: Path) -> None:
    for node, terms in ((1, [1, 1, 2]), (2, [1, 1, 2]), (3, [1, 1])):
        write_log(tmp_path / str(node), terms)
    assert replicas_agree({node: tmp_path / str(node) for node in (1, 2, 3)}) == []


def test_a_log_that_went_another_way_is_named(tmp_path: Path) -> None:
    for node, terms in ((1, [1, 1, 2, 2]), (2, [1, 1, 2, 2]), (3, [1, 3, 3])):
        write_log(tmp_path / str(node), terms)
    (anomaly,) = replicas_agree({node: tmp_path / str(node) for node in (1, 2, 3)})
    assert anomaly.invariant == "I9"
    assert "group 1000 differ at index 3" in anomaly.message


def test_a_damaged_log_is_named_with_its_node(tmp_path: Path) -> None:
    for node in (1, 2):
        write_log(tmp_path / str(node), [1, 1, 2])
    data = tmp_path / "2" / "data.mdb"
    content = bytearray(data.read_bytes())
    place = content.rindex(seal(GROUP, 1, 1, 0, EnvelopeKind.NOOP, b"")[:40])
    content[place + 20] ^= 1
    data.write_bytes(content)
    anomalies = replicas_agree({node: tmp_path / str(node) for node in (1, 2)})
    assert [anomaly.message.startswith("node 2: ") for anomaly in anomalies] == [True]
