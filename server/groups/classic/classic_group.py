"""A classic group as the coordinator's log has made it. Immutable: a change is a new object.

A round goes through three stages, each an entry of the log: *joining* (members must join), *syncing* (all have joined,
there is a new generation, and its leader must assign), *stable* (all have their assignments). That is one entry more
than Kafka writes; so no client receives a generation before it is durable, and no generation is used twice, whichever
node coordinates.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from quorumlog.v1 import coordinator_log_pb2, groups_pb2

Stage = coordinator_log_pb2.ClassicStage
EMPTY = coordinator_log_pb2.CLASSIC_EMPTY
JOINING = coordinator_log_pb2.CLASSIC_JOINING
SYNCING = coordinator_log_pb2.CLASSIC_SYNCING
STABLE = coordinator_log_pb2.CLASSIC_STABLE

#: Maximum generation, after which numbers start again; Kafka's field has 32 bits.
MAX_GENERATION = (1 << 31) - 1

#: Approximate size of a member without its metadata.
_MEMBER_BYTES = 64
_STATES = {
    EMPTY: groups_pb2.GROUP_EMPTY,
    JOINING: groups_pb2.GROUP_PREPARING_REBALANCE,
    SYNCING: groups_pb2.GROUP_COMPLETING_REBALANCE,
    STABLE: groups_pb2.GROUP_STABLE,
}


@dataclass(slots=True, frozen=True)
class ClassicMember:
    """One member. Times are in milliseconds.

    Arguments:
        protocols: names and metadata of the protocols that it supports, in order of preference; each name once.

    Attributes:
        names: names of its protocols.
        size_bytes: size of its names and metadata. Both are cached, because each join of one of a thousand members
            reads them for all.
    """

    member_id: str
    instance_id: str = ""
    client_id: str = ""
    host: str = ""
    principal: str = ""
    session_timeout_ms: int = 0
    rebalance_timeout_ms: int = 0
    protocols: tuple[tuple[str, bytes], ...] = ()
    names: frozenset[str] = field(init=False, compare=False, repr=False)
    size_bytes: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", frozenset(name for name, _ in self.protocols))
        object.__setattr__(self, "size_bytes", sum(len(name) + len(metadata) for name, metadata in self.protocols))

    def metadata(self, protocol: str) -> bytes:
        """Returns its metadata for a protocol; empty for one that it does not support."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


@dataclass(frozen=True)
class ClassicGroup:
    """The members of one group, and their round. The mappings are never changed in place.

    Arguments:
        generation: counts finished rounds of joins.
        protocol_type: the members' protocol type; for an empty group, that of its last members.
        protocol: the protocol in use since the last round.
        leader: the member that assigns; empty without a leader.
        assignments: assignments by member; a member that is not in it has an empty one.
    """

    stage: coordinator_log_pb2.ClassicStage.ValueType = EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: Mapping[str, ClassicMember] = field(default_factory=dict)
    assignments: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """True if it has no members and none is joining: it can be deleted, or become one of the other kind."""
        return self.stage == EMPTY

    @property
    def is_syncing(self) -> bool:
        """True if its leader has yet to assign."""
        return self.stage == SYNCING

    @property
    def state(self) -> groups_pb2.GroupState.ValueType:
        """The state as clients receive it."""
        return _STATES[self.stage]

    @cached_property
    def size_bytes(self) -> int:
        """Approximate size in bytes."""
        parts = sum(len(part) for part in self.assignments.values())
        return parts + sum(_MEMBER_BYTES + member.size_bytes for member in self.members.values())

    @cached_property
    def instances(self) -> Mapping[str, str]:
        """Member ids by static name."""
        return {member.instance_id: member.member_id for member in self.members.values() if member.instance_id}

    # -- transitions --------------------------------------------------------------------------------------------------

    def joining(self) -> ClassicGroup:
        """Returns the group at the start of a round of joins."""
        return dataclasses.replace(self, stage=JOINING)

    def without(self, member_ids: Iterable[str]) -> ClassicGroup:
        """Returns the group without some members, at the start of a round for the others."""
        gone = set(member_ids)
        return dataclasses.replace(
            self,
            stage=JOINING,
            leader="" if self.leader in gone else self.leader,
            members={key: member for key, member in self.members.items() if key not in gone},
            assignments={key: part for key, part in self.assignments.items() if key not in gone},
        )

    def emptied(self) -> ClassicGroup:
        """Returns the group without members. Their assignments are gone, and the generation is incremented."""
        return ClassicGroup(EMPTY, self._next_generation, self.protocol_type)

    def next_round(
        self, members: Mapping[str, ClassicMember], protocol_type: str, protocol: str, leader: str
    ) -> ClassicGroup:
        """Returns the group after a round of joins, in the next generation."""
        return ClassicGroup(SYNCING, self._next_generation, protocol_type, protocol, leader, members)

    def assigned(self, assignments: Mapping[str, bytes]) -> ClassicGroup:
        """Returns the group with the leader's assignments. Those for other ids than the members' are ignored."""
        parts = {key: part for key, part in assignments.items() if key in self.members}
        return dataclasses.replace(self, stage=STABLE, assignments=parts)

    def replaced(self, former: str, member: ClassicMember) -> ClassicGroup:
        """Returns the group after a static member has returned with another id: it keeps its assignment."""
        members = {member.member_id if key == former else key: each for key, each in self.members.items()}
        members[member.member_id] = member
        parts = {member.member_id if key == former else key: part for key, part in self.assignments.items()}
        leader = member.member_id if self.leader == former else self.leader
        return dataclasses.replace(self, leader=leader, members=members, assignments=parts)

    @property
    def _next_generation(self) -> int:
        return self.generation % MAX_GENERATION + 1

    # -- invariants ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Asserts the invariants of a classic group."""
        members = self.members
        assert (self.stage == EMPTY) <= (not members), "an empty group has members"
        assert self.assignments.keys() <= members.keys(), "assignments of others than the members"
        assert len(self.instances) == sum(bool(each.instance_id) for each in members.values()), "a static name twice"
        if self.stage in (SYNCING, STABLE):
            assert self.leader in members, "the leader is not a member"
            for member in members.values():
                assert self.protocol in member.names, "a protocol that not all members support"
        if self.stage == SYNCING:
            assert not self.assignments, "parts that the leader has not assigned"

    def check_follows(self, before: ClassicGroup) -> None:
        """Asserts that it is a valid successor of another state."""
        wrapped = before.generation == MAX_GENERATION
        assert self.generation >= before.generation or wrapped, "a generation went back"
        if self.generation == before.generation and self.stage == SYNCING:
            assert before.stage == SYNCING, "a generation has two rounds"
