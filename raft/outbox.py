"""The two outboxes of a replica: messages for now, and messages that may only leave once a write is durable."""

from __future__ import annotations

from quorumlog.raft.types import Message


class Outbox:
    """Messages on their way out, and the numbers of the writes on which they wait.

    A message about what must be durable (an acknowledgement, a vote) is sent with the write that makes it so. If that
    write was handed out before, the message is held here until the write has completed. If nothing is being written, it
    may be sent immediately.

    Attributes:
        now: messages that may leave at any time.
        after_durable: messages that wait for everything that this replica has decided so far.
    """

    __slots__ = ("_durable_number", "_held", "_taken_number", "after_durable", "now")

    def __init__(self) -> None:
        self.now: list[Message] = []
        self.after_durable: list[Message] = []
        self._held: list[tuple[int, list[Message]]] = []
        self._taken_number = 0
        self._durable_number = 0

    @property
    def settled(self) -> bool:
        """True if no write that was handed out is still in progress."""
        return self._durable_number == self._taken_number

    def take(self, *, writes: bool) -> tuple[list[Message], list[Message], int]:
        """Empties the outboxes.

        Arguments:
            writes: a write goes out with them.

        Returns:
            Messages for now, messages for after that write, and the write's number.
        """
        # The returned lists are never modified again: an acknowledgement added to an earlier Ready would be sent before
        # its own write.
        now, self.now = self.now, []
        after, self.after_durable = self.after_durable, []
        if writes:
            self._taken_number += 1
        elif after:
            if self.settled:
                now += after
            else:
                self._held.append((self._taken_number, after))
            after = []
        return now, after, self._taken_number

    def durable(self, number: int) -> None:
        """Records that the write of that number, and all before it, are synced: messages held for them are sent now."""
        self._durable_number = max(self._durable_number, number)
        while self._held and self._held[0][0] <= number:
            self.now += self._held.pop(0)[1]
