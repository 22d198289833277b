"""Changes the voters of the metadata quorum, on the node that leads it.

As with partition moves (`broker/reassignments.py`), a change has no state of its own: the next step follows from the
wanted voters in the metadata and from the group's configuration, so the next leader continues where the last one
stopped.

1. Every registered node is a learner of the group, so future voters already have the log, or are getting it;
2. once all new voters and a majority in total have caught up, a leader that is not to stay hands over to one that is;
3. the leader replaces the voters by way of the joint configuration, which Raft leaves automatically;
4. a node that no longer votes becomes a learner again, like every other node.
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

#: Interval at which a change in progress is checked (µs). A node counts as caught up if it has the log that the leader
#: had at the previous check.
CHECK_INTERVAL_US = 100_000


class MetadataQuorum:
    """Changes the members of the metadata group until they match the metadata."""

    def __init__(self, replica: MetadataReplica, host: RaftHost, log: EventLog) -> None:
        self._replica = replica
        self._host = host
        self._log = log
        self._due = 0
        #: Term and end of the log at the previous check.
        self._mark = (0, 0)
        #: The configuration and the version of the image that are known to match.
        self._agreed: tuple[Configuration, MetadataImage, int] | None = None

    @property
    def is_changing(self) -> bool:
        """True if this node has to change the voters. Read in every step."""
        if self._replica.controller is None or not self._replica.image.quorum.voters:
            return False
        return self._wanted() != set(self._replica.raft.configuration.voters)

    @property
    def next_deadline(self) -> int | None:
        """The time at which ``on_time`` is due (µs); None while nothing has to be changed."""
        return self._due if self.is_changing else None

    def _wanted(self) -> set[int]:
        return set(self._replica.image.quorum.voters or self._replica.raft.configuration.voters)

    def on_time(self, now: int) -> None:
        """Continues a change in progress."""
        if self.is_changing and now >= self._due:
            self._due = now + CHECK_INTERVAL_US
            raft = self._replica.raft
            self._advance(now, raft)
            self._mark = (raft.term, raft.last_id.index)

    def admit_learners(self, now: int) -> None:
        """Makes every registered node that does not vote a learner of the group, and no other node.

        Called in every round of the group: all nodes are checked only after some were added or removed.
        """
        raft, image = self._replica.raft, self._replica.image
        known = raft.configuration
        agreed = self._agreed
        if agreed is not None and agreed[0] is known and agreed[1:] == (image, image.membership_version):
            return
        # A node whose disk is lost is left out: its progress must be dropped before another disk takes its place.
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
        # A voter that is down must not delay a change that may replace it.
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
        """Returns the members that have the log that this leader had at the previous check.

        Without a majority of the voters caught up, the group could commit nothing. Empty after the leader has stepped
        down in this step.
        """
        term, mark = self._mark
        if term != raft.term:
            return set()
        return {
            node
            for node, progress in raft.progress.items()
            if node == raft.node_id or (progress.state is ProgressState.REPLICATE and progress.match_index >= mark)
        }

    def _propose(self, now: int, raft: RaftGroup, configuration: Configuration) -> None:
        # Refused while an earlier change is not applied yet, or leadership is being transferred: the next check
        # retries.
        with contextlib.suppress(NotLeaderError, ProposalRefusedError):
            raft.propose_configuration(now, configuration)
            if set(configuration.voters) != set(raft.configuration.voters):
                self._log(
                    "info", "metadata_quorum_change", voters=list(configuration.voters),
                    former=list(raft.configuration.voters),
                )  # fmt: skip
            self._host.touch(METADATA_GROUP)
