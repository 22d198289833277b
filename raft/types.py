"""Values of the Raft core: entries, messages, hard state, configuration.

They are plain slotted values: no protobuf, no I/O. Times are integers in microseconds on a clock that the driver
supplies; the core never reads one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import NamedTuple, Protocol

#: No node: an unknown leader, a vote not given.
NO_NODE = -1


class EntryKind(IntEnum):
    """What an entry carries. The core looks only at CONFIG and TRACE.

    A TRACE is what a witness keeps of any other entry: its index, its term and its hash.
    """

    NOOP = 0
    BATCH = 1
    CONFIG = 2
    COMMAND = 3
    TRACE = 4


class Role(Enum):
    """A replica's role in its Raft group (Raft §5.1; pre-candidate: thesis §9.6)."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class Entry(NamedTuple):
    """One log entry. ``data`` is its sealed bytes, shared by disk, followers and readers; ``hash`` chains it."""

    index: int  # type: ignore[assignment]
    term: int
    kind: EntryKind
    hash: int
    data: bytes


class EntryId(NamedTuple):
    """An entry's identity: its place, its term, and the hash of it and all before it."""

    index: int  # type: ignore[assignment]
    term: int
    hash: int


#: What stands before the first entry of every log.
ORIGIN = EntryId(0, 0, 0)


@dataclass(slots=True, frozen=True)
class Configuration:
    """Members of a Raft group. A node is a voter or a learner, never both. Voters stand in the order of
    preference: of those that are up to date the first should lead, and elections see to it that it usually does.

    While the voters are being replaced it is *joint* (Raft thesis §4.3): ``outgoing`` are the voters before the change,
    and every decision needs a majority of them and a majority of ``voters``.

    ``witnesses`` are members that keep of each entry its index and term only. They vote and count for commits, never
    lead, and hold no copy. They are fewer than a quorum: every quorum has a data replica in it.
    """

    voters: tuple[int, ...]
    learners: tuple[int, ...] = ()
    outgoing: tuple[int, ...] = ()
    witnesses: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        members = self.members
        if not self.voters or len(set(members)) != len(members) or len(set(self.outgoing)) != len(self.outgoing):
            raise ValueError(f"a configuration has at least one voter and no node twice: {self}")
        if self.witnesses:
            self._check_witnesses()

    def _check_witnesses(self) -> None:
        witnesses = set(self.witnesses)
        if len(witnesses) != len(self.witnesses) or not witnesses <= set(self.members):
            raise ValueError(f"witnesses are members, and none is named twice: {self}")
        if any(len(witnesses.intersection(half)) > len(half) // 2 for half in self.halves):
            # A quorum of witnesses alone would commit what nobody has.
            raise ValueError(f"witnesses are fewer than a quorum: {self}")

    @property
    def is_joint(self) -> bool:
        """True while the voters are being replaced."""
        return bool(self.outgoing)

    @property
    def halves(self) -> tuple[tuple[int, ...], ...]:
        """The sets of voters of each of which a decision needs a majority."""
        return (self.voters, self.outgoing) if self.outgoing else (self.voters,)

    @property
    def electors(self) -> tuple[int, ...]:
        """Every node with a vote in some half, in the order of preference: those that stay or come, then those that
        leave."""
        if not self.outgoing:
            return self.voters
        return self.voters + tuple(node for node in self.outgoing if node not in self.voters)

    @property
    def candidates(self) -> tuple[int, ...]:
        """The electors that may lead: those that have the data."""
        return self._with_data(self.electors)

    @property
    def data_voters(self) -> tuple[int, ...]:
        """The voters that hold copies."""
        return self._with_data(self.voters)

    def _with_data(self, nodes: tuple[int, ...]) -> tuple[int, ...]:
        if not self.witnesses:
            return nodes
        return tuple(node for node in nodes if node not in self.witnesses)

    @property
    def members(self) -> tuple[int, ...]:
        """Voters of either half, then learners."""
        return self.electors + self.learners


@dataclass(slots=True, frozen=True)
class HardState:
    """What must be durable before a replica speaks (Raft figure 2). ``commit`` is a hint that saves replay."""

    term: int = 0
    vote: int = NO_NODE
    commit: int = 0


class SnapshotData(NamedTuple):
    """Names the bytes of a snapshot: they lie in slices in storage, and the core never touches them. A witness's has
    none.

    ``stage`` says where, on one node's disk only; ``slices`` and ``size_bytes`` how much; ``checksum`` is the CRC32C
    of all slices, one after the other.
    """

    stage: int
    slices: int
    size_bytes: int
    checksum: int


@dataclass(slots=True, frozen=True)
class Snapshot:
    """State that replaces the log up to and including ``last``."""

    last: EntryId
    configuration: Configuration
    data: SnapshotData


class EntrySealer(Protocol):
    """Builds the sealed entries that the core itself originates."""

    def noop(self, index: int, term: int, previous_hash: int) -> Entry:
        """The empty entry with which a leader opens its term."""

    def config(self, index: int, term: int, previous_hash: int, configuration: Configuration) -> Entry:
        """An entry that changes the configuration once committed."""

    def configuration_of(self, entry: Entry) -> Configuration:
        """The configuration in an entry of kind CONFIG."""

    def trace(self, entry: Entry, previous_hash: int) -> Entry:
        """What a witness keeps of an entry that is no CONFIG: of kind TRACE, with the same index, term and hash."""


class LogStore(Protocol):
    """The durable part of one Raft group's log, read synchronously. Everything it returns has been verified.

    Raises (all methods):
        UnreadableEntryError: an entry is damaged, and may yet be mended.
    """

    def term_at(self, index: int) -> int:
        """Term of a durable entry."""

    def hash_at(self, index: int) -> int:
        """Hash of a durable entry, even of one that is damaged: the entry after it has it."""

    def entries(self, first: int, last: int, max_bytes: int) -> list[Entry]:
        """Durable entries first..last inclusive, cut after ``max_bytes`` or before a damaged one; at least one."""


#: The data of a snapshot for a witness: the point alone is what it needs.
NO_DATA = SnapshotData(0, 0, 0, 0)

#: Builds an entry from its index, its term and the hash of the entry before it.
Seal = Callable[[int, int, int], Entry]

#: Takes the identity of the predecessor and an entry. Raises if the entry does not name that predecessor.
ChainCheck = Callable[[EntryId, Entry], None]

#: Gives the newest snapshot, or None, for followers that need entries that are gone.
SnapshotSource = Callable[[], Snapshot | None]


@dataclass(slots=True, frozen=True)
class RestoredReplica:
    """Who a replica is, and what was found of it on disk.

    Arguments:
        node_id: the replica's node.
        group: the id of its Raft group; errors name it.
        configuration: members as of ``applied``.
        hard_state: as last made durable.
        last: identity of the last durable entry, the anchor's if there is none.
        first_index: of the first durable entry; ``anchor.index + 1``.
        anchor: identity of the entry before ``first_index`` (ORIGIN, or the end of a snapshot or compaction).
        applied: entries up to here are not delivered again.
        votes_from: of a replica that was removed from the Raft group and has come back: an index that its former life
            cannot have gone beyond as a voter. It votes for nobody before it knows that this index is committed.
        is_witness: its log has no payload, and never had any.
    """

    node_id: int
    group: int
    configuration: Configuration
    hard_state: HardState
    last: EntryId
    first_index: int
    anchor: EntryId
    applied: int
    votes_from: int = 0
    is_witness: bool = False


@dataclass(slots=True, frozen=True)
class RaftLogServices:
    """What the core asks of its driver about the log.

    Arguments:
        store: reads the durable log.
        sealer: builds the core's own entries.
        snapshot_source: gives the newest snapshot; without it a follower that needs one waits.
        check_chain: is called for every entry that is appended; without it nothing is checked.
    """

    store: LogStore
    sealer: EntrySealer
    snapshot_source: SnapshotSource | None = None
    check_chain: ChainCheck | None = None


# -- messages ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Message:
    """One Raft message. ``sender`` and ``to`` are node ids; ``term`` is the sender's (a pre-vote: the term wanted)."""

    sender: int
    to: int
    term: int


@dataclass(slots=True)
class VoteRequest(Message):
    """RequestVote, or its pre-vote (thesis §9.6). ``transfer``: the leader asked for it, leases do not hold it up."""

    last_index: int
    last_term: int
    pre_vote: bool = False
    transfer: bool = False


@dataclass(slots=True)
class VoteResponse(Message):
    """The answer. A granted pre-vote carries the term asked for, a refusal the refuser's own."""

    pre_vote: bool
    granted: bool


@dataclass(slots=True)
class AppendRequest(Message):
    """AppendEntries: ``entries`` follow ``prev_index`` without a gap; ``commit`` is the leader's commit index."""

    prev_index: int
    prev_term: int
    commit: int
    entries: list[Entry] = field(default_factory=list)


@dataclass(slots=True)
class AppendResponse(Message):
    """On success ``index`` is the last durable index that matches the leader's log; on refusal the refused
    ``prev_index``, with (``hint_index``, ``hint_term``): the logs can only agree at or below ``hint_index``."""

    index: int
    rejected: bool = False
    hint_index: int = 0
    hint_term: int = 0


@dataclass(slots=True)
class Heartbeat(Message):
    """The leader lives. ``commit`` never exceeds what the receiver is known to hold. ``quiesce``: the leader has
    nothing more to say; from now on the lease between the nodes stands for its heartbeats."""

    commit: int
    round: int
    quiesce: bool = False


@dataclass(slots=True)
class HeartbeatResponse(Message):
    """The answer; ``round`` as in the Heartbeat, 0 when nobody asked. ``quiescent``: whether the follower sleeps; a
    leader that sleeps while a follower does not wakes up."""

    round: int
    quiescent: bool = False


@dataclass(slots=True)
class TimeoutNow(Message):
    """The leader asks ``to`` to campaign at once (thesis §3.10). ``last_index`` is where the leader's log ends: it
    takes no proposals meanwhile, so a receiver whose log ends elsewhere knows that the request is stale."""

    last_index: int = 0


@dataclass(slots=True)
class InstallSnapshot(Message):
    """A snapshot instead of entries that the leader no longer has. What ``to`` steps names data on its own disk."""

    snapshot: Snapshot


@dataclass(slots=True)
class SnapshotResponse(Message):
    """The snapshot that ends at ``index`` is durable (or was refused)."""

    index: int
    rejected: bool = False


#: Every kind of message that a replica takes.
MESSAGE_KINDS = frozenset(
    {
        VoteRequest,
        VoteResponse,
        AppendRequest,
        AppendResponse,
        Heartbeat,
        HeartbeatResponse,
        TimeoutNow,
        InstallSnapshot,
        SnapshotResponse,
    }
)


# -- the driver's side --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Ready:
    """What one Raft group wants done. The driver must, in this order: send ``messages`` (any time), make
    ``hard_state``, ``truncate_from``, ``entries`` and ``snapshot`` durable in ONE transaction, and only after its fsync
    send ``messages_after_durable`` and call ``on_durable`` with ``durable``. ``committed`` is applied in order at once.
    """

    messages: list[Message]
    hard_state: HardState | None
    truncate_from: int | None
    entries: list[Entry]
    snapshot: Snapshot | None
    messages_after_durable: list[Message]
    durable: DurableToken | None
    committed: list[Entry]

    @property
    def must_write(self) -> bool:
        """True when there is something that must become durable."""
        return bool(self.hard_state or self.entries or self.snapshot or self.truncate_from is not None)


class DurableToken(NamedTuple):
    """Names what a write made durable: log up to ``last``, written in the tail's ``generation``, and the vote in
    ``term``. A token of an older generation says nothing about entries rewritten since (scenario 5: ABA). ``number``
    counts the group's writes; a token stands for all writes up to its own. ``commit`` is that of the newest hard state
    among them."""

    last: EntryId
    generation: int
    term: int
    vote: int
    number: int = 0
    commit: int = 0
