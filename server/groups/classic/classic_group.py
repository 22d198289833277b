"""A classic group as the coordinator's log has made it. Values: a change is a new one.

A round goes through three stages, each an entry of the log: *joining* (members are to join), *syncing* (all have
joined, there is a new generation, its leader is to assign), *stable* (all have their parts). An entry more than Kafka
writes; so a generation is told to nobody before it is durable, and never comes twice, whoever coordinates.
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

#: Generations are counted up to here; Kafka's field has 32 bits.
MAX_GENERATION = (1 << 31) - 1

#: What a member takes beside what it says of itself.
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
        protocols: names and metadata of what it can take part in; what it likes best comes first, each name once.

    Attributes:
        names: of its protocols.
        size_bytes: of what it says of itself. Both are looked at for each member whenever one of a thousand joins.
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
        """What it says of itself in a protocol; nothing in one that it does not know."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


@dataclass(frozen=True)
class ClassicGroup:
    """The members of one group, and their round. The mappings are never changed in place.

    Arguments:
        generation: counts finished rounds of joins.
        protocol_type: as the members have said it; of an empty group, as its last ones did.
        protocol: in use since the last round.
        leader: the member that assigns; empty while there is none.
        assignments: members' parts; who is not named has an empty one.
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
        """Whether it has no members, and nobody joins: it can be deleted, and become one of the other kind."""
        return self.stage == EMPTY

    @property
    def is_syncing(self) -> bool:
        """Whether its leader has yet to assign."""
        return self.stage == SYNCING

    @property
    def state(self) -> groups_pb2.GroupState.ValueType:
        """As clients are told it."""
        return _STATES[self.stage]

    @cached_property
    def size_bytes(self) -> int:
        """About how many bytes it takes."""
        parts = sum(len(part) for part in self.assignments.values())
        return parts + sum(_MEMBER_BYTES + member.size_bytes for member in self.members.values())

    @cached_property
    def instances(self) -> Mapping[str, str]:
        """By static name: the member of that name."""
        return {member.instance_id: member.member_id for member in self.members.values() if member.instance_id}

    # -- what comes next ----------------------------------------------------------------------------------------------

    def joining(self) -> ClassicGroup:
        """Members are to join."""
        return dataclasses.replace(self, stage=JOINING)

    def without(self, member_ids: Iterable[str]) -> ClassicGroup:
        """Some members are no more; the others are to join."""
        gone = set(member_ids)
        return dataclasses.replace(
            self,
            stage=JOINING,
            leader="" if self.leader in gone else self.leader,
            members={key: member for key, member in self.members.items() if key not in gone},
            assignments={key: part for key, part in self.assignments.items() if key not in gone},
        )

    def emptied(self) -> ClassicGroup:
        """Nobody is left. What the last ones had ends with them: the generation counts on."""
        return ClassicGroup(EMPTY, self._next_generation, self.protocol_type)

    def next_round(
        self, members: Mapping[str, ClassicMember], protocol_type: str, protocol: str, leader: str
    ) -> ClassicGroup:
        """All have joined who will."""
        return ClassicGroup(SYNCING, self._next_generation, protocol_type, protocol, leader, members)

    def assigned(self, assignments: Mapping[str, bytes]) -> ClassicGroup:
        """The leader has assigned. What it says of others than the members counts for nothing."""
        parts = {key: part for key, part in assignments.items() if key in self.members}
        return dataclasses.replace(self, stage=STABLE, assignments=parts)

    def replaced(self, former: str, member: ClassicMember) -> ClassicGroup:
        """A static member came back under another id: it has what it had."""
        members = {member.member_id if key == former else key: each for key, each in self.members.items()}
        members[member.member_id] = member
        parts = {member.member_id if key == former else key: part for key, part in self.assignments.items()}
        leader = member.member_id if self.leader == former else self.leader
        return dataclasses.replace(self, leader=leader, members=members, assignments=parts)

    @property
    def _next_generation(self) -> int:
        return self.generation % MAX_GENERATION + 1

    # -- what must hold -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Asserts what must hold of every classic group, whoever made it."""
        members = self.members
        assert (self.stage == EMPTY) <= (not members), "an empty group has members"
        assert self.assignments.keys() <= members.keys(), "assignments of others than the members"
        assert len(self.instances) == sum(bool(each.instance_id) for each in members.values()), "a static name twice"
        if self.stage in (SYNCING, STABLE):
            assert self.leader in members, "the leader is no member"
            for member in members.values():
                assert self.protocol in member.names, "a protocol that not all know"
        if self.stage == SYNCING:
            assert not self.assignments, "parts that the leader has not assigned"

    def check_follows(self, before: ClassicGroup) -> None:
        """Asserts that it may come after another."""
        wrapped = before.generation == MAX_GENERATION
        assert self.generation >= before.generation or wrapped, "a generation went back"
        if self.generation == before.generation and self.stage == SYNCING:
            assert before.stage == SYNCING, "a generation has two rounds"
