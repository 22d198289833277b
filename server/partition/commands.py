"""The commands in a partition's log: proposed by its leader, and applied by all replicas at the same place."""

from __future__ import annotations

from typing import Protocol

from quorumlog.raft.types import Entry
from quorumlog.server.partition.producer_records import restored
from quorumlog.server.partition.producer_table import ProducerTable
from quorumlog.v1.partition_log_pb2 import BeginRestore, CompactLog, OpenTransaction, PartitionCommand
from quorumlog.wire.entry import ENVELOPE_BYTES


class PartitionLogError(Exception):
    """An entry of a partition's log that this version cannot apply. The node must stop: continuing would make replicas
    diverge."""


class CommandedPartition(Protocol):
    """The state that commands act on."""

    def trim(self, log_start_offset: int, index: int) -> None:
        """Sets the log start offset, by the entry at ``index``."""

    def compact(self, command: CompactLog) -> None:
        """Adds a compaction point: of the records before its offset, only the last one of each key is kept."""

    def open_transaction(self, command: OpenTransaction, index: int) -> None:
        """Opens a producer's transaction, by the entry at ``index``."""

    def begin_restore(self, command: BeginRestore) -> None:
        """Starts a restore: from now on the log accepts only batches of a backup."""

    def finish_restore(self, log_start_offset: int, index: int) -> None:
        """Ends the restore and sets the log start offset, by the entry at ``index``."""

    @property
    def producers(self) -> ProducerTable:
        """The table of idempotent producers."""


def command_in(entry: Entry) -> PartitionCommand:
    """Returns the command in an entry of kind COMMAND."""
    return PartitionCommand.FromString(entry.data[ENVELOPE_BYTES:])


def apply_command(partition: CommandedPartition, entry: Entry) -> None:
    """Applies a committed command.

    Raises:
        PartitionLogError: the command is from a later version.
    """
    command = command_in(entry)
    match command.WhichOneof("body"):
        case "trim_log":
            partition.trim(command.trim_log.log_start_offset, entry.index)
        case "compact_log":
            partition.compact(command.compact_log)
        case "forget_producers":
            partition.producers.forget(command.forget_producers.up_to_index)
        case "forget_named_producers":
            forgotten = command.forget_named_producers
            partition.producers.forget_named(forgotten.producer_ids, forgotten.deleted_index)
        case "count_named_apart":
            partition.producers.count_named_apart()
        case "open_transaction":
            partition.open_transaction(command.open_transaction, entry.index)
        case "begin_restore":
            partition.begin_restore(command.begin_restore)
        case "restore_producers":
            partition.producers.restore(restored(command.restore_producers.producers, entry.index))
        case "finish_restore":
            partition.finish_restore(command.finish_restore.log_start_offset, entry.index)
        case _:
            raise PartitionLogError(
                f"entry {entry.index} of a partition's log has a command of a later version: upgrade this node"
            )
