"""Transfer of leadership to another voter (thesis §3.10)."""

from __future__ import annotations

from quorumlog.raft.errors import UnsupportedChangeError
from quorumlog.raft.replication import NEVER, Replication
from quorumlog.raft.state import ReplicaState
from quorumlog.raft.types import NO_NODE, TimeoutNow


class LeadershipTransfer:
    """A leader's transfer to a voter, which it waits for to catch up until a deadline.

    While a transfer is in progress, the leader accepts no proposals.

    Attributes:
        to: the voter that is to lead next; NO_NODE while no transfer is in progress.
        deadline: microseconds; the leader abandons the transfer then.
    """

    __slots__ = ("_state", "deadline", "to")

    def __init__(self, state: ReplicaState) -> None:
        self._state = state
        self.to = NO_NODE
        self.deadline = NEVER

    def check_receiver(self, to: int) -> None:
        """Checks that leadership can go to a node: another voter, and not a witness.

        Raises:
            UnsupportedChangeError: it cannot.
        """
        if to == self._state.node_id or to not in self._state.configuration.data_voters:
            raise UnsupportedChangeError(
                f"leadership can only go to another voter that has the data, node {to} is none"
            )

    def begin(self, now: int, to: int, replication: Replication) -> None:
        """Hands over to ``to`` as soon as it has everything."""
        self.to = to
        self.deadline = now + self._state.options.election_timeout_us
        self.hand_over_when_caught_up(replication)

    def end(self) -> None:
        """Ends the transfer: it is abandoned, or the leadership has ended."""
        self.to = NO_NODE
        self.deadline = NEVER

    def hand_over_when_caught_up(self, replication: Replication) -> None:
        """Asks the next leader to campaign, if a transfer is in progress and it has the whole log."""
        if self.to == NO_NODE:
            return
        state = self._state
        last_index = state.log.last.index
        if replication.progress[self.to].match_index == last_index:
            state.send(TimeoutNow(state.node_id, self.to, state.term, last_index))
