"""What groups had committed there, as offsets here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from quorumlog.sdk.admin.admin import Admin
from quorumlog.sdk.errors import NonEmptyGroupError
from quorumlog.sdk.mirror.offset_runs import OffsetRun, translated
from quorumlog.sdk.types import TopicPartition

_log = logging.getLogger(__name__)


class GroupOffsets:
    """Copies what groups commit, and never back: a group that reads here already has gone further by itself.

    Arguments:
        runs: what has been copied of a partition.
    """

    def __init__(self, admin: Admin, runs: Callable[[TopicPartition], Sequence[OffsetRun]]) -> None:
        self._admin = admin
        self._runs = runs
        #: What was written last, by group.
        self._written: dict[str, dict[TopicPartition, int]] = {}
        self._skipped: set[str] = set()

    def copy(self, committed: Mapping[str, Mapping[TopicPartition, int]]) -> int:
        """Copies what is new; returns how many groups have something here.

        Arguments:
            committed: offsets there, by group.
        """
        for group, offsets in committed.items():
            here = {
                tp: at
                for tp, offset in offsets.items()
                if (at := translated(self._runs(tp), offset)) is not None
            }  # fmt: skip
            if here and here != self._written.get(group) and self._write(group, here):
                self._written[group] = here
        return len(self._written)

    def _write(self, group: str, offsets: Mapping[TopicPartition, int]) -> bool:
        there = self._admin.list_group_offsets(group)
        forward = {tp: at for tp, at in offsets.items() if tp not in there or there[tp].offset < at}
        if not forward:
            return True
        try:
            self._admin.alter_group_offsets(group, forward)
        except NonEmptyGroupError:
            if group not in self._skipped:
                self._skipped.add(group)
                _log.warning("group %s has members here: its offsets stay as they are", group)
            return False
        return True
