"""One replica of a partition over a real Raft core and a log in memory, driven by hand."""

import random
from collections.abc import Callable

from quorumlog.raft.group import RaftGroup
from quorumlog.raft.options import RaftOptions
from quorumlog.raft.types import (
    ORIGIN,
    Configuration,
    Entry,
    EntryKind,
    HardState,
    RaftLogServices,
    RestoredReplica,
)
from quorumlog.server.config.options import NodeLimits
from quorumlog.server.hosting.durable_raft_group import check_chain
from quorumlog.server.hosting.partition_replica import PartitionId
from quorumlog.server.hosting.sealing import GroupSealer
from quorumlog.server.metadata.producer_names import NamedProducers
from quorumlog.server.metadata.records import FEATURE_LEVEL
from quorumlog.server.partition.acknowledgements import ACKS_ALL, ProduceCall
from quorumlog.server.partition.partition import Partition
from quorumlog.storage.batch_row import BatchRow, next_row
from quorumlog.storage.transaction import RaftGroupState, Space
from quorumlog.v1 import data_plane_pb2, errors_pb2, peer_pb2
from quorumlog.v1.partition_log_pb2 import PartitionCommand
from quorumlog.wire.entry import ENVELOPE_BYTES, Codec, build_batch, parse_header

GROUP = 1000
NOW_MS = 1_700_000_000_000


class MemoryLog:
    """A durable log of one group, in memory."""

    def __init__(self) -> None:
        self.log: dict[int, Entry] = {}

    def groups(self) -> dict[int, RaftGroupState]:
        return {}

    def node_state(self) -> dict[bytes, bytes]:
        return {}

    def term_at(self, group: int, index: int) -> int:
        return self.log[index].term

    def entries(self, group: int, first: int, last: int, max_bytes: int) -> list[Entry]:
        return [self.log[index] for index in range(first, last + 1)]

    def find_offset(self, group: int, offset: int) -> int | None:
        for index, entry in sorted(self.log.items()):
            if entry.kind.name == "BATCH" and parse_header(entry.data).last_offset >= offset:
                return index
        return None

    def batches(self) -> list[BatchRow]:
        rows: list[BatchRow] = []
        for index, entry in sorted(self.log.items()):
            if entry.kind.name == "BATCH":
                h = parse_header(entry.data)
                before = rows[-1] if rows else None
                offsets = h.last_offset + 1 - h.base_offset
                row = next_row(before, index, h.base_offset, offsets, h.max_timestamp_ms, len(entry.data))
                assert row is not None
                rows.append(row)
        return rows

    def last_batch(self, group: int) -> BatchRow | None:
        return self.batches()[-1] if self.batches() else None

    def find_batch(self, group: int, first_offset: int, reached: Callable[[BatchRow], bool]) -> BatchRow | None:
        later = [row for row in self.batches() if row.last_offset >= first_offset]
        return next(filter(reached, later), None)

    def space(self) -> Space:
        return Space(0, 1 << 40)


class MemoryStore:
    """A log as a Raft group reads it."""

    def __init__(self, log: MemoryLog) -> None:
        self.log = log

    def term_at(self, index: int) -> int:
        return self.log.term_at(GROUP, index)

    def entries(self, first: int, last: int, max_bytes: int) -> list[Entry]:
        return self.log.entries(GROUP, first, last, max_bytes)


class Rig:
    """A partition of which this node is the only voter, driven by hand."""

    def __init__(self, options: RaftOptions | None = None) -> None:
        self.log = MemoryLog()
        sealer = GroupSealer(GROUP)
        restored = RestoredReplica(
            node_id=1,
            group=GROUP,
            configuration=Configuration((1,)),
            hard_state=HardState(),
            last=ORIGIN,
            first_index=1,
            anchor=ORIGIN,
            applied=0,
        )
        services = RaftLogServices(MemoryStore(self.log), sealer, check_chain=check_chain)
        self.raft = RaftGroup(restored, services, options or RaftOptions(), random.Random(1), now=0)
        identity = PartitionId(b"t" * 16, "orders", 0)
        self.level = FEATURE_LEVEL
        names = NamedProducers()
        claim = peer_pb2.ClaimProducer(name="etl", epoch=-1, known_epoch=-1)
        self.named = names.claim(claim, NOW_MS).producer_claimed.producer_id
        self.partition = Partition(
            identity, self.raft, sealer, self.log, {}, NodeLimits(), lambda: names, lambda: self.level
        )
        self.calls = 0

    def commands(self) -> list[str | None]:
        """Returns the kinds of the commands in the log, in order."""
        entries = [entry for _, entry in sorted(self.log.log.items()) if entry.kind is EntryKind.COMMAND]
        return [PartitionCommand.FromString(entry.data[ENVELOPE_BYTES:]).WhichOneof("body") for entry in entries]

    def lead(self) -> None:
        self.raft.campaign(1)
        self.settle()
        assert self.partition.leads

    def settle(self, durable: bool = True) -> list[ProduceCall]:
        done: list[ProduceCall] = []
        while self.raft.has_ready():
            ready = self.raft.take_ready()
            if ready.committed:
                self.partition.apply(ready.committed)
            if durable and ready.durable is not None:
                self.log.log.update((entry.index, entry) for entry in ready.entries)
                self.raft.on_durable(2, ready.durable)
            done += self.partition.update_leadership()
        self.partition.forget_durable()
        return done + self.partition.resolve_acknowledgements()

    def produce(
        self, batch: bytes, acks: int = ACKS_ALL, live: int = 1
    ) -> tuple[errors_pb2.Error | None, data_plane_pb2.ProduceResult]:
        self.calls += 1
        response = data_plane_pb2.ProduceResponse()
        response.results.add()
        call = ProduceCall(self.calls, response, 1 << 60, 1, {0})
        return self.partition.append(3, NOW_MS, batch, acks, call, 0, live), response.results[0]


def batch(count: int = 3, sequence: int = -1, producer: int = -1, timestamp_ms: int = NOW_MS, size: int = 10) -> bytes:
    return build_batch(
        b"x" * size,
        record_count=count,
        codec=Codec.NONE,
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        producer_id=producer,
        producer_epoch=-1 if producer < 0 else 0,
        base_sequence=sequence,
    )
