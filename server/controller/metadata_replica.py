"""This node's replica of the metadata group: the image, and the controller while this node leads the group."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from quorumlog.raft.errors import NotLeaderError, ProposalRefusedError
from quorumlog.raft.group import RaftGroup
from quorumlog.raft.types import ORIGIN, Entry, EntryId, EntryKind, Snapshot
from quorumlog.server.controller.controller import Controller, ControllerOptions
from quorumlog.server.controller.decision import ControllerDecision
from quorumlog.server.hosting.sealing import GroupSealer
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import METADATA_GROUP, ApplyResult
from quorumlog.server.step.wire_errors import error
from quorumlog.storage.interface import StorageReader
from quorumlog.storage.rows import read_snapshot
from quorumlog.v1 import metadata_log_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import ENVELOPE_BYTES

META_ROW = b"m"
_META = struct.Struct("<Q")

Respond = Callable[[peer_pb2.ControllerResponse], None]


@dataclass(slots=True)
class _PendingDecision:
    """A decision whose commands are in the log. ``indexes``: indexes of those not applied yet."""

    decision: ControllerDecision
    respond: Respond
    indexes: set[int]
    results: dict[int, ApplyResult] = field(default_factory=dict)


class MetadataListener(Protocol):
    """Receives every change of the image, on every node."""

    def metadata_applied(self, result: ApplyResult) -> None:
        """Handles a command that was applied to the image."""

    def metadata_restored(self) -> None:
        """Handles a snapshot that has replaced the image."""


class MetadataReplica:
    """Group 0 on this node.

    Arguments:
        raft: its Raft replica.
        snapshot: the newest one found at opening.
        reader: durable state, for the data of snapshots.
    """

    def __init__(
        self,
        raft: RaftGroup,
        sealer: GroupSealer,
        snapshot: Snapshot | None,
        reader: StorageReader,
        rng: random.Random,
        options: ControllerOptions,
        listener: MetadataListener,
    ) -> None:
        self.raft = raft
        self._reader = reader
        self.image = self._read_image(snapshot) if snapshot is not None else MetadataImage()
        self.snapshot = snapshot
        self.controller: Controller | None = None
        self._sealer = sealer
        self._rng = rng
        self._options = options
        self._listener = listener
        self.last_applied = snapshot.last if snapshot is not None else ORIGIN
        self._pending: dict[int, _PendingDecision] = {}
        self._rows_due = False

    # -- the state machine ------------------------------------------------------------------------------------

    def apply(self, entries: list[Entry]) -> None:
        """Applies committed entries, in order."""
        for entry in entries:
            self.last_applied = EntryId(entry.index, entry.term, entry.hash)
            if entry.kind is not EntryKind.COMMAND:
                self.image.advance(entry.index)
                continue
            command = metadata_log_pb2.MetadataCommand.FromString(entry.data[ENVELOPE_BYTES:])
            result = self.image.apply(entry.index, command)
            self._listener.metadata_applied(result)
            self._answer(entry.index, result)
        self._rows_due = True

    def restore(self, snapshot: Snapshot) -> None:
        """Replaces the image by that of a snapshot."""
        self.image = self._read_image(snapshot)
        self.snapshot = snapshot
        self.last_applied = snapshot.last
        self._listener.metadata_restored()

    def _read_image(self, snapshot: Snapshot) -> MetadataImage:
        return MetadataImage.from_snapshot(read_snapshot(self._reader, METADATA_GROUP, snapshot.data))

    def take_rows(self) -> dict[bytes, bytes | None]:
        """Returns the row with the applied index, a lower bound of the commit index after a restart."""
        if not self._rows_due:
            return {}
        self._rows_due = False
        return {**applied_row(self.image.applied_index)}

    def checkpointed(self, snapshot: Snapshot) -> None:
        """Records that a snapshot of the image is durable: from now on it is the one to offer."""
        self.snapshot = snapshot

    @property
    def entries_since_snapshot(self) -> int:
        """Number of applied entries that the newest snapshot does not contain."""
        return self.last_applied.index - (self.snapshot.last.index if self.snapshot is not None else 0)

    @property
    def is_durable(self) -> bool:
        """True if all that was applied is on this node's own disk."""
        return self.raft.durable_index >= self.last_applied.index

    # -- the controller ---------------------------------------------------------------------------------------

    def update_leadership(self, now: int) -> None:
        """Follows the Raft role: the controller exists while this node leads and has applied all before its term."""
        if not self.raft.is_leader:
            if self.controller is not None:
                self.controller = None
                self._fail_pending()
        elif self.controller is None and self.raft.leads_committed and self.image.applied_index > 0:
            self.controller = Controller(
                self.image,
                now,
                self._rng,
                self._options,
                lambda: self.raft.configuration,
                lambda: self.raft.is_configuration_pending,
            )

    def handle(self, now: int, wall_ms: int, request: peer_pb2.ControllerRequest, respond: Respond) -> None:
        """Answers a request to the controller, now or once its commands are applied."""
        if self.controller is None:
            respond(self._not_controller(request.request_id, definite=True))
            return
        decision = self.controller.handle(now, wall_ms, request)
        if decision.response is not None:
            decision.response.applied_index = self.image.applied_index
            respond(decision.response)
        else:
            self._propose(now, decision, respond)
        self.on_time(now, wall_ms)

    def on_time(self, now: int, wall_ms: int) -> bool:
        """Proposes the controller's commands that are due, such as fencing silent brokers; returns True if there were
        any."""
        if self.controller is None or self.controller.next_deadline > now:
            return False
        commands = self.controller.on_time(now, wall_ms)
        for command in commands:
            self._append(now, command)
        return bool(commands)

    @property
    def next_deadline(self) -> int | None:
        """Time at which ``on_time`` is due."""
        return self.controller.next_deadline if self.controller is not None else None

    def _append(self, now: int, command: metadata_log_pb2.MetadataCommand) -> int | None:
        try:
            return self.raft.propose(now, self._sealer.command(command.SerializeToString(deterministic=True))).index
        except (NotLeaderError, ProposalRefusedError):
            return None

    def _propose(self, now: int, decision: ControllerDecision, respond: Respond) -> None:
        indexes = [self._append(now, command) for command in decision.commands]
        appended = [index for index in indexes if index is not None]
        if len(appended) < len(indexes):
            respond(self._not_controller(decision.request_id, definite=not appended))
            return
        pending = _PendingDecision(decision, respond, set(appended))
        for index in appended:
            self._pending[index] = pending

    def _answer(self, index: int, result: ApplyResult) -> None:
        pending = self._pending.pop(index, None)
        if pending is None:
            return
        pending.results[index] = result
        pending.indexes.discard(index)
        if not pending.indexes:
            response = pending.decision.answer([pending.results[each] for each in sorted(pending.results)])
            response.applied_index = index
            pending.respond(response)

    def _fail_pending(self) -> None:
        failed = {id(pending): pending for pending in self._pending.values()}
        self._pending.clear()
        for pending in failed.values():
            pending.respond(self._not_controller(pending.decision.request_id, definite=False))

    def _not_controller(self, request_id: int, *, definite: bool) -> peer_pb2.ControllerResponse:
        problem = error(
            ErrorCode.NOT_CONTROLLER,
            "this node is not the active controller; retry",
            definite=definite,
            leader=self.raft.leader_id,
            leader_epoch=self.raft.term,
        )
        return peer_pb2.ControllerResponse(request_id=request_id, error=problem)


def applied_row(index: int) -> dict[bytes, bytes]:
    """Returns the row of the table with the index up to which the metadata log was known to be committed."""
    return {META_ROW: _META.pack(index)}


def decode_applied(table: dict[bytes, bytes]) -> int:
    """Returns the index up to which the metadata log was known to be committed when its table was last written."""
    row = table.get(META_ROW)
    return int(_META.unpack(row)[0]) if row is not None else 0
