"""Choice of a classic group's protocol: one that all members support, by their preferences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from quorumlog.server.groups.classic.classic_group import ClassicMember


def common_protocols(members: Iterable[ClassicMember]) -> frozenset[str] | None:
    """Returns the protocols that all of these members support; None without members."""
    # Most of a thousand members have the same set.
    known = {member.names for member in members}
    return frozenset.intersection(*known) if known else None


def choose_protocol(members: Sequence[ClassicMember]) -> str | None:
    """Returns the protocol that all members support and that has most votes: each member votes for the first of its own
    that all support. A tie goes to the first by name. None if there is no such protocol."""
    common = common_protocols(members)
    if not common:
        return None
    votes = Counter(next(name for name, _ in member.protocols if name in common) for member in members)
    return min(votes, key=lambda name: (-votes[name], name))
