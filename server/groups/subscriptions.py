"""From what members subscribe to, to topics: by name, and by regular expressions that the coordinator evaluates.

What a member's client may not read does not exist for the member, whichever way it subscribes. A pattern is RE2, whose
time is linear in the text whatever a client sends, and it has to match the whole name.
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

#: Bytes that one compiled pattern may take; RE2 refuses larger ones. Few have a hundredth of that.
PATTERN_BYTES = 1 << 20
#: Compiled patterns that a node remembers: who subscribes again and again to others could fill that many bytes.
PATTERNS = 128


class InvalidPatternError(Exception):
    """The text is no regular expression; the message says what is wrong with it."""


class Pattern(Protocol):
    """A compiled regular expression."""

    def fullmatch(self, text: str) -> object | None:
        """What it matches if it matches the whole text."""


@lru_cache(PATTERNS)
def compiled(pattern: str) -> Pattern:
    """A topic pattern, ready for matching.

    Raises:
        InvalidPatternError: it is no regular expression, or one that is too large.
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
    """The topics behind subscriptions, as of one catalog. Members of a consumer group mostly have the same one.

    Arguments:
        topics: the catalog.
        authorizer: decides what members may read; None: everything.
    """

    def __init__(self, topics: TopicCatalog, authorizer: Authorizer | None = None) -> None:
        self.topics = topics
        self._authorizer = authorizer if authorizer is not None and authorizer.enforced else None
        self._resolved: dict[MemberSubscription, frozenset[bytes]] = {}
        self._matching: dict[str, tuple[TopicInfo, ...]] = {}

    def topic_ids(self, subscription: MemberSubscription) -> frozenset[bytes]:
        """The topics that exist among those subscribed to, and that may be read."""
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
        """Whether some topics exist of which a member's client may not read all."""
        if self._authorizer is None:
            return False
        found = (self.topics.by_id(topic_id) for topic_id in topic_ids)
        return any(topic is not None and not self._may_read(subscription.principal, topic.name) for topic in found)

    def topics_read_by(self, members: Iterable[GroupMember]) -> set[bytes]:
        """The topics that exist among those to which any of these members subscribes."""
        read: set[bytes] = set()
        for subscription in dict.fromkeys(member.subscription for member in members):
            read |= self.topic_ids(subscription)
        return read

    def topics_of(self, group: ConsumerGroup) -> set[bytes] | None:
        """The topics that a consumer group's members read, of whichever kind it is; None where nobody can tell."""
        if group.classic is None:
            return self.topics_read_by(group.members.values())
        names = topics_named_by(group.classic)
        if names is None:
            return None
        found = (self.topics.by_name(name) for name in names)
        return {topic.topic_id for topic in found if topic is not None}

    def _matches(self, pattern: str) -> tuple[TopicInfo, ...]:
        if not pattern:
            return ()
        known = self._matching.get(pattern)
        if known is None:
            expression = compiled(pattern)
            found = (self.topics.by_name(name) for name in self.topics.names() if expression.fullmatch(name))
            known = self._matching[pattern] = tuple(topic for topic in found if topic is not None)
        return known
