"""Draft of a coordinator's next command: a view of its consumer groups in which requests make changes, one after the
other, until these become one command of the log.

The consumer groups that the log has made are not changed; they must not change while a draft over them is in use.
"""

from __future__ import annotations

import dataclasses

from quorumlog.server.access.authorizer import Authorizer
from quorumlog.server.config.consumer_group_limits import ConsumerGroupLimits
from quorumlog.server.groups.classic.classic_group import ClassicGroup
from quorumlog.server.groups.group import ConsumerGroup
from quorumlog.server.groups.group_edit import GroupEdit
from quorumlog.server.groups.group_table import GroupTable
from quorumlog.server.groups.subscriptions import Subscriptions
from quorumlog.server.groups.target_assignment import assign_anew
from quorumlog.server.groups.topic_catalog import TopicCatalog
from quorumlog.v1 import coordinator_log_pb2


class Draft:
    """Changes of a coordinator's consumer groups.

    Arguments:
        topics: current topics. At least as new as those on which the consumer groups are based: a leader whose image is
            older than ``table.metadata_index`` waits before it decides anything.
        wall_ms: milliseconds since the epoch, for the timestamps of decisions.
        applied_index: applied index of the coordinator's log. The versions of new consumer groups start after it, and
            so after all versions of a former group of the same name, each of which was an entry. A statement about an
            assignment of the former group then never matches one of the new group. With 0 they start at 1.
        authorizer: decides what members may read; None if they may read everything.
        has_classic_groups: True if all nodes support classic groups.
    """

    def __init__(
        self,
        table: GroupTable,
        topics: TopicCatalog,
        limits: ConsumerGroupLimits,
        wall_ms: int,
        applied_index: int = 0,
        authorizer: Authorizer | None = None,
        has_classic_groups: bool = True,
    ) -> None:
        assert topics.index >= table.metadata_index, "the topics are older than what was decided about them"
        self._table = table
        self._edits: dict[str, GroupEdit] = {}
        self._count = len(table.groups)
        self._applied_index = applied_index
        self.topics = topics
        self.limits = limits
        self.wall_ms = wall_ms
        self.has_classic_groups = has_classic_groups
        self.subscriptions = Subscriptions(topics, authorizer)

    def group(self, group_id: str) -> ConsumerGroup | None:
        """Returns the consumer group after the changes so far; None if it does not exist."""
        edit = self._edits.get(group_id)
        if edit is None:
            return self._table.groups.get(group_id)
        return None if edit.is_deleted else edit.group

    def edit(self, group_id: str) -> GroupEdit:
        """Returns the consumer group for changes; a new one if it does not exist."""
        edit = self._edits.get(group_id)
        if edit is None:
            base = self._table.groups.get(group_id)
            edit = self._edits[group_id] = GroupEdit(group_id, base, self._applied_index)
            self._count += base is None
        edit.is_deleted = False
        return edit

    # -- classic groups -----------------------------------------------------------------------------------------------

    def exists(self, group_id: str) -> bool:
        """True if the consumer group exists, of either kind."""
        return self.group(group_id) is not None

    def has_consumers(self, group_id: str) -> bool:
        """True if the group has members that the coordinator assigns."""
        group = self.group(group_id)
        return group is not None and bool(group.members)

    def classic(self, group_id: str) -> ClassicGroup | None:
        """Returns a classic group; None if no classic group has that id."""
        group = self.group(group_id)
        return group.classic if group is not None else None

    def put_classic(self, group_id: str, classic: ClassicGroup) -> None:
        """Sets the state of a classic group; the consumer group becomes one if it was not."""
        edit = self.edit(group_id)
        edit.put_classic(classic)
        header = edit.group.header
        empty_since_ms = (header.empty_since_ms or self.wall_ms) if classic.is_empty else 0
        if empty_since_ms != header.empty_since_ms:
            edit.put_header(dataclasses.replace(header, empty_since_ms=empty_since_ms))

    # -- the outcome --------------------------------------------------------------------------------------------------

    def changed(self, group_id: str) -> bool:
        """True if the draft changes the consumer group."""
        edit = self._edits.get(group_id)
        return edit is not None and edit.is_changed

    def settle(self, group_id: str) -> None:
        """Computes the target assignment if changes of the consumer group require it: once for all of them."""
        edit = self._edits.get(group_id)
        if edit is not None and edit.is_unsettled:
            assign_anew(edit, self.subscriptions, self.wall_ms)

    @property
    def is_full(self) -> bool:
        """True if the coordinator has its maximum number of consumer groups."""
        return self._count >= self.limits.groups

    def has_room_for(self, size_bytes: int) -> bool:
        """True if the coordinator may store that many more bytes. Additions of the draft itself are bounded, and not
        counted."""
        return self._table.size_bytes + size_bytes <= self.limits.coordinator_bytes

    @property
    def size_bytes(self) -> int:
        """Approximate size of the command so far, in bytes."""
        return sum(edit.size_bytes for edit in self._edits.values())

    def command(self) -> coordinator_log_pb2.GroupCommand | None:
        """Returns the changes as a command for the log; None if nothing changed."""
        for edit in self._edits.values():
            if edit.is_unsettled:
                assign_anew(edit, self.subscriptions, self.wall_ms)
        changes = [change for edit in self._edits.values() if (change := edit.change()) is not None]
        if not changes:
            return None
        return coordinator_log_pb2.GroupCommand(
            timestamp_ms=self.wall_ms, changes=changes, metadata_index=self.topics.index
        )
