"""What a coordinator's committed log says of one classic group, beside the replicas: judged entry by entry."""

from __future__ import annotations

from dataclasses import dataclass, field

from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.v1 import coordinator_log_pb2 as log


@dataclass(slots=True)
class ModelClassic:
    """A classic group as the log has it.

    Arguments:
        told: by generation: members' parts, once their leader has assigned. They never change.
        passed_over: by generation: members of which no entry has a part, though their leader may have assigned: what
            was decided together with that took them out, or on to the next generation.
    """

    header: log.ClassicHeader = field(default_factory=log.ClassicHeader)
    members: dict[str, log.ClassicGroupMember] = field(default_factory=dict)
    parts: dict[str, bytes] = field(default_factory=dict)
    told: dict[int, dict[str, bytes]] = field(default_factory=dict)
    passed_over: dict[int, frozenset[str]] = field(default_factory=dict)

    @property
    def generation(self) -> int:
        """The one that it is in."""
        return self.header.generation

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, and nobody joins."""
        return self.header.stage in (log.CLASSIC_STAGE_UNSPECIFIED, log.CLASSIC_EMPTY)

    def apply(self, change: log.ClassicChange) -> None:
        """Puts values in place."""
        if change.header.generation != self.header.generation:
            self.parts = {}
        self.header = change.header
        for name in change.removed_members:
            self.members.pop(name, None)
            self.parts.pop(name, None)
        for row in change.members:
            self.members[row.member_id] = row
        for part in change.assignments:
            self.parts[part.member_id] = part.assignment

    def judge(self, where: str, change: log.ClassicChange) -> None:
        """Applies a change, and judges what it makes.

        Raises:
            Violation: no leader should have proposed it.
        """
        before, stage, members = self.header.generation, self.header.stage, frozenset(self.members)
        self.apply(change)
        header = self.header
        counted = header.generation - before
        if counted not in (0, 1):
            raise Violation(f"{where}: generation {before} is followed by {header.generation}")
        if header.stage == log.CLASSIC_SYNCING and stage != log.CLASSIC_SYNCING and not counted:
            raise Violation(f"{where}: generation {before} has two rounds of joins")
        if header.stage in (log.CLASSIC_SYNCING, log.CLASSIC_STABLE):
            if header.leader not in self.members:
                raise Violation(f"{where}: {header.leader} is to assign, and is no member")
            for name, row in sorted(self.members.items()):
                if header.protocol not in {protocol.name for protocol in row.protocols}:
                    raise Violation(f"{where}: {name} does not know {header.protocol}")
        if self.is_empty and self.members:
            raise Violation(f"{where}: it is empty, with members {sorted(self.members)}")
        names = [row.instance_id for row in self.members.values() if row.instance_id]
        if len(names) != len(set(names)):
            raise Violation(f"{where}: two members have one static name: {sorted(names)}")
        if self.parts.keys() - self.members.keys():
            raise Violation(f"{where}: parts of {sorted(self.parts.keys() - self.members.keys())}, who are no members")
        if stage == log.CLASSIC_SYNCING:
            self.passed_over[before] = members if counted else members - self.members.keys()
        # Members may be to join again by the very entry that has what their leader assigned.
        if header.stage in (log.CLASSIC_JOINING, log.CLASSIC_STABLE):
            self._judge_parts(where)

    def _judge_parts(self, where: str) -> None:
        """What was assigned in a generation stays; a static member's may pass to the next process of its name."""
        told = self.told.setdefault(self.generation, dict(self.parts))
        for name, part in sorted(self.parts.items()):
            if told.setdefault(name, part) != part:
                raise Violation(f"{where}: {name} had another part in generation {self.generation} before")

    def judge_commit(self, where: str, member: str, generation: int) -> None:
        """Judges who committed an offset, and in which generation.

        Raises:
            Violation: it should have been refused.
        """
        if member not in self.members or generation != self.generation:
            raise Violation(
                f"{where}: {member} commits in generation {generation}; the group is in {self.generation}, with"
                f" {sorted(self.members)}"
            )
        if self.header.stage == log.CLASSIC_SYNCING:
            raise Violation(f"{where}: {member} commits before it has anything of generation {generation}")

    def digest(self) -> object:
        """All that it holds, in whatever order it was written."""
        rows = [row.SerializeToString(deterministic=True) for _, row in sorted(self.members.items())]
        return (self.header.SerializeToString(deterministic=True), rows, sorted(self.parts.items()))
