"""What a node says of its own disk is on its disk: no vote, acknowledgement or term that a crash could take back.

A cluster gets away with a broken promise most of the time: it takes the right crash at the right moment, and a rival.
So the promise itself is looked at, whenever a message leaves.
"""

from __future__ import annotations

from quorumlog.chaos.models.committed_partition import Violation
from quorumlog.raft.types import (
    AppendResponse,
    EntryId,
    HardState,
    Message,
    SnapshotResponse,
    VoteRequest,
    VoteResponse,
)


def check_promise(group: int, message: Message, state: HardState | None, last: EntryId) -> None:
    """Compares a message with what is synced at its sender.

    Arguments:
        state: the sender's synced hard state; None when it has no replica on its disk.
        last: where the sender's synced log ends.

    Raises:
        Violation: the message says more than the disk.
    """
    if isinstance(message, VoteRequest | VoteResponse) and message.pre_vote:
        return  # promises nothing
    if state is None or message.term > state.term:
        raise Violation(f"{_said(group, message)}, but its disk has {state}")
    if message.term < state.term:
        return  # what it promised, it promised for a term that is over on its disk
    if isinstance(message, VoteRequest):
        # A request that waited for its link until the term had a leader may boast of a tail that this one has cut off.
        kept = state.vote == message.sender and (last.index >= message.last_index or last.term == message.term)
    elif isinstance(message, VoteResponse):
        kept = state.vote == message.to or not message.granted
    elif isinstance(message, AppendResponse | SnapshotResponse):
        kept = last.index >= message.index or message.rejected
    else:
        kept = True
    if not kept:
        raise Violation(f"{_said(group, message)}, but its disk has {state} and a log up to {last[:2]}")


def _said(group: int, message: Message) -> str:
    what = f"{type(message).__name__} of term {message.term} to {message.to}"
    return f"node {message.sender} of group {group} says {what}"
