"""Changes who votes in the metadata quorum: the part of the node that leads it.

A change has no state of its own, as with the moves of partitions (`broker/reassignments.py`): what is to be done next
follows from what the metadata want and from the group's configuration, so the next leader goes on where the last one
was.

1. Every registered node is a learner of the group, so those that are to vote have the log already, or are getting it;
2. once all that are new have caught up, and a majority in all, a leader that is not to stay hands over to one that is;
3. the leader replaces the voters, by way of the joint configuration, which Raft leaves by itself;
4. who votes no more becomes a learner again, like every other node.
"""

from __future__ import annotations

import contextlib

from quorumlog.raft.errors import NotLeaderError, ProposalRefusedError
from quorumlog.raft.group import RaftGroup
from quorumlog.raft.progress import ProgressState
from quorumlog.raft.types import Configuration
from quorumlog.server.controller.metadata_replica import MetadataReplica
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.server.step.events import EventLog

#: How often a change that is under way is looked at (µs). A node that has what the leader had at the last look counts
#: as caught up.
CHECK_INTERVAL_US = 100_000


class MetadataQuorum:
    """Brings the members of the metadata group to what the metadata want."""

    def __init__(self, replica: MetadataReplica, host: RaftHost, log: EventLog) -> None:
        self._replica = replica
        self._host = host
        self._log = log
        self._due = 0
        #: Where the log ended at the last look, with the term of that.
        self._mark = (0, 0)
        #: The members and the nodes, by version of the image, of which it is known that they agree.
        self._agreed: tuple[Configuration, MetadataImage, int] | None = None

    @property
    def is_changing(self) -> bool:
        """Whether this node is to change who votes. Asked in every step."""
        if self._replica.controller is None or not self._replica.image.quorum.voters:
            return False
        return self._wanted() != set(self._replica.raft.configuration.voters)

    @property
    def next_deadline(self) -> int | None:
        """When ``on_time`` is due (µs); None while there is nothing to change."""
        return self._due if self.is_changing else None

    def _wanted(self) -> set[int]:
        return set(self._replica.image.quorum.voters or self._replica.raft.configuration.voters)

    def on_time(self, now: int) -> None:
        """Takes a change that is under way a step further."""
        if self.is_changing and now >= self._due:
            self._due = now + CHECK_INTERVAL_US
            raft = self._replica.raft
            self._advance(now, raft)
            self._mark = (raft.term, raft.last_id.index)

    def admit_learners(self, now: int) -> None:
        """Makes every registered node that does not vote a learner of the group, and nobody else. Told of every round
        of the group: all nodes are looked at only after some came or went."""
        raft, image = self._replica.raft, self._replica.image
        known = raft.configuration
        agreed = self._agreed
        if agreed is not None and agreed[0] is known and agreed[1:] == (image, image.membership_version):
            return
        # Not one whose disk is lost: its progress must be gone before another takes its place.
        registered = {node for node, broker in image.brokers.items() if not broker.is_lost}
        members = set(known.members)
        learners = [node for node in known.learners if node in registered]
        learners += [node for node in sorted(registered) if node not in members]
        if set(learners) != set(known.learners):
            self._propose(now, raft, Configuration(known.voters, tuple(learners)))
        else:
            self._agreed = (known, image, image.membership_version)

    def _advance(self, now: int, raft: RaftGroup) -> None:
        known, wanted = raft.configuration, self._wanted()
        caught_up = self._caught_up(raft)
        newcomers = wanted.difference(known.voters)
        # One that votes already and is down must not hold up what may be its own replacement.
        ready = newcomers <= caught_up and 2 * len(wanted & caught_up) > len(wanted)
        if known.is_joint or raft.is_transferring or not ready:
            return
        staying = [node for node in known.voters if node in wanted and node in caught_up]
        if raft.node_id not in wanted and not wanted.isdisjoint(known.voters):
            if not staying:
                return
            heir = max(staying, key=lambda node: raft.progress[node].match_index)
            with contextlib.suppress(NotLeaderError, ProposalRefusedError):
                raft.transfer_leadership(now, heir)
                self._host.touch(METADATA_GROUP)
            return
        learners = tuple(node for node in known.learners if node not in wanted)
        self._propose(now, raft, Configuration(tuple(sorted(wanted)), learners))

    def _caught_up(self, raft: RaftGroup) -> set[int]:
        """The members that have what this leader had at the last look: with a majority of the voters gone, or far
        behind, the group could commit nothing. Nobody once it has stepped down in this very step."""
        term, mark = self._mark
        if term != raft.term:
            return set()
        return {
            node
            for node, progress in raft.progress.items()
            if node == raft.node_id or (progress.state is ProgressState.REPLICATE and progress.match_index >= mark)
        }

    def _propose(self, now: int, raft: RaftGroup, configuration: Configuration) -> None:
        # Refused while an earlier change is not applied yet, or leadership is on its way: the next look finds out.
        with contextlib.suppress(NotLeaderError, ProposalRefusedError):
            raft.propose_configuration(now, configuration)
            if set(configuration.voters) != set(raft.configuration.voters):
                self._log(
                    "info", "metadata_quorum_change", voters=list(configuration.voters),
                    former=list(raft.configuration.voters),
                )  # fmt: skip
            self._host.touch(METADATA_GROUP)
