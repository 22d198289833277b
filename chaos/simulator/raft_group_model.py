"""What is known of a Raft group over the whole cluster: what is committed, who led, and who voted."""

from __future__ import annotations

from dataclasses import dataclass, field

from quorumlog.chaos.models.committed_partition import CommittedPartition
from quorumlog.raft.types import Configuration, EntryId


@dataclass(slots=True)
class RaftGroupModel:
    """What is known of one Raft group over the whole cluster."""

    log: CommittedPartition
    leaders: dict[int, int] = field(default_factory=dict)
    hashes: dict[tuple[int, int], int] = field(default_factory=dict)
    committed: list[EntryId] = field(default_factory=list)
    committed_terms: list[int] = field(default_factory=list)
    configurations: list[Configuration] = field(default_factory=list)

    @property
    def data_quorum(self) -> int:
        """The fewest voters with data in a majority, by the voters of today or by those before them."""
        return min(
            len(voters) // 2 + 1 - len({*each.witnesses}.intersection(voters))
            for each in self.configurations[-2:]
            for voters in each.halves
        )

    @property
    def last_committed(self) -> int:
        """Index of the last entry known to be committed."""
        return len(self.committed)
