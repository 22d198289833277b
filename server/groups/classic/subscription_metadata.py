"""The topics in the metadata of a classic group's consumers."""

from __future__ import annotations

from quorumlog.server.groups.classic.classic_group import ClassicGroup, ClassicMember
from quorumlog.wire.kafka.consumer_protocol import CONSUMER_PROTOCOL_TYPE, topics_in


def wants_the_same(group: ClassicGroup, before: ClassicMember, after: ClassicMember) -> bool:
    """True if a static member that has returned has the subscription that it had before.

    Consumers report their owned partitions and their generation with the topics: a process that has just started owns
    none. Kafka's brokers compare only the names of protocols. The metadata of other members than consumers is opaque.
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
    """Returns the names of the topics that a group's members subscribe to; None if they are unknown, so that it may be
    any."""
    if not group.members:
        return frozenset()
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    names: set[str] = set()
    for member in group.members.values():
        # In a round of joins the protocol is still that of the previous round, which all members support.
        topics = topics_in(member.metadata(group.protocol))
        if topics is None:
            return None
        names |= topics
    return frozenset(names)
