"""The topics that the consumers of a classic group name in what they say of themselves."""

from __future__ import annotations

from quorumlog.server.classic.classic_group import ClassicGroup
from quorumlog.v1.consumer_protocol import CONSUMER_PROTOCOL_TYPE, topics_in


def topics_named_by(group: ClassicGroup) -> frozenset[str] | None:
    """The names of the topics that a group's members subscribe to; None where nobody can tell: it may be any."""
    if not group.members:
        return frozenset()
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    names: set[str] = set()
    for member in group.members.values():
        # In a round of joins the protocol is still that of the round before, which all of them know.
        topics = topics_in(member.metadata(group.protocol))
        if topics is None:
            return None
        names |= topics
    return frozenset(names)
