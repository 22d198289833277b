"""The kinds of coordinators: what differs between their topics, keys, tables and log entries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

from google.protobuf.message import Message as ProtoMessage

from quorumlog.raft.types import EntryId
from quorumlog.server.metadata.records import FIRST_FEATURE_LEVEL
from quorumlog.v1 import errors_pb2
from quorumlog.v1.acls_pb2 import AclResourceType

CommandT = TypeVar("CommandT", bound=ProtoMessage)
CommandT_contra = TypeVar("CommandT_contra", bound=ProtoMessage, contravariant=True)


class CoordinatorTable(Protocol[CommandT_contra]):
    """The state of a coordinator as its log has made it: pure, and the same on every replica.

    A new table is empty.

    Attributes:
        metadata_index: index of the metadata log that the decisions were based on; a leader needs at least that much.
    """

    metadata_index: int

    def apply(self, command: CommandT_contra, entry: EntryId, /) -> set[str]:
        """Applies one committed command; returns the keys that it changed.

        Arguments:
            entry: its entry in the log.
        """

    def to_snapshot(self, applied_index: int) -> bytes:
        """Returns the whole state, as of an index of the log."""

    @classmethod
    def from_snapshot(cls, data: bytes) -> tuple[Self, int]:
        """Returns the table that ``to_snapshot`` wrote, and its index."""


TableT = TypeVar("TableT", bound=CoordinatorTable[Any])


@dataclass(slots=True, frozen=True)
class CoordinatorKind(Generic[TableT, CommandT]):
    """A kind of coordinator.

    A key is what a coordinator keeps by a name that clients choose, such as a consumer group.

    Arguments:
        topic: the internal topic whose partitions are the coordinators.
        noun: what a key names, for messages: "group".
        resource: the resource that ACLs name by a key.
        check_key: returns the error if a key is invalid; None if it is valid.
        table: the state machine.
        command: a command of the log.
        feature_level: the feature level of the cluster from which on these coordinators exist. Nodes that support no
            such level would take the topic for one of records.
    """

    topic: str
    noun: str
    resource: AclResourceType.ValueType
    check_key: Callable[[str], errors_pb2.Error | None]
    table: type[TableT]
    command: type[CommandT]
    feature_level: int = FIRST_FEATURE_LEVEL
