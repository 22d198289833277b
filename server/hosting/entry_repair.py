"""Repairs damaged entries: fetches each from a peer and writes it back while its replica continues to run.

The identity of a damaged entry is known although its bytes are lost: the entry after it contains its hash. So a peer
that has an entry with that hash has exactly that entry, committed or not, and storage accepts no other. The replica's
term, its vote and the end of its log remain valid, and it did have everything that it acknowledged: its votes and
acknowledgements still count. Only operations that need the lost bytes wait: a read, an append to a follower that is
behind, the application of the entry.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from quorumlog.raft.errors import CompactedError, UnreadableEntryError
from quorumlog.raft.group import RaftGroup
from quorumlog.raft.types import NO_NODE, Configuration, Entry, EntryKind
from quorumlog.server.hosting.peer_queues import PeerQueues
from quorumlog.server.hosting.raft_host import HostedReplica, RaftHost
from quorumlog.server.step.events import EntryFound, EntryWanted, EventLog, PeerFrame, Stream
from quorumlog.storage.interface import DamageError, StorageReader
from quorumlog.wire.entry import CorruptEntryError, entry_hash, trace_of, verify

#: How long to wait for a peer's answer before the next peer is asked (µs).
ANSWER_US = 1_000_000
#: How long to wait after every peer was asked without success, or when no peer is reachable (µs).
PAUSE_US = 2_000_000
#: Maximum number of entries being requested or written at the same time; and of entries remembered. A scrub finds the
#: others again.
MAX_UNDER_WAY = 8
MAX_KNOWN = 1_000
#: With fewer voters than this, every voter is needed for a quorum.
MIN_VOTERS = 3
#: A frame gets no more entries once it has this many bytes. A single entry may be large.
ANSWER_BYTES = 16 << 20


@dataclass(slots=True)
class _Wound:
    """A damaged entry.

    Attributes:
        due: when to ask a peer, or the next peer (µs).
        asked: the peer whose answer is pending, or NO_NODE.
        refused: peers that could not help in this turn.
        gone: peers that have a snapshot, or a compacted entry, in its place.
        writing: its replacement is being written to disk.
        lost: no other node has it any longer, and it is no longer needed.
        vain: neither the entry nor the one after it, which proves its identity, could be obtained from any other voter
            with data.
    """

    due: int
    asked: int = NO_NODE
    refused: tuple[int, ...] = ()
    gone: frozenset[int] = frozenset()
    writing: bool = False
    lost: bool = False
    vain: bool = False

    @property
    def under_way(self) -> bool:
        return self.writing or self.asked != NO_NODE


class EntryRepair:
    """The damaged entries of a node.

    Arguments:
        never: the group whose replica is never recreated automatically.

    Attributes:
        found, mended: number of entries found to be damaged, and repaired, since the process started.
        frames: the requests and answers to send, by peer and stream.
    """

    def __init__(
        self,
        node_id: int,
        never: int,
        now: int,
        host: RaftHost,
        links: PeerQueues,
        storage: StorageReader,
        log: EventLog,
    ) -> None:
        self._node_id = node_id
        self._never = never
        self._now = now
        self._host = host
        self._links = links
        self._storage = storage
        self._log = log
        self._wounds: dict[tuple[int, int], _Wound] = {}
        self.frames: dict[tuple[int, Stream], PeerFrame] = {}
        self.found = 0
        self.mended = 0

    def __len__(self) -> int:
        return len(self._wounds)

    def take_up(self, damage: DamageError) -> None:
        """Records that an entry was found to be damaged; known ones are ignored."""
        assert damage.group is not None and damage.index is not None
        place = (damage.group, damage.index)
        if place not in self._wounds and len(self._wounds) < MAX_KNOWN:
            self._wounds[place] = _Wound(self._now)
            self.found += 1
            self._log("error", "damage_found", group=place[0], index=place[1], reason=str(damage))

    def group_gone(self, group: int) -> None:
        """Forgets the entries of a group that no longer has a replica on this node."""
        for place in [place for place in self._wounds if place[0] == group]:
            del self._wounds[place]

    # -- asking -----------------------------------------------------------------------------------------------

    @property
    def next_deadline(self) -> int | None:
        """The time at which ``on_time`` is due."""
        if not self._wounds:
            return None
        return min((wound.due for wound in self._wounds.values() if not wound.writing), default=None)

    def on_time(self, now: int) -> None:
        """Requests the entries that are due, in descending order within a group: each is verified against the one
        after it."""
        self._now = now
        if not self._wounds:
            return
        due = self.next_deadline
        if due is None or due > now:
            return
        busy = sum(wound.under_way for wound in self._wounds.values())
        for place in sorted(self._wounds, reverse=True):
            wound = self._wounds[place]
            if wound.writing or wound.due > now:
                continue
            if wound.asked != NO_NODE:
                self._give_up(wound)
                busy -= 1
            if busy >= MAX_UNDER_WAY:
                wound.due = now + ANSWER_US
            elif self._ask(now, place, wound):
                busy += 1

    def _ask(self, now: int, place: tuple[int, int], wound: _Wound) -> bool:
        group, index = place
        replica = self._host.replicas.get(group)
        if replica is None or self._is_readable(group, index, replica):
            # The entry was truncated or dropped, or its replica was removed: nothing is left to repair.
            self._heal(place, mended=False)
            return False
        raft = replica.raft
        candidates = [raft.leader_id, *raft.configuration.members]
        for peer in dict.fromkeys(candidates):
            link = self._links.find(peer)
            if peer != self._node_id and peer not in wound.refused and link is not None and link.up:
                wound.asked, wound.due = peer, now + ANSWER_US
                self._frame(peer, Stream.SNAPSHOT).wanted.append(EntryWanted(group, index))
                return True
        after = self._wounds.get((group, index + 1))
        asked_all = set(wound.refused) >= set(raft.configuration.data_voters) - {self._node_id}
        wound.vain = asked_all and (after is None or after.vain)
        wound.refused, wound.due = (), now + PAUSE_US
        if group == self._never:
            self._judge(place, wound, replica)
        if not wound.lost:
            self._hand_over(now, group, wound, raft)
        return False

    def _give_up_applied(self, place: tuple[int, int], wound: _Wound, replica: HostedReplica) -> None:
        """Marks an applied metadata entry as lost: the next checkpoint takes its place, so no peer needs to provide
        it."""
        group, index = place
        if index <= replica.raft.applied_index:
            wound.lost = True
            self._host.touch(group)

    def _hand_over(self, now: int, group: int, wound: _Wound, raft: RaftGroup) -> None:
        """Transfers the lead to a peer that has a snapshot in place of an entry that no peer can provide.

        A follower may be waiting for the entry: this leader can no longer append it, and would offer no snapshot
        because its log continues past it. And a controller that cannot apply the entry makes no decisions.
        """
        if not raft.is_leader or raft.is_transferring:
            return
        heirs = [
            (raft.progress[peer].match_index, -peer)
            for peer in sorted(wound.gone.intersection(raft.configuration.data_voters))
            if peer in raft.progress and (link := self._links.find(peer)) is not None and link.up
        ]
        if heirs:
            self._log("warning", "damaged_leader_hands_over", group=group, to=-max(heirs)[1])
            raft.transfer_leadership(now, -max(heirs)[1])
            self._host.touch(group)

    def _is_readable(self, group: int, index: int, replica: HostedReplica) -> bool:
        """True if the entry is readable and consistent with its neighbours."""
        first, last = replica.raft.first_index, replica.raft.durable_index
        if not first <= index <= last:
            return True
        for begin in {max(first, index - 1), index}:
            try:
                self._storage.entries(group, begin, min(begin + 1, last), 1 << 62)
                if begin == index - 1:
                    self._storage.entries(group, index, index, 0)
            except LookupError:
                return True
            except DamageError as damage:
                if damage.index == index:
                    return False
        return True

    def _give_up(self, wound: _Wound) -> None:
        wound.refused += (wound.asked,)
        wound.asked, wound.due = NO_NODE, self._now

    # -- answers ----------------------------------------------------------------------------------------------

    def on_frame(self, now: int, peer: int, frame: PeerFrame) -> None:
        """Handles the requests of a peer for damaged entries, and the peer's answers to this node's requests."""
        self._now = now
        for wanted in frame.wanted[:MAX_UNDER_WAY]:
            answer = self._frame(peer, Stream.SNAPSHOT_ANSWER)
            if sum(len(found.data) for found in answer.entries_found) < ANSWER_BYTES:
                answer.entries_found.append(self._look_up(peer, wanted))
            else:
                answer.entries_found.append(EntryFound(wanted.group, wanted.index, b"", "too much at once"))
        for found in frame.entries_found:
            wound = self._wounds.get((found.group, found.index))
            if wound is not None and wound.asked == peer and not wound.writing:
                self._take_answer(found, wound)

    def _look_up(self, peer: int, wanted: EntryWanted) -> EntryFound:
        group, index = wanted.group, wanted.index
        replica = self._host.replicas.get(group)
        if replica is None or not self._host.may_speak(group, peer):
            return EntryFound(group, index, b"", "no such group here, or the requester is not a member")
        if index < replica.raft.first_index:
            return EntryFound(group, index, b"", "this log no longer has it", gone=True)
        if index > replica.raft.last_id.index:
            return EntryFound(group, index, b"", "this log does not have it yet")
        try:
            return EntryFound(group, index, replica.raft.entries_between(index, index, 0)[0].data)
        except (CompactedError, UnreadableEntryError) as error:
            return EntryFound(group, index, b"", " ".join(str(error).split()))

    def _take_answer(self, found: EntryFound, wound: _Wound) -> None:
        place = (found.group, found.index)
        entry = None if found.refused else _entry_in(found)
        replica = self._host.replicas.get(found.group)
        if entry is not None and replica is not None:
            entry = _as_kept(entry, replica.raft.is_witness)
        if entry is None or replica is None:
            if found.gone and replica is not None:
                wound.gone |= {wound.asked}
                self._judge(place, wound, replica)
            self._give_up(wound)
            return
        wound.writing = True
        self._host.mend(found.group, entry)
        self._host.after_durable(lambda: self._written(place, wound))

    def _judge(self, place: tuple[int, int], wound: _Wound, replica: HostedReplica) -> None:
        """Raises an error if a majority has dropped the entry, so that no peer can provide it: this replica must start
        from a snapshot.

        A metadata replica is not recreated automatically, because its voters are known only to the nodes that have it.
        An entry that it no longer needs is dropped with its next checkpoint (``has_lost``); without an entry that it
        has yet to apply it can never advance, so the node's storage counts as damaged.

        Raises:
            DamageError: the node must restart without this replica.
        """
        group, index = place
        # A witness has only a trace of it, which cannot repair a replica, however long it keeps it.
        voters = set(replica.raft.configuration.data_voters) - {self._node_id}
        if group == self._never:
            self._give_up_applied(place, wound, replica)
            is_over = not wound.lost and are_metadata_given_up(replica.raft.configuration, self._node_id, wound.gone)
        else:
            is_over = is_given_up(voters, wound.gone, len(replica.raft.configuration.voters))
        if not is_over:
            return
        self._storage.suspect(group)
        what = "the storage of this node" if group == self._never else "this replica"
        raise DamageError(
            f"entry {index} of group {group} is damaged, and no other node has it: restart the node,"
            f" and {what} is set aside and created again",
            group,
        )

    def may_mend(self, group: int) -> bool:
        """True if an entry of the group is damaged that another voter may still provide."""
        return any(not wound.vain for place, wound in self._wounds.items() if place[0] == group)

    def has_lost(self, group: int) -> bool:
        """True if an applied entry of the group is damaged and no peer can provide it: a checkpoint takes its place."""
        return any(wound.lost for place, wound in self._wounds.items() if place[0] == group)

    def _written(self, place: tuple[int, int], wound: _Wound) -> None:
        """Checks a written entry by reading it again: storage ignores one that is not the lost entry."""
        if self._wounds.get(place) is not wound:
            return
        wound.writing = False
        replica = self._host.replicas.get(place[0])
        if replica is None or self._is_readable(*place, replica):
            self._heal(place, mended=replica is not None)
        else:
            self._give_up(wound)

    def _heal(self, place: tuple[int, int], *, mended: bool) -> None:
        del self._wounds[place]
        group, index = place
        if mended:
            self.mended += 1
            self._log("warning", "damage_mended", group=group, index=index)
            before = self._wounds.get((group, index - 1))
            if before is not None and not before.under_way:
                # This entry's hash was needed to verify the one before: peers that were asked without success may have
                # provided it.
                before.refused, before.vain, before.due = (), False, self._now
        replica = self._host.replicas.get(group)
        if replica is not None:
            replica.raft.mended()
            self._host.touch(group)

    # -- frames -----------------------------------------------------------------------------------------------

    def _frame(self, peer: int, stream: Stream) -> PeerFrame:
        return self.frames.setdefault((peer, stream), PeerFrame(stream))

    def collect(self) -> list[tuple[int, PeerFrame]]:
        """Removes and returns the requests and answers to send now."""
        frames, self.frames = self.frames, {}
        return [(peer, frame) for (peer, _), frame in frames.items()]


def is_given_up(others: AbstractSet[int], gone: AbstractSet[int], voters: int) -> bool:
    """True if no intact disk has the entry any longer: all others, or a majority, have a snapshot in its place.

    Nodes outside that majority have it damaged too, or are behind; two that each wait for the other would wait forever.

    Arguments:
        others: the other voters with data.
        gone: nodes that have a snapshot in its place.
        voters: number of voters, including the witness and this node.
    """
    if voters < MIN_VOTERS:
        return False  # Without this node no leader could be elected that would send a snapshot.
    return bool(others) and (others <= gone or 2 * len(others & gone) > voters)


def are_metadata_given_up(configuration: Configuration, node_id: int, gone: AbstractSet[int]) -> bool:
    """True if a node waits without success for a metadata entry that it has yet to apply.

    Arguments:
        gone: nodes that have a snapshot in its place.
    """
    if configuration.voters == (node_id,):
        # A sole voter cannot be replaced by learners: an exit with a reason is better than waiting forever.
        return set(configuration.members) - {node_id} <= gone
    # One of two voters would take the quorum with it: without its vote no leader is elected, and it cannot return. That
    # applies to each half of the configuration in which it has a vote, and to no other: it may be leaving a large half
    # for one of two, or have no vote.
    enough = all(len(half) >= MIN_VOTERS for half in configuration.halves if node_id in half)
    # Nodes that have not reported may never be heard from: a node that returned on another disk is not accepted by one
    # that has not applied its admission. The majority continues without both.
    is_passed = all(2 * len(gone & set(half)) > len(half) for half in configuration.halves)
    return enough and (is_passed or set(configuration.electors) - {node_id} <= gone)


def _as_kept(entry: Entry, by_witness: bool) -> Entry | None:
    """An entry as a replica keeps it, which a witness does as a trace; None: a trace is not an entry for one with
    data."""
    if entry.kind is EntryKind.TRACE:
        return entry if by_witness else None
    if not by_witness or entry.kind is EntryKind.CONFIG:
        return entry
    return Entry(entry.index, entry.term, EntryKind.TRACE, entry.hash, trace_of(entry.data))


def _entry_in(found: EntryFound) -> Entry | None:
    """The entry in an answer; None if it is damaged too, or another one."""
    try:
        envelope = verify(found.data)
    except CorruptEntryError:
        return None
    if (envelope.group, envelope.index) != (found.group, found.index):
        return None
    return Entry(found.index, envelope.term, EntryKind(int(envelope.kind)), entry_hash(found.data), found.data)
