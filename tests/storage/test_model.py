"""Storage against a model that keeps everything in dictionaries."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from storage_samples import CONFIGURATION, LogBuilder, identity, staged, transaction

from quorumlog.raft.types import ORIGIN, Configuration, Entry, EntryId, EntryKind, HardState, Snapshot
from quorumlog.storage import rows
from quorumlog.storage.batch_row import BatchRow
from quorumlog.storage.storage import Storage
from quorumlog.storage.transaction import RaftGroupState, RaftGroupWrite
from quorumlog.storage.verification import verify
from quorumlog.wire.entry import parse_header

ALL_BYTES = 1 << 40
FIELDS = [field.name for field in fields(RaftGroupWrite)]
GROUPS = st.sampled_from([0, 1, 7])


@dataclass
class Model:
    """One replica as it should be."""

    configuration: Configuration = CONFIGURATION
    hard_state: HardState = field(default_factory=HardState)
    anchor: EntryId = ORIGIN
    entries: list[Entry] = field(default_factory=list)
    snapshot: Snapshot | None = None
    data: bytes = b""
    table: dict[bytes, bytes] = field(default_factory=dict)
    stages: list[int] = field(default_factory=list)

    start_offset: int = 0
    #: Bytes of the batches before the first kept one, and the largest timestamp among them, since the log last
    #: started again.
    start_position: int = 0
    start_timestamp_ms: int | None = None

    @property
    def last(self) -> EntryId:
        return identity(self.entries[-1]) if self.entries else self.anchor

    def find_offset(self, offset: int) -> int | None:
        for entry in self.entries:
            if entry.kind is EntryKind.BATCH and parse_header(entry.data).last_offset >= offset:
                return entry.index
        return None

    def rows(self, entries: list[Entry] | None = None) -> list[BatchRow]:
        found, position, latest = [], self.start_position, self.start_timestamp_ms
        for entry in self.entries if entries is None else entries:
            if entry.kind is EntryKind.BATCH:
                header = parse_header(entry.data)
                position += len(entry.data)
                latest = header.max_timestamp_ms if latest is None else max(latest, header.max_timestamp_ms)
                found.append(BatchRow(entry.index, header.base_offset, header.last_offset, position, latest))
        return found

    @property
    def next_offset(self) -> int:
        return self.offset_after(self.last.index)

    def offset_after(self, index: int) -> int:
        """The offset that a batch would start at, were it to follow the entry at ``index``."""
        kept = self.entries[: index - self.anchor.index]
        batches = [entry for entry in kept if entry.kind is EntryKind.BATCH]
        return parse_header(batches[-1].data).last_offset + 1 if batches else self.start_offset


def reaches(key: Callable[[BatchRow], int], limit: int) -> Callable[[BatchRow], bool]:
    return lambda row: key(row) >= limit


class StorageMachine(RuleBasedStateMachine):
    """Random writes of up to three groups, in transactions of one or several, with restarts between."""

    @initialize()
    def begin(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="quorumlog-model-"))
        self.storage = Storage(self.directory, max_deletes=3)
        self.model: dict[int, Model] = {}
        self.node: dict[bytes, bytes] = {}
        self.writes: dict[int, RaftGroupWrite] = {}
        self.written: dict[int, int] = {}
        self.seed = 0

    def write(self, group: int, field: str, until: str | None = None) -> RaftGroupWrite:
        """The group's part of the transaction that is being put together. What would have to be done before
        something that is in it already goes into the next transaction."""
        if FIELDS.index(field) <= self.written.get(group, -1):
            self.commit()
        self.written[group] = FIELDS.index(until or field)
        return self.writes.setdefault(group, RaftGroupWrite(group))

    @rule()
    def commit(self) -> None:
        if self.writes:
            writes, self.writes, self.written = self.writes, {}, {}
            self.storage.commit(transaction(*writes.values()))

    @rule(group=GROUPS)
    def create(self, group: int) -> None:
        if group not in self.model:
            self.write(group, "create").create = CONFIGURATION
            self.model[group] = Model()

    @rule(group=GROUPS)
    def destroy(self, group: int) -> None:
        if group in self.model:
            del self.model[group]
            self.write(group, "destroy").destroy = True

    @rule(
        group=GROUPS,
        sizes=st.lists(st.sampled_from([None, 0, 100, 2500, 9000]), min_size=1, max_size=6),
        records=st.integers(1, 9),
        cut=st.integers(0, 5),
        time_ms=st.integers(-2, 2000),
    )
    def append(self, group: int, sizes: list[int | None], records: int, cut: int, time_ms: int) -> None:
        """Entries, after a truncation of what is not committed."""
        model = self.model.get(group)
        if model is None:
            return
        write = self.write(group, "truncate_from", "entries")
        kept = max(model.last.index - cut, model.hard_state.commit, model.anchor.index)
        if kept < model.last.index:
            write.truncate_from = kept + 1
            del model.entries[kept - model.anchor.index :]
        self.seed += 1
        log = LogBuilder(group, previous=model.last, next_offset=model.next_offset, seed=self.seed)
        term = max(model.hard_state.term, model.last.term) + 1
        entries = [
            log.noop(term=term) if size is None else log.batch(size, records=records, term=term, time_ms=time_ms)
            for size in sizes
        ]
        write.entries = entries
        model.entries += entries

    @rule(group=GROUPS, behind=st.integers(0, 8), vote=st.integers(-1, 3))
    def set_hard_state(self, group: int, behind: int, vote: int) -> None:
        model = self.model.get(group)
        if model is not None:
            commit = max(model.hard_state.commit, model.last.index - behind)
            model.hard_state = HardState(max(model.hard_state.term, model.last.term) + 1, vote, commit)
            self.write(group, "hard_state").hard_state = model.hard_state

    @rule(group=GROUPS, key=st.binary(min_size=0, max_size=2), value=st.none() | st.binary(max_size=20))
    def set_table_row(self, group: int, key: bytes, value: bytes | None) -> None:
        model = self.model.get(group)
        if model is not None:
            self.write(group, "table").table = {key: value}
            model.table.pop(key, None)
            if value is not None:
                model.table[key] = value

    @rule(group=GROUPS, learners=st.sets(st.integers(4, 9), max_size=3))
    def set_configuration(self, group: int, learners: set[int]) -> None:
        model = self.model.get(group)
        if model is not None:
            model.configuration = Configuration((1, 2, 3), tuple(sorted(learners)))
            self.write(group, "configuration").configuration = model.configuration

    @rule(group=GROUPS, keep=st.integers(0, 6), with_checkpoint=st.booleans())
    def compact(self, group: int, keep: int, with_checkpoint: bool) -> None:
        model = self.model.get(group)
        if model is None or len(model.entries) <= keep:
            return
        write = self.write(group, "checkpoint", "compact_to")
        anchor = identity(model.entries[len(model.entries) - keep - 1])
        if with_checkpoint:
            self.seed += 1
            model.data = b"image %d" % self.seed
            model.snapshot, slices = staged(anchor, model.data, model.configuration, stage=self.seed)
            write.stage, write.checkpoint = [*write.stage, *slices], model.snapshot
        write.compact_to = anchor
        model.start_offset = model.offset_after(anchor.index)
        gone = model.rows(model.entries[: len(model.entries) - keep])
        if len(gone) == len(model.rows()):
            model.start_position, model.start_timestamp_ms = 0, None
        elif gone:
            model.start_position, model.start_timestamp_ms = gone[-1].end_position, gone[-1].max_timestamp_ms
        del model.entries[: len(model.entries) - keep]
        model.anchor = anchor

    @rule(group=GROUPS, size=st.sampled_from([10, 6000, 30_000]))
    def stage(self, group: int, size: int) -> None:
        """A snapshot of which no more than the beginning comes."""
        model = self.model.get(group)
        if model is not None:
            self.seed += 1
            write = self.write(group, "stage")
            write.stage = [*write.stage, *staged(ORIGIN, bytes(size), stage=self.seed)[1][:-1]]
            model.stages.append(self.seed)

    @rule(group=GROUPS)
    def unstage(self, group: int) -> None:
        model = self.model.get(group)
        if model is not None and model.stages:
            self.write(group, "unstage").unstage = [model.stages.pop()]

    @rule(
        group=GROUPS,
        ahead=st.integers(0, 5),
        size=st.sampled_from([0, 10, 9000]),
        staged_before=st.booleans(),
        gap=st.sampled_from([0, 7, 1000]),
    )
    def install(self, group: int, ahead: int, size: int, staged_before: bool, gap: int) -> None:
        """Replaces the uncommitted entries by a history that took as many offsets as ``gap``."""
        model = self.model.get(group)
        if model is None:
            return
        term = max(model.hard_state.term, model.last.term) + 1
        index = max(model.hard_state.commit, model.anchor.index) + ahead
        self.seed += 1
        last = EntryId(index, term, 1234 + index)
        snapshot, slices = staged(last, bytes(size), Configuration((1, 2)), stage=self.seed)
        state = HardState(term, -1, index)
        if staged_before:
            self.write(group, "stage").stage = slices[:-1]
            self.commit()
            slices = slices[-1:]
        write = self.write(group, "snapshot", "table")
        write.stage = [*write.stage, *slices]
        write.snapshot, write.hard_state, write.table = snapshot, state, {b"new": b"table"}
        offset = model.offset_after(model.hard_state.commit) + gap
        self.model[group] = Model(
            snapshot.configuration,
            state,
            snapshot.last,
            [],
            snapshot,
            bytes(size),
            {b"new": b"table"},
            model.stages,
            offset,
        )

    @rule(key=st.binary(min_size=1, max_size=2), value=st.none() | st.binary(max_size=20))
    def set_node_row(self, key: bytes, value: bytes | None) -> None:
        self.commit()
        self.storage.commit(transaction(node_state={key: value}))
        self.node.pop(key, None)
        if value is not None:
            self.node[key] = value

    @rule()
    def sweep(self) -> None:
        self.storage.sweep()

    @rule()
    def restart(self) -> None:
        self.commit()
        self.storage.close()
        self.storage = Storage(self.directory, max_deletes=3)
        for model in self.model.values():
            model.stages.clear()

    @rule()
    def sweep_all(self) -> None:
        """Afterwards only rows remain that are referenced or may still be referenced."""
        self.commit()
        while self.storage.sweep():
            pass
        environment = self.storage._environment
        with environment.reading() as reading:
            found = {(group, stage) for group in self.model for stage in reading.stages(group)}
            assert set(reading.groups_with_rows(rows.SLICES)) <= set(self.model)
        pointed_to = {
            (group, model.snapshot.data.stage) for group, model in self.model.items() if model.snapshot is not None
        }
        assert (
            pointed_to
            <= found
            <= pointed_to | {(g, stage) for g, model in self.model.items() for stage in model.stages}
        )

    @precondition(lambda machine: not machine.writes)
    @invariant()
    def storage_holds_what_the_model_holds(self) -> None:
        if not hasattr(self, "storage"):
            return
        assert self.storage.node_state() == self.node
        assert self.storage.groups() == {
            group: RaftGroupState(
                group, model.configuration, model.hard_state, model.anchor, model.last, model.snapshot, model.table
            )
            for group, model in self.model.items()
        }
        for group, model in self.model.items():
            if model.snapshot is not None:
                _, slices = staged(model.anchor, model.data, stage=model.snapshot.data.stage)
                assert [self.storage.snapshot_slice(group, *piece[:2]) for piece in slices] == [p.data for p in slices]
            if model.entries:
                first, last = model.entries[0].index, model.entries[-1].index
                assert self.storage.entries(group, first, last, ALL_BYTES) == model.entries
            for offset in {0, 1, model.next_offset // 2, model.next_offset - 1, model.next_offset}:
                assert self.storage.find_offset(group, offset) == model.find_offset(offset), offset
            self.searches_agree(group, model)

    def searches_agree(self, group: int, model: Model) -> None:
        batches = model.rows()
        assert self.storage.last_batch(group) == (batches[-1] if batches else None)
        middle = batches[len(batches) // 2] if batches else BatchRow(0, 0, 0, 0, 0)
        for first in (0, middle.base_offset, model.next_offset - 1, model.next_offset):
            later = [row for row in batches if row.last_offset >= first]
            for key in (attrgetter("end_position"), attrgetter("max_timestamp_ms"), attrgetter("index")):
                for limit in (0, key(middle) - 1, key(middle), key(middle) + 1, 1 << 62):
                    expected = next((row for row in later if key(row) >= limit), None)
                    found = self.storage.find_batch(group, first, reaches(key, limit))
                    assert found == expected, (first, limit)

    def teardown(self) -> None:
        if not hasattr(self, "storage"):
            return
        self.commit()
        self.storage.close()
        report = verify(self.directory)
        shutil.rmtree(self.directory)
        assert report.problems == ()


StorageMachine.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
)
TestStorageAgainstTheModel = StorageMachine.TestCase
