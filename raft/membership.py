"""Changes of a Raft group's members: which are supported, and by which steps (Raft thesis §4.3).

Voters are replaced through a joint configuration, in which decisions need a majority of the old and of the new ones. A
configuration applies when its entry is committed, as in etcd, and the next one is proposed after that.
"""

from __future__ import annotations

from quorumlog.raft.errors import UnsupportedChangeError
from quorumlog.raft.types import Configuration, Entry, EntryKind


def next_step(current: Configuration, wanted: Configuration) -> Configuration:
    """Returns the configuration to propose on the way from ``current`` to ``wanted``: joint if the voters change.

    Raises:
        UnsupportedChangeError: a new voter is not a learner yet, a voter would become a learner, or a state is joint.
    """
    if current.is_joint or wanted.is_joint:
        raise UnsupportedChangeError("the voters are being replaced: only their leader ends that")
    others = (set(current.witnesses) ^ set(wanted.witnesses)) & set(current.members) & set(wanted.members)
    if others:
        # A witness has no data to provide, and a replica with data would discard it.
        raise UnsupportedChangeError(f"nodes {sorted(others)} must leave first: a witness is never promoted, nor made")
    strangers = set(wanted.voters) - set(current.members)
    if strangers:
        # A voter without the log counts for a majority and delays every commit until it has caught up.
        raise UnsupportedChangeError(f"new voters are learners first, and {sorted(strangers)} are not members")
    demoted = set(wanted.learners) & set(current.voters)
    if demoted:
        raise UnsupportedChangeError(f"voters {sorted(demoted)} cannot become learners, only leave")
    if set(wanted.voters) == set(current.voters):
        return wanted
    witnesses = wanted.witnesses + tuple(
        node for node in current.witnesses if node in current.voters and node not in wanted.witnesses
    )
    return Configuration(wanted.voters, wanted.learners, current.voters, witnesses)


def after_joint(joint: Configuration) -> Configuration:
    """Returns the configuration that follows a joint one, without the members that leave."""
    members = {*joint.voters, *joint.learners}
    return Configuration(
        joint.voters, joint.learners, witnesses=tuple(node for node in joint.witnesses if node in members)
    )


def is_changed_by(entries: list[Entry]) -> bool:
    """True if the entries include a change of members."""
    return any(entry.kind is EntryKind.CONFIG for entry in entries)
