"""Model of one classic group in a coordinator's committed log, beside the replicas: judged entry by entry."""

from __future__ import annotations

from dataclasses import dataclass, field

from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.v1 import coordinator_log_pb2 as log


@dataclass(slots=True)
class ModelClassic:
    """A classic group by the log.

    Arguments:
        told: by generation: members' assignments, once their leader has assigned. They never change.
        passed_over: by generation: members for which no entry has an assignment, although their leader may have
            assigned: a decision made together with that removed them, or moved them to the next generation.
    """

    header: log.ClassicHeader = field(default_factory=log.ClassicHeader)
    members: dict[str, log.ClassicGroupMember] = field(default_factory=dict)
    parts: dict[str, bytes] = field(default_factory=dict)
    told: dict[int, dict[str, bytes]] = field(default_factory=dict)
    passed_over: dict[int, frozenset[str]] = field(default_factory=dict)

    @property
    def generation(self) -> int:
        """The current generation."""
        return self.header.generation

    @property
    def is_empty(self) -> bool:
        """True if it has no members, and none is joining."""
        return self.header.stage in (log.CLASSIC_STAGE_UNSPECIFIED, log.CLASSIC_EMPTY)

    def apply(self, change: log.ClassicChange) -> None:
        """Applies values without a check."""
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
        """Applies a change, and judges its result.

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
                raise Violation(f"{where}: {header.leader} must assign, but is not a member")
            for name, row in sorted(self.members.items()):
                if header.protocol not in {protocol.name for protocol in row.protocols}:
                    raise Violation(f"{where}: {name} does not support {header.protocol}")
        if self.is_empty and self.members:
            raise Violation(f"{where}: it is empty, with members {sorted(self.members)}")
        names = [row.instance_id for row in self.members.values() if row.instance_id]
        if len(names) != len(set(names)):
            raise Violation(f"{where}: two members have one static name: {sorted(names)}")
        if self.parts.keys() - self.members.keys():
            raise Violation(
                f"{where}: parts of {sorted(self.parts.keys() - self.members.keys())}, which are not members"
            )
        if stage == log.CLASSIC_SYNCING:
            self.passed_over[before] = members if counted else members - self.members.keys()
        # The very entry with the leader's assignment may ask members to join again.
        if header.stage in (log.CLASSIC_JOINING, log.CLASSIC_STABLE):
            self._judge_parts(where)

    def _judge_parts(self, where: str) -> None:
        """Checks that an assignment of a generation stays; a static member's may pass to the next process of its
        name.
        """
        reported = self.told.setdefault(self.generation, dict(self.parts))
        for name, part in sorted(self.parts.items()):
            if reported.setdefault(name, part) != part:
                raise Violation(f"{where}: {name} had another part in generation {self.generation} before")

    def judge_commit(self, where: str, member: str, generation: int) -> None:
        """Judges the member and generation of a commit.

        Raises:
            Violation: it should have been rejected.
        """
        if member not in self.members or generation != self.generation:
            raise Violation(
                f"{where}: {member} commits in generation {generation}; the group is in {self.generation}, with"
                f" {sorted(self.members)}"
            )
        if self.header.stage == log.CLASSIC_SYNCING:
            raise Violation(f"{where}: {member} commits before it has an assignment of generation {generation}")

    def digest(self) -> object:
        """Returns a digest of its content, independent of the order of writes."""
        rows = [row.SerializeToString(deterministic=True) for _, row in sorted(self.members.items())]
        return (self.header.SerializeToString(deterministic=True), rows, sorted(self.parts.items()))
