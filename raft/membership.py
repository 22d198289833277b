"""Changes of a Raft group's members: which can be made, and by which steps (Raft thesis §4.3).

Voters are replaced through a joint configuration, in which decisions need a majority of the old and of the new ones. A
configuration applies when its entry is committed, as in etcd, and the next one is proposed after that.
"""

from __future__ import annotations

from quorumlog.raft.errors import UnsupportedChangeError
from quorumlog.raft.types import Configuration, Entry, EntryKind


def next_step(current: Configuration, wanted: Configuration) -> Configuration:
    """The configuration to propose on the way from ``current`` to ``wanted``: joint where the voters change.

    Raises:
        UnsupportedChangeError: a new voter is no learner yet, a voter would become a learner, or a state is joint.
    """
    if current.is_joint or wanted.is_joint:
        raise UnsupportedChangeError("the voters are being replaced: only their leader ends that")
    strangers = set(wanted.voters) - set(current.members)
    if strangers:
        # A voter without the log counts for a majority and holds up every commit until it has caught up.
        raise UnsupportedChangeError(f"new voters are learners first, and {sorted(strangers)} are not members")
    demoted = set(wanted.learners) & set(current.voters)
    if demoted:
        raise UnsupportedChangeError(f"voters {sorted(demoted)} cannot become learners, only leave")
    if set(wanted.voters) == set(current.voters):
        return wanted
    return Configuration(wanted.voters, wanted.learners, current.voters)


def is_changed_by(entries: list[Entry]) -> bool:
    """Whether there is a change of members among the entries."""
    return any(entry.kind is EntryKind.CONFIG for entry in entries)
