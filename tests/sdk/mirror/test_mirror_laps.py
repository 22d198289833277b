"""A mirror that ends at any moment continues with nothing twice and nothing left out."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

import pytest

from quorumlog.sdk.errors import DuplicateSequenceMismatchError, IllegalStateError
from quorumlog.sdk.mirror import mirror as laps
from quorumlog.sdk.mirror.copy_intents import PartitionPlan
from quorumlog.sdk.mirror.mirror import LapOptions, LapSender, Mirror, _Gathered
from quorumlog.sdk.mirror.offset_map import OffsetRun, joined, translated
from quorumlog.sdk.mirror.origins import headers_with_origin
from quorumlog.sdk.mirror.source import SourceRecord, SourceTopic, Taken
from quorumlog.sdk.types import Headers, TopicPartition

ORDERS, TABLE = TopicPartition("orders", 0), TopicPartition("table", 0)
NOW_MS = 1_000


class CrashError(Exception):
    """The mirror ends here."""


def mirror_of(world: World, send: LapSender | None = None, now_ms: int = NOW_MS) -> Mirror:
    options = LapOptions(world.target)
    return Mirror(world, world, send or world.send, options, wall_ms=lambda: now_ms, clock=lambda: 0.0)


class World:
    """A source, and what a cluster keeps: plans, logs, and the epochs of the mirror's producer.

    Arguments:
        chance: when it crashes, and how much comes at once.
    """

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.there: dict[TopicPartition, dict[int, bytes]] = {ORDERS: {}, TABLE: {}}
        self.positions: dict[TopicPartition, int] = {}
        self.plans: dict[TopicPartition, PartitionPlan] = {}
        self.here: dict[TopicPartition, list[bytes]] = {ORDERS: [], TABLE: []}
        self.epochs: dict[tuple[int, TopicPartition], list[bytes]] = {}
        self.newest_lap = 0
        self.crashes = True
        #: Id of the cluster, if it is mirrored into the source too, and offsets here of records that came from it.
        self.target: str | None = None
        self.origins: dict[tuple[TopicPartition, int], int] = {}

    def crash(self) -> None:
        if self.crashes and self.chance.random() < 0.15:
            raise CrashError

    # -- the source ---------------------------------------------------------------------------------------------------

    def cluster_id(self) -> str:
        return "there"

    def topics(self) -> list[SourceTopic]:
        return [SourceTopic(tp.topic, 1, {}) for tp in self.there]

    def group_offsets(self) -> dict[str, dict[TopicPartition, int]]:
        return {}

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        return min(self.there[partition], default=0), max(self.there[partition], default=-1) + 1

    def known_end(self, partition: TopicPartition) -> int | None:
        return self.bounds(partition)[1]

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self.positions = dict(positions)

    def take(self, most: int, timeout_s: float) -> Taken:
        self.crash()
        records: list[SourceRecord] = []
        ends: dict[TopicPartition, int] = {}
        removed: list[TopicPartition] = []
        for tp, at in self.positions.items():
            log = self.there[tp]
            if at < self.bounds(tp)[0]:
                removed.append(tp)
                continue
            new = [offset for offset in sorted(log) if offset >= at][: self.chance.randrange(1, 6)]
            records += [SourceRecord(tp, offset, 5, None, log[offset], self.headers(tp, offset)) for offset in new]
            self.positions[tp] = new[-1] + 1 if new else at
            if not any(offset >= self.positions[tp] for offset in log):
                ends[tp] = self.positions[tp]
        return Taken(records, ends, removed)

    def headers(self, tp: TopicPartition, offset: int) -> Headers:
        origin = self.origins.get((tp, offset))
        return () if origin is None else headers_with_origin(SourceRecord(tp, origin, 5, None, None, ()), "here")

    # -- the cluster --------------------------------------------------------------------------------------------------

    def load(self) -> dict[TopicPartition, PartitionPlan]:
        return {tp: PartitionPlan.read(plan.text()) for tp, plan in self.plans.items()}

    def write(self, plans: Mapping[TopicPartition, PartitionPlan]) -> None:
        for tp, plan in plans.items():
            self.crash()
            self.plans[tp] = plan

    def send(self, lap: int, records: Iterable[SourceRecord], latest_ms: int) -> dict[TopicPartition, list[int]]:
        assert lap >= self.newest_lap, "an epoch below the newest is refused"
        self.newest_lap = lap
        sent: dict[TopicPartition, list[bytes]] = {}
        for record in records:
            tp = record.partition
            self.crash()
            value = record.value or b""
            known = self.epochs.setdefault((lap, tp), [])
            its = sent.setdefault(tp, [])
            its.append(value)
            if len(its) > len(known):
                known.append(value)
                self.here[tp].append(value)
            elif known[len(its) - 1] != value:
                raise DuplicateSequenceMismatchError("another one")
        # The cluster remembers where the newest batches of a producer are.
        known = {tp: range(len(self.here[tp]) - len(its), len(self.here[tp])) for tp, its in sent.items()}
        return {tp: [*[-1] * (len(places) - 3), *places[-3:]] for tp, places in known.items()}

    # -- the story ----------------------------------------------------------------------------------------------------

    def add(self, tp: TopicPartition, offset: int) -> None:
        self.there[tp][offset] = b"%d" % offset

    def mirror(self) -> Mirror:
        """A mirror that was started."""
        mirror = mirror_of(self)
        mirror.load(self.load())
        mirror.declare_compacted({TABLE.topic})
        mirror.resume((ORDERS, TABLE))
        return mirror

    def copied(self) -> Mirror:
        """A mirror that has copied everything, however often it had to start."""
        while True:
            try:
                mirror = self.mirror()
                while mirror.lap() or not mirror.is_at_end:
                    pass
                mirror.finish()
            except CrashError:
                continue
            return mirror


@pytest.mark.parametrize("seed", range(60))
def test_every_record_is_there_once_and_in_order_whatever_ends_the_mirror(seed: int) -> None:
    print("seed", seed)
    world = World(random.Random(seed))
    at = 0
    for _ in range(4):
        for _ in range(world.chance.randrange(12)):
            at += world.chance.choice((1, 1, 1, 3))
            world.add(ORDERS, at)
            world.add(TABLE, at)
        mirror = world.copied()
        for tp, log in world.there.items():
            assert world.here[tp] == [log[offset] for offset in sorted(log)]
            for offset in log:
                here = translated(mirror.runs(tp), offset)
                assert here is not None and world.here[tp][here] == log[offset]


@pytest.mark.parametrize("seed", range(40))
def test_no_record_is_sent_back_whatever_ends_the_mirror(seed: int) -> None:
    """The mirror of both directions copies the source's own records once, and keeps the offsets of the others."""
    print("seed", seed)
    world = World(random.Random(seed))
    world.target = "here"
    at = origin = 0
    for _ in range(4):
        for _ in range(world.chance.randrange(20)):
            at += 1
            world.add(ORDERS, at)
            if world.chance.random() < 0.5:
                origin += world.chance.choice((1, 1, 4))
                world.origins[ORDERS, at] = origin
        mirror = world.copied()
        own = [offset for offset in world.there[ORDERS] if (ORDERS, offset) not in world.origins]
        assert world.here[ORDERS] == [b"%d" % offset for offset in own]
        known = [OffsetRun(offset, here, 1) for (_, offset), here in world.origins.items()]
        assert list(mirror.returned(ORDERS)) == joined(known)


def test_a_mirror_that_was_done_reads_nothing_again() -> None:
    world = World(random.Random(1))
    world.crashes = False
    for offset in range(5):
        world.add(ORDERS, offset)
    world.copied()
    del world.there[ORDERS][0]
    world.mirror()
    assert world.positions[ORDERS] == 5


def test_what_the_source_has_removed_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    world = World(random.Random(2))
    world.crashes = False
    for offset in range(3):
        world.add(ORDERS, offset)
    mirror = world.copied()
    world.there[ORDERS] = {9: b"9"}
    while not mirror.lap():
        pass
    assert world.here[ORDERS] == [b"0", b"1", b"2", b"9"]
    assert "removed offsets 3 to 8 of orders-0" in caplog.text


def half_copied(monkeypatch: pytest.MonkeyPatch, tp: TopicPartition) -> World:
    """Six records there; the mirror ended when it had sent three of them."""
    world = World(random.Random(3))
    world.crashes = False
    for offset in range(6):
        world.add(tp, offset)
    sent = 0

    def crash() -> None:
        nonlocal sent
        sent += world.newest_lap > 0
        if sent > 3:
            raise CrashError

    monkeypatch.setattr(world, "crash", crash)
    mirror = world.mirror()
    with pytest.raises(CrashError):
        mirror.lap()
    monkeypatch.undo()
    assert world.here[tp]
    return world


def test_a_source_that_has_removed_what_was_half_copied_ends_the_mirror(monkeypatch: pytest.MonkeyPatch) -> None:
    world = half_copied(monkeypatch, ORDERS)
    del world.there[ORDERS][1]
    with pytest.raises(IllegalStateError, match="orders-0 was half copied, and the source has changed"):
        world.mirror()


def test_a_compacted_topic_goes_on_with_the_newest_of_each_key(monkeypatch: pytest.MonkeyPatch) -> None:
    world = half_copied(monkeypatch, TABLE)
    del world.there[TABLE][1]
    world.copied()
    assert world.here[TABLE][-4:] == [b"2", b"3", b"4", b"5"]


def test_one_lap_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laps, "LAP_RECORDS", 4)
    world = World(random.Random(4))
    world.crashes = False
    for offset in range(40):
        world.add(ORDERS, offset)
    assert world.mirror().lap() < 10


def test_a_lap_is_sent_again_as_it_was() -> None:
    """With the records and the latest time of its plan, whatever the source has since, and whenever that is: the
    cluster compares it with what it has of the lap."""
    world = World(random.Random(1))
    world.crashes = False
    for offset in range(8):
        world.add(ORDERS, offset)
    sent: list[tuple[int, list[int], int]] = []

    def send(lap: int, records: Iterable[SourceRecord], latest_ms: int) -> dict[TopicPartition, list[int]]:
        records = list(records)
        sent.append((lap, [record.offset for record in records], latest_ms))
        return world.send(lap, records, latest_ms)

    mirror = mirror_of(world, send, NOW_MS + 500)
    mirror.load({ORDERS: PartitionPlan(4, 2, 5, 3, NOW_MS, ())})
    mirror.resume([ORDERS])
    assert sent == [(4, [2, 3, 4], NOW_MS)]
    assert world.positions[ORDERS] == 5
    while mirror.lap() or not mirror.is_at_end:
        pass
    assert [offset for _, offsets, _ in sent[1:] for offset in offsets] == [5, 6, 7]
    assert {(lap > 4, latest_ms) for lap, _, latest_ms in sent[1:]} == {(True, NOW_MS + 500)}


def test_removed_records_are_skipped_behind_what_was_read() -> None:
    """Records read before they were found to be gone are copied first, by a plan with the same start."""
    world = World(random.Random(2))
    world.crashes = False
    world.add(ORDERS, 0)
    mirror = mirror_of(world)
    mirror.resume([ORDERS])
    record = SourceRecord(ORDERS, 0, 5, None, b"0", ())
    world.there[ORDERS] = {6: b"6"}
    mirror._skip_removed([ORDERS], {ORDERS: _Gathered(1, [record])})
    assert mirror._copied[ORDERS].next_source == 0
    assert world.positions[ORDERS] == 1
    mirror._skip_removed([ORDERS], {})
    assert mirror._copied[ORDERS].next_source == 6
    assert world.positions[ORDERS] == 6
