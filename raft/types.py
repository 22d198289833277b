"""Values of the Raft core: entries, messages, hard state, configuration.

They are plain slotted values: no protobuf, no I/O. Times are integers in microseconds on a clock that the driver
supplies; the core never reads one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import NamedTuple, Protocol

#: No node: an unknown leader, or no vote.
NO_NODE = -1


class EntryKind(IntEnum):
    """Kind of an entry's content. The core inspects only CONFIG and TRACE.

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
    """An entry's identity: its position, its term, and the hash of it and all before it."""

    index: int  # type: ignore[assignment]
    term: int
    hash: int


#: Identity before the first entry of every log.
ORIGIN = EntryId(0, 0, 0)


@dataclass(slots=True, frozen=True)
class Configuration:
    """Members of a Raft group. A node is a voter or a learner, never both.

    Voters are in the order of preference: of those that are up to date the first should lead, and elections ensure that
    it usually does.

    While the voters are being replaced it is *joint* (Raft thesis §4.3): ``outgoing`` are the voters before the change,
    and every decision needs a majority of them and a majority of ``voters``.

    ``witnesses`` are members that keep only index and term of each entry. They vote and count for commits, never lead,
    and have no copy. They are fewer than a quorum: every quorum includes a data replica.
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
            # A quorum of witnesses alone would commit entries of which no node has the data.
            raise ValueError(f"witnesses are fewer than a quorum: {self}")

    @property
    def is_joint(self) -> bool:
        """True while the voters are being replaced."""
        return bool(self.outgoing)

    @property
    def halves(self) -> tuple[tuple[int, ...], ...]:
        """The sets of voters; a decision needs a majority of each."""
        return (self.voters, self.outgoing) if self.outgoing else (self.voters,)

    @property
    def electors(self) -> tuple[int, ...]:
        """Every node with a vote in some half, by preference: those that stay or join, then those that leave."""
        if not self.outgoing:
            return self.voters
        return self.voters + tuple(node for node in self.outgoing if node not in self.voters)

    @property
    def candidates(self) -> tuple[int, ...]:
        """The electors that may lead: those that have the data."""
        return self._with_data(self.electors)

    @property
    def data_voters(self) -> tuple[int, ...]:
        """The voters that have copies."""
        return self._with_data(self.voters) if self.witnesses else self.voters

    def _with_data(self, nodes: tuple[int, ...]) -> tuple[int, ...]:
        if not self.witnesses:
            return nodes
        return tuple(node for node in nodes if node not in self.witnesses)

    @property
    def members(self) -> tuple[int, ...]:
        """Voters of either half, then learners."""
        return self.electors + self.learners if self.outgoing else self.voters + self.learners


@dataclass(slots=True, frozen=True)
class HardState:
    """State that must be durable before a replica sends messages (Raft figure 2). ``commit`` only saves replay."""

    term: int = 0
    vote: int = NO_NODE
    commit: int = 0


class SnapshotData(NamedTuple):
    """Describes the bytes of a snapshot, which are in slices in storage; the core never accesses them.

    A snapshot for a witness has none.

    ``stage`` is where they are, on one node's disk only; ``slices`` and ``size_bytes`` are their amount; ``checksum``
    is the
    CRC32C of all slices, one after the other.
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
        """Returns the empty entry with which a leader opens its term."""

    def config(self, index: int, term: int, previous_hash: int, configuration: Configuration) -> Entry:
        """Returns an entry that changes the configuration once committed."""

    def configuration_of(self, entry: Entry) -> Configuration:
        """Returns the configuration in an entry of kind CONFIG."""

    def trace(self, entry: Entry, previous_hash: int) -> Entry:
        """Returns the TRACE of an entry that is not a CONFIG: as a witness keeps it, with its index, term and hash."""


class LogStore(Protocol):
    """The durable part of one Raft group's log, read synchronously. Results have been verified.

    Raises (all methods):
        UnreadableEntryError: an entry is damaged, and may yet be repaired.
    """

    def term_at(self, index: int) -> int:
        """Returns the term of a durable entry."""

    def hash_at(self, index: int) -> int:
        """Returns the hash of a durable entry; of a damaged one, as the entry after it has it."""

    def entries(self, first: int, last: int, max_bytes: int) -> list[Entry]:
        """Returns durable entries first..last inclusive, cut at ``max_bytes`` or before a damaged one; at least one."""


#: The data of a snapshot for a witness, which needs only the position.
NO_DATA = SnapshotData(0, 0, 0, 0)

#: Builds an entry from its index, its term and the hash of the entry before it.
Seal = Callable[[int, int, int], Entry]

#: Called with the identity of the predecessor and an entry. Raises if the entry does not refer to that predecessor.
ChainCheck = Callable[[EntryId, Entry], None]

#: Returns the newest snapshot, or None, for followers that need entries that were compacted.
SnapshotSource = Callable[[], Snapshot | None]


@dataclass(slots=True, frozen=True)
class RestoredReplica:
    """A replica's identity, and its state found on disk.

    Arguments:
        node_id: the replica's node.
        group: the id of its Raft group; errors name it.
        configuration: members as of ``applied``.
        hard_state: as last made durable.
        last: identity of the last durable entry, the anchor's if the log is empty.
        first_index: of the first durable entry; ``anchor.index + 1``.
        anchor: identity of the entry before ``first_index`` (ORIGIN, or the end of a snapshot or compaction).
        applied: entries up to here are not delivered again.
        votes_from: of a replica that was removed from the Raft group and has returned: an index that the former replica
            cannot have exceeded as a voter. It does not vote before it has learned that this index is committed.
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
    """Services of the driver for the log.

    Arguments:
        store: reads the durable log.
        sealer: builds the core's own entries.
        snapshot_source: returns the newest snapshot; without it, a follower that needs one waits.
        check_chain: called for every entry that is appended; without it, nothing is checked.
    """

    store: LogStore
    sealer: EntrySealer
    snapshot_source: SnapshotSource | None = None
    check_chain: ChainCheck | None = None


# -- messages ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Message:
    """One Raft message. ``sender`` and ``to`` are node ids; ``term`` is the sender's (pre-vote: the requested one)."""

    sender: int
    to: int
    term: int


@dataclass(slots=True)
class VoteRequest(Message):
    """RequestVote, or its pre-vote (thesis §9.6). ``transfer``: the leader requested it, and leases do not apply."""

    last_index: int
    last_term: int
    pre_vote: bool = False
    transfer: bool = False


@dataclass(slots=True)
class VoteResponse(Message):
    """Response to a VoteRequest. A granted pre-vote has the requested term, a refusal the sender's own."""

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
    """Response to an AppendRequest.

    On success, ``index`` is the last durable index that matches the leader's log; on refusal, it is the refused
    ``prev_index``, with (``hint_index``, ``hint_term``): the logs can only agree at or below ``hint_index``.
    ``has_readers``: clients read from the follower, so it must be notified of a commit at once.
    """

    index: int
    rejected: bool = False
    hint_index: int = 0
    hint_term: int = 0
    has_readers: bool = False


@dataclass(slots=True)
class Heartbeat(Message):
    """Heartbeat of a living leader.

    ``commit`` never exceeds what the receiver is known to have. ``quiesce``: the leader sends nothing further; from now
    on,
    the lease between the nodes replaces its heartbeats.
    """

    commit: int
    round: int
    quiesce: bool = False


@dataclass(slots=True)
class HeartbeatResponse(Message):
    """Response to a Heartbeat.

    ``round`` is that of the Heartbeat, 0 if it is unsolicited. ``quiescent``: the follower is quiescent; a quiescent
    leader of a follower that is not wakes up.
    """

    round: int
    quiescent: bool = False


@dataclass(slots=True)
class TimeoutNow(Message):
    """The leader's request to ``to`` to campaign immediately (thesis §3.10).

    ``last_index`` is the end of the leader's log: it accepts no proposals in the meantime, so a receiver whose log ends
    elsewhere can tell that the request is stale.
    """

    last_index: int = 0


@dataclass(slots=True)
class InstallSnapshot(Message):
    """A snapshot in place of entries that the leader no longer has. At the receiver, it names data on its own disk."""

    snapshot: Snapshot


@dataclass(slots=True)
class SnapshotResponse(Message):
    """The snapshot that ends at ``index`` is durable (or was refused)."""

    index: int
    rejected: bool = False


#: Every kind of message that a replica processes.
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
    """Work of one Raft group for its driver.

    The driver must, in this order: send ``messages`` (any time), make ``hard_state``, ``truncate_from``, ``entries``
    and ``snapshot`` durable in ONE transaction, and only after its fsync send ``messages_after_durable`` and call
    ``on_durable`` with ``durable``. ``committed`` is applied in order, immediately.
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
        """True if something must become durable."""
        return bool(self.hard_state or self.entries or self.snapshot or self.truncate_from is not None)


class DurableToken(NamedTuple):
    """Identifies what a write made durable: the log up to ``last`` in its ``generation``, and the vote in ``term``.

    A token of an older generation does not apply to entries rewritten since (scenario 5: ABA). ``number`` counts the
    group's writes; a token covers all writes up to its own. ``commit`` is that of the newest hard state among them.
    """

    last: EntryId
    generation: int
    term: int
    vote: int
    number: int = 0
    commit: int = 0
