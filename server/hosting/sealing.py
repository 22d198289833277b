"""Builds sealed entries of one group, in the layout of `quorumlog.wire.entry`."""

from __future__ import annotations

from collections.abc import Callable

from quorumlog.raft.types import Configuration, Entry, EntryKind
from quorumlog.v1 import peer_pb2
from quorumlog.wire import entry as layout

Seal = Callable[[int, int, int], Entry]


def configuration_to_proto(configuration: Configuration) -> peer_pb2.GroupConfiguration:
    """Returns the wire form of a configuration."""
    return peer_pb2.GroupConfiguration(
        voters=configuration.voters,
        learners=configuration.learners,
        outgoing_voters=configuration.outgoing,
        witnesses=configuration.witnesses,
    )


def configuration_from_proto(message: peer_pb2.GroupConfiguration) -> Configuration:
    """Returns the configuration from its wire form.

    Raises:
        ValueError: the message is not a valid configuration.
    """
    return Configuration(
        tuple(message.voters), tuple(message.learners), tuple(message.outgoing_voters), tuple(message.witnesses)
    )


class GroupSealer:
    """The entry sealer of one group: implements `quorumlog.raft.types.EntrySealer`, and seals what hosts propose."""

    __slots__ = ("_group",)

    def __init__(self, group: int) -> None:
        self._group = group

    def noop(self, index: int, term: int, previous_hash: int) -> Entry:
        """Returns the empty entry with which a leader starts its term."""
        return self._seal(index, term, previous_hash, EntryKind.NOOP, b"")

    def config(self, index: int, term: int, previous_hash: int, configuration: Configuration) -> Entry:
        """Returns an entry that changes the configuration."""
        body = configuration_to_proto(configuration).SerializeToString(deterministic=True)
        return self._seal(index, term, previous_hash, EntryKind.CONFIG, body)

    def configuration_of(self, entry: Entry) -> Configuration:
        """Returns the configuration in an entry of kind CONFIG."""
        body = entry.data[layout.ENVELOPE_BYTES :]
        return configuration_from_proto(peer_pb2.GroupConfiguration.FromString(body))

    def trace(self, entry: Entry, previous_hash: int) -> Entry:
        """Returns the trace that a witness keeps of an entry."""
        return Entry(entry.index, entry.term, EntryKind.TRACE, entry.hash, layout.trace_of(entry.data))

    def command(self, body: bytes) -> Seal:
        """Returns a function that seals a command once its position is known."""

        def seal(index: int, term: int, previous_hash: int) -> Entry:
            return self._seal(index, term, previous_hash, EntryKind.COMMAND, body)

        return seal

    def batch(self, batch: bytes, base_offset: int, append_time_ms: int, is_append_time: bool) -> Seal:
        """Returns a function that seals a validated batch once its position is known.

        Arguments:
            append_time_ms: the node's clock, in milliseconds since the epoch.
            is_append_time: True if that becomes the timestamp of the batch's records.
        """

        def seal(index: int, term: int, previous_hash: int) -> Entry:
            data = layout.seal_batch(
                batch,
                group=self._group,
                term=term,
                index=index,
                previous_hash=previous_hash,
                base_offset=base_offset,
                append_time_ms=append_time_ms,
                stamps_records=is_append_time,
            )
            return Entry(index, term, EntryKind.BATCH, layout.entry_hash(data), data)

        return seal

    def restored_batch(self, entry: bytes, base_offset: int, last_offset: int | None) -> Seal:
        """Returns a function that seals a validated batch of another log at the same offsets, once its position is
        known.

        Arguments:
            last_offset: the last missing offset after the batch, if offsets are missing.
        """

        def seal(index: int, term: int, previous_hash: int) -> Entry:
            data = layout.seal_batch(
                entry,
                group=self._group,
                term=term,
                index=index,
                previous_hash=previous_hash,
                base_offset=base_offset,
                last_offset=last_offset,
            )
            return Entry(index, term, EntryKind.BATCH, layout.entry_hash(data), data)

        return seal

    def _seal(self, index: int, term: int, previous_hash: int, kind: EntryKind, body: bytes) -> Entry:
        data = layout.seal(self._group, term, index, previous_hash, layout.EnvelopeKind(kind), body)
        return Entry(index, term, kind, layout.entry_hash(data), data)
