"""Mends damaged entries: each is fetched again from a peer and written back, while its replica goes on.

What an entry was is known although its bytes are lost: the entry after it has its hash. So whoever has an entry of that
hash has that very entry, whether it is known to be committed or not, and storage writes back no other. The replica's
term, its vote and the end of its log are sound meanwhile, and what it has acknowledged it did have: its votes and
acknowledgements count as before. Only what would need the lost bytes waits: a read, an append to a follower that is
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

#: An answer is awaited for so long, then another peer is asked.
ANSWER_US = 1_000_000
#: After every peer was asked in vain, or nobody is there to be asked.
PAUSE_US = 2_000_000
#: Entries that are asked for, or being written, at once; and that are remembered. A scrub finds the others again.
MAX_UNDER_WAY = 8
MAX_KNOWN = 1_000
#: Of fewer voters none can be done without.
MIN_VOTERS = 3
#: Entries that leave in one frame: no more once they have so many bytes. They may be large.
ANSWER_BYTES = 16 << 20


@dataclass(slots=True)
class _Wound:
    """A damaged entry.

    Attributes:
        due: when to ask, or to ask another one (µs).
        asked: the peer whose answer is awaited, or NO_NODE.
        refused: peers that were asked in vain, in this turn.
        gone: peers that have a snapshot, or what compaction made of it, in its place.
        writing: what mends it is on its way to the disk.
        lost: nobody has it any more, and it is needed no more.
        vain: every other voter with data has been asked, and could not bring it, nor the one that vouches for it.
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
        never: the group whose replica never begins anew.

    Attributes:
        found, mended: how many entries, since the process began.
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
        self._frames: dict[tuple[int, Stream], PeerFrame] = {}
        self.found = 0
        self.mended = 0

    def __len__(self) -> int:
        return len(self._wounds)

    def take_up(self, damage: DamageError) -> None:
        """An entry was found to be damaged. Known ones are no news."""
        assert damage.group is not None and damage.index is not None
        place = (damage.group, damage.index)
        if place not in self._wounds and len(self._wounds) < MAX_KNOWN:
            self._wounds[place] = _Wound(self._now)
            self.found += 1
            self._log("error", "damage_found", group=place[0], index=place[1], reason=str(damage))

    def group_gone(self, group: int) -> None:
        """There is no replica of a group here any more."""
        for place in [place for place in self._wounds if place[0] == group]:
            del self._wounds[place]

    # -- asking -----------------------------------------------------------------------------------------------

    @property
    def next_deadline(self) -> int | None:
        """When ``on_time`` is due."""
        if not self._wounds:
            return None
        return min((wound.due for wound in self._wounds.values() if not wound.writing), default=None)

    def on_time(self, now: int) -> None:
        """Asks for what is due: of a group the last entry first, for each is vouched for by the one after it."""
        self._now = now
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
            # It was truncated, or given up, or its replica is gone: nothing is left to mend.
            self._heal(place, mended=False)
            return False
        raft = replica.raft
        asked = [raft.leader_id, *raft.configuration.members]
        for peer in dict.fromkeys(asked):
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
        """What the metadata have applied nobody needs to bring: their next checkpoint takes its place."""
        group, index = place
        if index <= replica.raft.applied_index:
            wound.lost = True
            self._host.touch(group)

    def _hand_over(self, now: int, group: int, wound: _Wound, raft: RaftGroup) -> None:
        """Has one lead that has a snapshot in place of an entry that nobody can bring. A follower may be waiting for
        it: this leader can append it no more, and would offer no snapshot, for its log goes on. And a controller that
        cannot apply it decides nothing."""
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
        """Whether nothing is wrong any more: neither with the entry, nor between it and those beside it."""
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
        """Takes what a frame brings of damaged entries: a peer's, or our own."""
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
            return EntryFound(group, index, b"", "no such group here, or who asks is no member")
        if index < replica.raft.first_index:
            return EntryFound(group, index, b"", "this log does not have it any more", gone=True)
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
        """Where a majority has it no longer, nobody will bring it: the others go on from a snapshot, and so must this
        replica. The metadata's do not begin anew by themselves, for who votes on them is known to nobody but those who
        have them. What they need no more is given up with their next checkpoint (``has_lost``); without what they have
        yet to apply they never come further, and then it is the node's storage that is damaged.

        Raises:
            DamageError: the node has to start again without this replica.
        """
        group, index = place
        # A witness has it as a trace, for however long: nobody mends a replica with that.
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
            f"entry {index} of group {group} is damaged, and no other node has it any more: start the node"
            f" again, and {what} is set aside and begins anew",
            group,
        )

    def may_mend(self, group: int) -> bool:
        """Whether an entry of a group is damaged that another voter may yet bring."""
        return any(not wound.vain for place, wound in self._wounds.items() if place[0] == group)

    def has_lost(self, group: int) -> bool:
        """Whether an entry of a group is damaged that nobody can bring, and that is applied: a checkpoint takes its
        place."""
        return any(wound.lost for place, wound in self._wounds.items() if place[0] == group)

    def _written(self, place: tuple[int, int], wound: _Wound) -> None:
        """Storage has written it, unless it is not what was lost: only reading it again tells."""
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
                # What vouches for it was missing: who was asked in vain may have brought it.
                before.refused, before.vain, before.due = (), False, self._now
        replica = self._host.replicas.get(group)
        if replica is not None:
            replica.raft.mended()
            self._host.touch(group)

    # -- frames -----------------------------------------------------------------------------------------------

    def _frame(self, peer: int, stream: Stream) -> PeerFrame:
        return self._frames.setdefault((peer, stream), PeerFrame(stream))

    def collect(self) -> list[tuple[int, PeerFrame]]:
        """Questions and answers that may leave now."""
        frames, self._frames = self._frames, {}
        return [(peer, frame) for (peer, _), frame in frames.items()]


def is_given_up(others: AbstractSet[int], gone: AbstractSet[int], voters: int) -> bool:
    """Whether an entry is on no sound disk any more: all others have a snapshot in its place, or a majority has. Who is
    not of that majority has it damaged too, or is behind; two that each wait for the other would wait for ever.

    Arguments:
        others: the other voters with data.
        gone: nodes that have a snapshot in its place.
        voters: how many there are, with the witness and with this one.
    """
    if voters < MIN_VOTERS:
        return False  # Without this one, nobody could be elected who would make it whole.
    return bool(others) and (others <= gone or 2 * len(others & gone) > voters)


def are_metadata_given_up(configuration: Configuration, node_id: int, gone: AbstractSet[int]) -> bool:
    """Whether a node waits in vain for an entry of the metadata that it has yet to apply.

    Arguments:
        gone: nodes that have a snapshot in its place.
    """
    if configuration.voters == (node_id,):
        # Who only learns elects nobody: an end that says why is better than waiting for ever.
        return set(configuration.members) - {node_id} <= gone
    # One of two would take the quorum with it: without its vote nobody is elected, nor can it come back. That holds of
    # each half in which it has a vote, and of no other: it may be leaving many for the sake of two, or have none.
    enough = all(len(half) >= MIN_VOTERS for half in configuration.halves if node_id in half)
    # Whoever has not said so may never be heard: a node that returned on another disk is a stranger to one that has not
    # applied that it was let in. The majority goes on without both.
    is_passed = all(2 * len(gone & set(half)) > len(half) for half in configuration.halves)
    return enough and (is_passed or set(configuration.electors) - {node_id} <= gone)


def _as_kept(entry: Entry, by_witness: bool) -> Entry | None:
    """An entry as a replica keeps it, which a witness does as a trace; None: a trace is no entry to one with data."""
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
