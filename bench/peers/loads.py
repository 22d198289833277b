"""Loads at which every peer is measured."""

from __future__ import annotations

from dataclasses import dataclass

from bench.peers.peer import Kind

KIB = 1024
#: Bytes of a record, and how many make a run.
COUNTS = {100: 1_000_000, KIB: 200_000, 64 * KIB: 4_000}
#: As many times as much is read: a reader that is done in a tenth of a second shows how it starts, not how it reads.
READ_TIMES = 10
#: Of a record where one is sent at a time, and while a server is killed.
SINGLE_BYTES = KIB
#: Fewer records than this say nothing.
_LEAST = 50


@dataclass(slots=True, frozen=True)
class PeerLoad:
    """A load that each side of its kind is measured with.

    Arguments:
        size: of a record, in bytes.
        count: records of one run.
        partitions: of the topic.
    """

    kind: Kind
    size: int
    count: int
    partitions: int = 1

    @property
    def name(self) -> str:
        """For the report."""
        size = size_name(self.size)
        partitions = f"{self.partitions} partition{'s' if self.partitions > 1 else ''}"
        return {
            Kind.PRODUCE: f"produce {size}, {partitions}",
            Kind.CONSUME: f"consume {size}, {partitions}",
            Kind.SINGLY: f"one record of {size} at a time",
            Kind.STEADY: "leader killed (SIGKILL), longest gap between acknowledgements",
        }[self.kind]


def size_name(size: int) -> str:
    """As in the report."""
    return f"{size} B" if size < KIB else f"{size // KIB} KiB"


def loads(scale: float, sizes: tuple[int, ...] = tuple(COUNTS)) -> list[PeerLoad]:
    """All loads in their order; the leader is killed last.

    Arguments:
        scale: multiplies the amounts of records; 1 for a whole run.
        sizes: only these, in bytes.
    """
    counts = {size: max(_LEAST, int(COUNTS[size] * scale)) for size in sizes}
    found = [PeerLoad(Kind.PRODUCE, size, count) for size, count in counts.items()]
    if KIB in counts:
        found.append(PeerLoad(Kind.PRODUCE, KIB, counts[KIB], partitions=3))
    found += [PeerLoad(Kind.CONSUME, size, READ_TIMES * count) for size, count in counts.items()]
    singles = max(_LEAST, int(1_000 * scale))
    return [*found, PeerLoad(Kind.SINGLY, SINGLE_BYTES, singles), PeerLoad(Kind.STEADY, SINGLE_BYTES, 0)]
