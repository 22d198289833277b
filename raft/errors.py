"""What the Raft core refuses, and how it says so."""

from __future__ import annotations

from enum import Enum

from quorumlog.raft.types import NO_NODE


class RaftError(Exception):
    """Base of the core's errors."""


class NotLeaderError(RaftError):
    """Only a leader can do this. ``leader_id`` is the leader if it is known, otherwise NO_NODE."""

    def __init__(self, leader_id: int) -> None:
        hint = "no leader is known, try again" if leader_id == NO_NODE else f"ask node {leader_id}"
        super().__init__(f"this replica is not the leader: {hint}")
        self.leader_id = leader_id


class Refusal(Enum):
    """Why a leader refuses a proposal for now. Nothing was appended; trying again is safe."""

    TOO_MANY_UNCOMMITTED = "too many bytes are uncommitted"
    TRANSFERRING = "leadership is being transferred"
    CONFIGURATION_PENDING = "an earlier configuration change is not applied yet"


class ProposalRefusedError(RaftError):
    """The leader cannot take this proposal now. Definite: nothing was appended."""

    def __init__(self, reason: Refusal) -> None:
        super().__init__(f"{reason.value}, try again")
        self.reason = reason


class UnsupportedChangeError(RaftError):
    """A configuration change of a kind that cannot be made."""


class CompactedError(RaftError):
    """Entries before ``first_index`` are gone; what is older is in a snapshot or nowhere."""

    def __init__(self, wanted: int, first_index: int) -> None:
        super().__init__(f"entry {wanted} is gone, the log begins at {first_index}")
        self.wanted = wanted
        self.first_index = first_index


class UnreadableEntryError(RaftError):
    """The store has lost what it was given of an entry: its bytes are damaged. What is asked cannot be done before they
    are mended; nothing was changed."""

    def __init__(self, index: int, what: str) -> None:
        super().__init__(what)
        self.index = index


class MalformedMessageError(RaftError):
    """A peer sent what no correct peer sends. Nothing was changed; drop the connection."""


class InvariantViolationError(RaftError):
    """Something holds that must never hold. Going on could lose acknowledged data: end the process, check its disk."""
