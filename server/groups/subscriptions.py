"""Resolution of subscriptions to topics: by name, and by regular expressions that the coordinator evaluates.

A topic that a member's client may not read does not exist for the member, whichever way it subscribes. A pattern is
RE2, whose time is linear in the text whatever a client sends, and it has to match the whole name.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Protocol

import re2

from quorumlog.server.access.authorizer import Authorizer
from quorumlog.server.groups.classic.subscription_metadata import topics_named_by
from quorumlog.server.groups.group import ConsumerGroup
from quorumlog.server.groups.member import GroupMember, MemberSubscription
from quorumlog.server.groups.topic_catalog import TopicCatalog, TopicInfo
from quorumlog.v1.acls_pb2 import ACL_OPERATION_READ, ACL_RESOURCE_TOPIC

#: Maximum memory of one compiled pattern in bytes; RE2 refuses larger ones. Few need a hundredth of that.
PATTERN_BYTES = 1 << 20
#: Number of compiled patterns that a node caches. It bounds the memory that a client can fill with ever new patterns.
PATTERNS = 128


class InvalidPatternError(Exception):
    """The text is not a regular expression; the message has the reason."""


class Pattern(Protocol):
    """A compiled regular expression."""

    def fullmatch(self, text: str) -> object | None:
        """Returns a match if the whole text matches."""


@lru_cache(PATTERNS)
def compiled(pattern: str) -> Pattern:
    """Returns a compiled topic pattern.

    Raises:
        InvalidPatternError: it is not a regular expression, or one that is too large.
    """
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_BYTES
    try:
        expression: Pattern = re2.compile(pattern, options)
    except re2.error as problem:
        reason = problem.args[0] if problem.args else "it cannot be compiled"
        raise InvalidPatternError(
            reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        ) from problem
    return expression


class Subscriptions:
    """The topics of subscriptions, as of one catalog. Results are cached, because members of a group mostly subscribe
    alike.

    Arguments:
        topics: the catalog.
        authorizer: decides what members may read; None if they may read everything.
    """

    def __init__(self, topics: TopicCatalog, authorizer: Authorizer | None = None) -> None:
        self.topics = topics
        self._authorizer = authorizer if authorizer is not None and authorizer.enforced else None
        self._resolved: dict[MemberSubscription, frozenset[bytes]] = {}
        self._matching: dict[str, tuple[TopicInfo, ...]] = {}

    def topic_ids(self, subscription: MemberSubscription) -> frozenset[bytes]:
        """Returns the ids of the subscribed topics that exist and that the member may read."""
        known = self._resolved.get(subscription)
        if known is None:
            named = (self.topics.by_name(name) for name in subscription.topics)
            topics = (*(topic for topic in named if topic is not None), *self._matches(subscription.pattern))
            known = self._resolved[subscription] = frozenset(
                topic.topic_id for topic in topics if self._may_read(subscription.principal, topic.name)
            )
        return known

    def _may_read(self, principal: str, topic: str) -> bool:
        authorizer = self._authorizer
        return authorizer is None or authorizer.may(principal, ACL_OPERATION_READ, ACL_RESOURCE_TOPIC, topic)

    def are_beyond_rights(self, subscription: MemberSubscription, topic_ids: Iterable[bytes]) -> bool:
        """True if any of these topics exists and the member's client may not read it."""
        if self._authorizer is None:
            return False
        topics = (self.topics.by_id(topic_id) for topic_id in topic_ids)
        return any(topic is not None and not self._may_read(subscription.principal, topic.name) for topic in topics)

    def topics_read_by(self, members: Iterable[GroupMember]) -> set[bytes]:
        """Returns the ids of the existing topics to which any of these members subscribes."""
        read: set[bytes] = set()
        for subscription in dict.fromkeys(member.subscription for member in members):
            read |= self.topic_ids(subscription)
        return read

    def topics_of(self, group: ConsumerGroup) -> set[bytes] | None:
        """Returns the ids of the topics that a consumer group's members read, of either kind; None if they are
        unknown."""
        if group.classic is None:
            return self.topics_read_by(group.members.values())
        names = topics_named_by(group.classic)
        if names is None:
            return None
        topics = (self.topics.by_name(name) for name in names)
        return {topic.topic_id for topic in topics if topic is not None}

    def _matches(self, pattern: str) -> tuple[TopicInfo, ...]:
        if not pattern:
            return ()
        known = self._matching.get(pattern)
        if known is None:
            expression = compiled(pattern)
            topics = (self.topics.by_name(name) for name in self.topics.names() if expression.fullmatch(name))
            known = self._matching[pattern] = tuple(topic for topic in topics if topic is not None)
        return known
