"""Holds back the commits of one coordinator for a moment, so that a backup can copy all partitions between two commits.

While commits are held and every participant has the outcome of those before, no transaction is committed in one
partition and open in another. Aborts are not held: a backup leaves out what is aborted and what is open alike.

A hold belongs to one term and ends at a fixed time, whatever becomes of the backup. Another one is refused until the
last one has been over for as long as it lasted, so that commits wait for at most half of the time.
"""

from __future__ import annotations

from quorumlog.server.deciding.decision_queue import CoordinatorCall
from quorumlog.server.step.wire_errors import error
from quorumlog.server.transactions.transaction_draft import TransactionDraft
from quorumlog.v1.errors_pb2 import ErrorCode

#: Longest time for which commits are held (µs).
HOLD_US = 5_000_000

HeldCall = CoordinatorCall[TransactionDraft]


class CommitHold:
    """The hold of one term of one coordinator, and the commits that wait for its end.

    Arguments:
        max_calls: maximum number of commits that wait.

    Attributes:
        deadline: time at which the hold ends, on the node's clock, which does not stop while the node is stalled; None
            without a hold.
    """

    def __init__(self, max_calls: int) -> None:
        self.deadline: int | None = None
        self._max_calls = max_calls
        self._hold_id = b""
        self._began = 0
        self._free_at = 0
        #: The last decision that was made before the hold.
        self._last_decision = 0
        self._calls: list[HeldCall] = []
        #: Of the commits that wait, and of those that have waited and are not decided yet.
        self._names: set[str] = set()

    def begin(self, hold_id: bytes, now: int, hold_us: int, last_decision: int) -> None:
        """Starts a hold, unless it has been started before, or another one was too short a time ago.

        Arguments:
            last_decision: index of the decision in flight, which may commit something; 0 without one.
        """
        # One that is over never starts again: it would seem to have lasted.
        if self.deadline is not None or now < self._free_at or hold_id == self._hold_id:
            return
        self._hold_id, self._began, self._last_decision = hold_id, now, last_decision
        self.deadline = now + min(hold_us, HOLD_US)

    def lasts(self, hold_id: bytes) -> bool:
        """True if a hold has lasted since its start."""
        return self.deadline is not None and hold_id == self._hold_id

    def is_decided(self, applied_index: int) -> bool:
        """True if the log has no decision from before the hold that is not applied."""
        return applied_index >= self._last_decision

    def keep(self, call: HeldCall) -> bool:
        """Keeps a commit until the hold ends, or refuses it if too many wait. False: commits are not held, and it is
        decided now."""
        if self.deadline is None:
            self._names.discard(call.key)
            return False
        if len(self._calls) >= self._max_calls:
            call.refuse(error(ErrorCode.SERVER_BUSY, f"{len(self._calls)} commits wait for a backup: try again later"))
        else:
            self._calls.append(call)
            self._names.add(call.key)
        return True

    def waits(self, name: str) -> bool:
        """True if a commit of a transactional id was held and is not decided. Its transaction must not time out."""
        return name in self._names

    def end(self, now: int) -> list[HeldCall]:
        """Ends the hold; returns the commits that have waited, in their order."""
        self._free_at, self.deadline = now + (now - self._began), None
        calls, self._calls = self._calls, []
        return calls
