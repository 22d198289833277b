"""Databases, their keys and their small rows; snapshots cut into slices.

Keys of a group's rows start with the group, big-endian, so that a group is one range in every database. A small row is
a format version, a CRC32C and a body. The checksum also covers the database's name and the key: LMDB has no checksums
of its own, and a flipped bit in a key would otherwise make an intact row the value of another key.
"""

from __future__ import annotations

import struct

import google_crc32c

from quorumlog.raft.types import Configuration, EntryId, HardState, Snapshot, SnapshotData
from quorumlog.storage.batch_row import BatchRow
from quorumlog.storage.interface import StorageReader
from quorumlog.storage.transaction import SnapshotSlice

FORMAT_DB = b"format"
ENTRIES = b"entries"
OFFSETS = b"offsets"
HARD_STATES = b"hard-states"
CONFIGURATIONS = b"configurations"
ANCHORS = b"anchors"
SNAPSHOTS = b"snapshots"
SLICES = b"snapshot-slices"
TABLES = b"tables"
NODE_STATE = b"node-state"
DATABASES = (FORMAT_DB, ENTRIES, OFFSETS, HARD_STATES, CONFIGURATIONS, ANCHORS, SNAPSHOTS, SLICES, TABLES, NODE_STATE)
#: Databases whose rows belong to no Raft group.
OF_THE_NODE = (FORMAT_DB, NODE_STATE)
#: Version of the layout of databases and keys, in the only row of FORMAT_DB.
FORMAT = 3
FORMAT_KEY = b"format"
ROW_VERSION = 1
#: Prefix in the node's own rows for a second copy of each Raft group's term and vote. Without it, a damaged hard state
#: would leave it unknown in which terms the replica has voted.
BALLOT_PREFIX = b"ballot/"
#: The highest number of a Raft group that a key can carry.
MAX_GROUP = (1 << 32) - 1
#: The highest index or offset that a key can carry.
MAX_POSITION = (1 << 64) - 1
#: LMDB's limit for keys.
MAX_KEY_BYTES = 511

_GROUP = struct.Struct(">I")
_POSITION = struct.Struct(">IQ")
_SLICE = struct.Struct(">IQI")
_PREFIX = struct.Struct("<BI")
_HARD_STATE = struct.Struct("<QqQ")
_ENTRY_ID = struct.Struct("<QQQ")
_MEMBER_COUNTS = struct.Struct("<HHH")
_OFFSET_ROW = struct.Struct("<QqQq")
_SNAPSHOT_DATA = struct.Struct("<QIQI")


class RowError(Exception):
    """Raised if a row is not what was written. The message says what is wrong with it, not where it is."""


def group_key(group: int) -> bytes:
    """Returns the key of a Raft group's only row, which is also the prefix of the keys of its many."""
    return _GROUP.pack(group)


def group_of(key: bytes) -> int:
    """Returns the Raft group in a key."""
    return int.from_bytes(key[:4], "big")


def ballot_key(group: int) -> bytes:
    """Returns the key of the second copy of a Raft group's term and vote."""
    return BALLOT_PREFIX + group_key(group)


def position_key(group: int, position: int) -> bytes:
    """Returns the key of an entry (position: index) or of an offset index row (position: last offset)."""
    return _POSITION.pack(group, position)


def position_of(key: bytes) -> tuple[int, int]:
    """Returns (Raft group, position) of a key.

    Raises:
        RowError: the key is of another kind.
    """
    if len(key) != _POSITION.size:
        raise RowError(f"key {key.hex()} has {len(key)} bytes, not {_POSITION.size}")
    group, position = _POSITION.unpack(key)
    return group, position


def slice_key(group: int, stage: int, number: int) -> bytes:
    """Returns the key of one slice of a snapshot's data."""
    return _SLICE.pack(group, stage, number)


def stage_key(group: int, stage: int) -> bytes:
    """Returns the prefix of the keys of a stage's slices."""
    return _POSITION.pack(group, stage)


def stage_of(key: bytes) -> int:
    """Returns the stage in a slice's key.

    Raises:
        RowError: the key is of another kind.
    """
    if len(key) != _SLICE.size:
        raise RowError(f"key {key.hex()} has {len(key)} bytes, not {_SLICE.size}")
    return int(_SLICE.unpack(key)[1])


def seal_row(database: bytes, key: bytes, body: bytes) -> bytes:
    """Returns the stored form of a row."""
    return _PREFIX.pack(ROW_VERSION, _checksum(database, key, ROW_VERSION, body)) + body


def open_row(database: bytes, key: bytes, row: bytes) -> bytes:
    """Returns the body of a stored row.

    Raises:
        RowError: checksum or version is wrong.
    """
    if len(row) < _PREFIX.size:
        raise RowError(f"row of {len(row)} bytes is too short")
    version, stored = _PREFIX.unpack_from(row)
    body = row[_PREFIX.size :]
    computed = _checksum(database, key, version, body)
    if computed != stored:
        raise RowError(f"checksum is {computed:#010x}, stored {stored:#010x}")
    if version != ROW_VERSION:
        raise RowError(f"row format {version} is not {ROW_VERSION}, the only one that this version reads")
    return body


def _checksum(database: bytes, key: bytes, version: int, body: bytes) -> int:
    return int(google_crc32c.value(b"%b\0%c%b%b" % (database, version, key, body)))


def pack_hard_state(state: HardState) -> bytes:
    """Returns the body of a hard state's row."""
    return _HARD_STATE.pack(state.term, state.vote, state.commit)


def unpack_hard_state(body: bytes) -> HardState:
    """Returns the hard state in a row's body."""
    return HardState(*_unpack(_HARD_STATE, body))


def pack_entry_id(entry: EntryId) -> bytes:
    """Returns the body of an anchor's row."""
    return _ENTRY_ID.pack(*entry)


def unpack_entry_id(body: bytes) -> EntryId:
    """Returns the entry's identity in a row's body."""
    return EntryId(*_unpack(_ENTRY_ID, body))


def pack_configuration(configuration: Configuration) -> bytes:
    """Returns the body of a configuration's row.

    Witnesses come last and are not counted: without any, the body is the same as in versions without witnesses.
    """
    parts = (configuration.voters, configuration.learners, configuration.outgoing)
    nodes = [node for part in (*parts, configuration.witnesses) for node in part]
    return _MEMBER_COUNTS.pack(*map(len, parts)) + struct.pack(f"<{len(nodes)}q", *nodes)


def unpack_configuration(body: bytes) -> Configuration:
    """Returns the configuration in a row's body."""
    if len(body) < _MEMBER_COUNTS.size:
        raise RowError(f"configuration of {len(body)} bytes is too short")
    voters, learners, outgoing = _MEMBER_COUNTS.unpack_from(body)
    counted = voters + learners + outgoing
    more = max(len(body) - _MEMBER_COUNTS.size, 0) // 8
    nodes = _unpack(struct.Struct(f"<{max(counted, more)}q"), body[_MEMBER_COUNTS.size :])
    return Configuration(
        nodes[:voters], nodes[voters : voters + learners], nodes[voters + learners : counted], nodes[counted:]
    )


def pack_snapshot(snapshot: Snapshot) -> bytes:
    """Returns the body of a snapshot's row. Its data are elsewhere, in slices."""
    configuration = pack_configuration(snapshot.configuration)
    return _ENTRY_ID.pack(*snapshot.last) + _SNAPSHOT_DATA.pack(*snapshot.data) + configuration


def unpack_snapshot(body: bytes) -> Snapshot:
    """Returns the snapshot in a row's body."""
    start = _ENTRY_ID.size + _SNAPSHOT_DATA.size
    if len(body) < start:
        raise RowError(f"snapshot of {len(body)} bytes is too short")
    last = EntryId(*_ENTRY_ID.unpack_from(body))
    data = SnapshotData(*_SNAPSHOT_DATA.unpack_from(body, _ENTRY_ID.size))
    return Snapshot(last, unpack_configuration(body[start:]), data)


def pack_batch_row(row: BatchRow) -> bytes:
    """Returns the body of an offset index row. The batch's last offset is in the key."""
    return _OFFSET_ROW.pack(row.index, row.base_offset, row.end_position, row.max_timestamp_ms)


def unpack_batch_row(body: bytes, last_offset: int) -> BatchRow:
    """Returns the offset index row in a row's body and its key."""
    index, base_offset, end_position, max_timestamp_ms = _unpack(_OFFSET_ROW, body)
    return BatchRow(index, base_offset, last_offset, end_position, max_timestamp_ms)


# -- snapshots in slices ---------------------------------------------------------------------------------------


def describe_snapshot(stage: int, data: bytes, slice_bytes: int) -> SnapshotData:
    """Describes ``data`` cut into slices of ``slice_bytes`` under ``stage``: at least one, which may be empty."""
    slices = max(1, -(-len(data) // slice_bytes))
    return SnapshotData(stage, slices, len(data), int(google_crc32c.value(data)))


def cut_slice(stage: int, data: bytes, slice_bytes: int, number: int) -> SnapshotSlice:
    """Returns one slice: the only copy made of its bytes."""
    return SnapshotSlice(stage, number, data[number * slice_bytes : (number + 1) * slice_bytes])


def read_snapshot(reader: StorageReader, group: int, data: SnapshotData) -> bytes:
    """Returns all of a snapshot's data, for a state machine that keeps its state in memory anyway.

    Raises:
        DamageError: a slice is not what was written.
    """
    return b"".join(reader.snapshot_slice(group, data.stage, number) for number in range(data.slices))


def _unpack(layout: struct.Struct, body: bytes) -> tuple[int, ...]:
    if len(body) != layout.size:
        raise RowError(f"body has {len(body)} bytes, not {layout.size}")
    return layout.unpack(body)
