"""A leader hands its leadership over to another voter (thesis §3.10)."""

from __future__ import annotations

from quorumlog.raft.errors import UnsupportedChangeError
from quorumlog.raft.replication import NEVER, Replication
from quorumlog.raft.state import ReplicaState
from quorumlog.raft.types import NO_NODE, TimeoutNow


class LeadershipTransfer:
    """To whom a leader hands over, and until when it waits for that voter to catch up.

    While a transfer is under way the leader takes no proposals.

    Attributes:
        to: the voter that is to lead next; NO_NODE while no transfer is under way.
        deadline: microseconds; the leader gives the transfer up then.
    """

    __slots__ = ("_state", "deadline", "to")

    def __init__(self, state: ReplicaState) -> None:
        self._state = state
        self.to = NO_NODE
        self.deadline = NEVER

    def check_receiver(self, to: int) -> None:
        """Leadership goes to another voter only, and never to a witness.

        Raises:
            UnsupportedChangeError: ``to`` is not one.
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
        """The transfer is given up, or the leadership that it was about has ended."""
        self.to = NO_NODE
        self.deadline = NEVER

    def hand_over_when_caught_up(self, replication: Replication) -> None:
        """Asks the next leader to campaign, if there is one and it has the whole log."""
        if self.to == NO_NODE:
            return
        state = self._state
        last_index = state.log.last.index
        if replication.progress[self.to].match_index == last_index:
            state.send(TimeoutNow(state.node_id, self.to, state.term, last_index))
