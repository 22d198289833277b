"""The topics that the consumers of a classic group name in what they say of themselves."""

from __future__ import annotations

from quorumlog.server.groups.classic.classic_group import ClassicGroup, ClassicMember
from quorumlog.wire.kafka.consumer_protocol import CONSUMER_PROTOCOL_TYPE, topics_in


def wants_the_same(group: ClassicGroup, before: ClassicMember, after: ClassicMember) -> bool:
    """Whether a static member that came back wants what it did before.

    Consumers say beside their topics what they own, and of which generation that is: whoever starts anew owns nothing.
    Brokers look at the names of protocols alone. Of members that are no consumers nobody can tell.
    """
    if before.protocols == after.protocols:
        return True
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return False
    if [name for name, _ in before.protocols] != [name for name, _ in after.protocols]:
        return False
    pairs = zip(before.protocols, after.protocols, strict=True)
    return all(then == now or _same_topics(then, now) for (_, then), (_, now) in pairs)


def _same_topics(before: bytes, after: bytes) -> bool:
    topics = topics_in(before)
    return topics is not None and topics == topics_in(after)


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
