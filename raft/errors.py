"""Errors of the Raft core."""

from __future__ import annotations

from enum import Enum

from quorumlog.raft.types import NO_NODE


class RaftError(Exception):
    """Base of the core's errors."""


class NotLeaderError(RaftError):
    """Raised if only a leader can do this. ``leader_id`` is the leader if it is known, otherwise NO_NODE."""

    def __init__(self, leader_id: int) -> None:
        hint = "no leader is known, try again" if leader_id == NO_NODE else f"ask node {leader_id}"
        super().__init__(f"this replica is not the leader: {hint}")
        self.leader_id = leader_id


class Refusal(Enum):
    """Reasons for which a leader refuses a proposal for now. Nothing was appended; a retry is safe."""

    TOO_MANY_UNCOMMITTED = "too many bytes are uncommitted"
    TRANSFERRING = "leadership is being transferred"
    CONFIGURATION_PENDING = "an earlier configuration change is not applied yet"


class ProposalRefusedError(RaftError):
    """Raised if the leader cannot accept a proposal now. Definite: nothing was appended."""

    def __init__(self, reason: Refusal) -> None:
        super().__init__(f"{reason.value}, try again")
        self.reason = reason


class UnsupportedChangeError(RaftError):
    """Raised for a configuration change of a kind that is not supported."""


class CompactedError(RaftError):
    """Raised for entries before ``first_index``, which were compacted; older ones are only in a snapshot, if at all."""

    def __init__(self, wanted: int, first_index: int) -> None:
        super().__init__(f"entry {wanted} is gone, the log starts at {first_index}")
        self.wanted = wanted
        self.first_index = first_index


class UnreadableEntryError(RaftError):
    """Raised if the store has lost the content of an entry: its bytes are damaged.

    The request is impossible before they are repaired; nothing was changed.
    """

    def __init__(self, index: int, what: str) -> None:
        super().__init__(what)
        self.index = index


class MalformedMessageError(RaftError):
    """Raised for a message that no correct peer sends. Nothing was changed; close the connection."""


class InvariantViolationError(RaftError):
    """Raised if an invariant is violated. Continuing could lose acknowledged data: stop the process, check its disk."""
