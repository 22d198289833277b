"""Changes that the controller has made, and whose answers wait until this node's own image shows them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from quorumlog.server.metadata.image import CurrentImage
from quorumlog.server.pending_calls import PendingCalls


@dataclass(slots=True, frozen=True)
class _Made:
    """A change that is made. ``index``: the metadata index that the image must have applied."""

    request_id: int
    deadline: int
    index: int
    answer: Callable[[], None]


class ShownChanges:
    """Answers changes once who asks this node next sees what they did.

    Arguments:
        current: where this node's image is found.
        limit: changes that may wait.
    """

    def __init__(self, current: CurrentImage, limit: int) -> None:
        self._current = current
        self._made: PendingCalls[_Made] = PendingCalls(limit)

    @property
    def full(self) -> bool:
        """True when no further change may wait."""
        return self._made.full

    def await_image(self, request_id: int, deadline: int, index: int, answer: Callable[[], None]) -> None:
        """Has a change answered when the image has applied ``index``, or at the deadline (µs): it is made."""
        self._made.add(_Made(request_id, deadline, index, answer))
        self.on_applied()

    def on_applied(self) -> None:
        """The image moved on: changes that it shows by now are answered."""
        if not self._made:
            return
        applied = self._current.image.applied_index
        for each in self._made:
            if each.index <= applied:
                self._made.take(each.request_id)
                each.answer()

    def on_time(self, now: int) -> None:
        """Answers changes that are made although this node's image does not show them in time."""
        for each in self._made.take_expired(now):
            each.answer()

    @property
    def next_deadline(self) -> int | None:
        """When ``on_time`` is due."""
        return self._made.next_deadline
