"""What all members of a classic group can take part in, and which of it they like best."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from quorumlog.server.groups.classic.classic_group import ClassicMember


def common_protocols(members: Iterable[ClassicMember]) -> frozenset[str] | None:
    """What all of them know; None of nobody."""
    # Of a thousand members most know the same.
    known = {member.names for member in members}
    return frozenset.intersection(*known) if known else None


def choose_protocol(members: Sequence[ClassicMember]) -> str | None:
    """The protocol that all members know and for which most vote: each for what it likes best of that. Among equals the
    first by name. None when there is no such protocol."""
    common = common_protocols(members)
    if not common:
        return None
    votes = Counter(next(name for name, _ in member.protocols if name in common) for member in members)
    return min(votes, key=lambda name: (-votes[name], name))
