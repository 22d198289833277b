"""Survey of a survivor's data directory, from which a plan can be made on another machine."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import Enum
from types import MappingProxyType
from typing import Any

from quorumlog.raft.types import Configuration, Entry, EntryId, EntryKind
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.server.node.directory_identity import CLUSTER_ROW, DIRECTORY_ROW, NODE_ROW
from quorumlog.server.node.formation import Membership
from quorumlog.server.partition.witness import is_witness
from quorumlog.server.replicas.replica_tombstones import former_lives
from quorumlog.storage.interface import DamageError, StorageReader
from quorumlog.storage.rows import read_snapshot
from quorumlog.storage.transaction import RaftGroupState
from quorumlog.v1 import metadata_log_pb2
from quorumlog.wire.entry import ENVELOPE_BYTES

#: Version of the format of surveys and plans.
FORMAT = 1
#: Row of the node's own state with the id of the recovery that created the directory.
RECOVERY_ROW = b"recovery"
#: Bytes of a log per read.
_READ_BYTES = 1 << 20


class RecoveryError(ValueError):
    """Raised if the recovery cannot continue. The message is one line that says what to do."""


class ReplicaKind(Enum):
    """Kind of replica that a survivor has of a Raft group.

    A DAMAGED one is a replica or a witness that cannot be opened, and cannot be continued.
    """

    DATA = "data"
    WITNESS = "witness"
    DAMAGED = "damaged"


@dataclass(slots=True, frozen=True)
class SurveyedGroup:
    """One Raft group on one survivor.

    Arguments:
        term, vote, commit: its hard state; of a damaged one, ``term`` is the newest in which it can have voted.
        first_index: of the entries that are kept; ``last_index`` may be the one before.
        last_term, last_hash: of the last entry; of a damaged one 0.
        configuration: the members as it has applied them; None of a damaged one.
        changes_members: its log continues with other members that it has not applied.
        problem: what is damaged, in one line.
        damaged_entries: number of unreadable entries, of a log that can be opened.
        has_say: False of a replica that was recreated, and has not confirmed yet that everything is committed that it
            helped to commit before: its absence of entries proves nothing about others.
    """

    group: int
    kind: ReplicaKind
    term: int
    vote: int
    commit: int
    first_index: int
    last_index: int
    last_term: int
    last_hash: int
    configuration: Configuration | None
    changes_members: bool = False
    problem: str = ""
    damaged_entries: int = 0
    has_say: bool = True

    @property
    def last(self) -> EntryId:
        """The last entry."""
        return EntryId(self.last_index, self.last_term, self.last_hash)

    @property
    def is_whole(self) -> bool:
        """True if all of its entries can be read."""
        return self.damaged_entries == 0

    @property
    def completeness(self) -> tuple[int, int]:
        """Order of logs: the higher one has more of what was committed (Raft §5.4.1)."""
        return self.last_term, self.last_index


@dataclass(slots=True, frozen=True)
class Survey:
    """Content of one data directory.

    Arguments:
        recovery: the plan that was applied here last; empty if none was.
        groups: by number.
        metadata: the image with all of this node's metadata log applied, as a snapshot.
    """

    node_id: int
    directory_id: str
    cluster_id: str
    recovery: str
    groups: dict[int, SurveyedGroup]
    metadata: bytes

    @property
    def fingerprint(self) -> str:
        """Hash of the whole content: directories with the same one hold the same."""
        content = self._head() | {"metadata": hashlib.blake2b(self.metadata).hexdigest()}
        return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()

    def _head(self) -> dict[str, object]:
        return {
            "survey_format": FORMAT,
            "node_id": self.node_id,
            "directory_id": self.directory_id,
            "cluster_id": self.cluster_id,
            "recovery": self.recovery,
            "groups": [_group_json(each) for _, each in sorted(self.groups.items())],
        }

    def to_json(self) -> dict[str, object]:
        """Returns the form for a file."""
        return self._head() | {"metadata": packed(self.metadata), "fingerprint": self.fingerprint}

    @classmethod
    def from_json(cls, row: Any, where: str) -> Survey:
        """Parses the result of ``to_json``.

        Arguments:
            where: name of its source, for error messages.

        Raises:
            RecoveryError: it is not a survey.
        """
        try:
            if row["survey_format"] != FORMAT:
                raise RecoveryError(f"{where} is a survey of another version: survey again with this version")
            groups = [_group_of(each) for each in row["groups"]]
            found = cls(
                int(row["node_id"]), str(row["directory_id"]), str(row["cluster_id"]), str(row["recovery"]),
                {each.group: each for each in groups}, unpacked(row["metadata"]),
            )  # fmt: skip
            if found.fingerprint != row["fingerprint"]:
                raise RecoveryError(f"{where} was modified after it was printed: survey that node again")
            return found
        except (KeyError, TypeError, AttributeError, OverflowError, binascii.Error, zlib.error, ValueError) as problem:
            if isinstance(problem, RecoveryError):
                raise
            raise RecoveryError(f"{where} is not a survey: specify the output of quorumlog recover survey") from None


def packed(data: bytes) -> str:
    """Encodes bytes for a JSON file."""
    return base64.b64encode(zlib.compress(data)).decode()


def unpacked(text: str) -> bytes:
    """Decodes the result of ``packed``."""
    return zlib.decompress(base64.b64decode(text, validate=True))


def survey(reader: StorageReader, damaged_entries: Mapping[int, int] = MappingProxyType({})) -> Survey:
    """Surveys a stopped node's directory without changing it.

    Arguments:
        damaged_entries: number of unreadable entries by Raft group.

    Raises:
        RecoveryError: no cluster can continue with it.
        DamageError: its metadata log is damaged.
    """
    rows, states = reader.node_state(), reader.groups()
    if CLUSTER_ROW not in rows or METADATA_GROUP not in states:
        raise RecoveryError("the directory belongs to no cluster and has no data: leave it out")
    membership = Membership.decode(rows[CLUSTER_ROW])
    votes_from = {group: index for group, (_, index) in former_lives(rows).items()}
    votes_from[METADATA_GROUP] = membership.votes_from
    groups = {
        group: replace(
            _surveyed(reader, state),
            # Of the metadata, the relevant part has been read, and a snapshot replaces all of it.
            damaged_entries=damaged_entries.get(group, 0) if group != METADATA_GROUP else 0,
            has_say=state.hard_state.commit >= votes_from.get(group, 0),
        )
        for group, state in states.items()
    }
    for group, aside in reader.opening_damage().replicas.items():
        groups[group] = SurveyedGroup(
            group, ReplicaKind.DAMAGED, aside.term or 0, -1, 0, 1, aside.last_index, 0, 0, None, problem=aside.reason
        )  # fmt: skip
    return Survey(
        int(rows[NODE_ROW]),
        rows[DIRECTORY_ROW].decode(),
        membership.cluster_id,
        rows.get(RECOVERY_ROW, b"").decode(),
        groups,
        _newest_image(reader, states[METADATA_GROUP]).to_snapshot(),
    )


def _surveyed(reader: StorageReader, state: RaftGroupState) -> SurveyedGroup:
    hard_state, last = state.hard_state, state.last
    kind = ReplicaKind.WITNESS if is_witness(state.table) else ReplicaKind.DATA
    after = _entries_after(reader, state, max(hard_state.commit, state.anchor.index))
    try:
        changes_members = any(entry.kind is EntryKind.CONFIG for entry in after)
    except DamageError:
        changes_members = True
    return SurveyedGroup(
        state.group, kind, hard_state.term, hard_state.vote, hard_state.commit, state.anchor.index + 1,
        last.index, last.term, last.hash, state.configuration, changes_members,
    )  # fmt: skip


def _newest_image(reader: StorageReader, state: RaftGroupState) -> MetadataImage:
    """Returns the image including entries that may be uncommitted: the lost nodes may have committed them."""
    image = MetadataImage()
    if state.snapshot is not None:
        image = MetadataImage.from_snapshot(read_snapshot(reader, METADATA_GROUP, state.snapshot.data))
    for entry in _entries_after(reader, state, image.applied_index):
        if entry.kind is EntryKind.COMMAND:
            image.apply(entry.index, metadata_log_pb2.MetadataCommand.FromString(entry.data[ENVELOPE_BYTES:]))
        else:
            image.advance(entry.index)
    return image


def _entries_after(reader: StorageReader, state: RaftGroupState, index: int) -> Iterator[Entry]:
    while index < state.last.index:
        for entry in reader.entries(state.group, index + 1, state.last.index, _READ_BYTES):
            yield entry
            index = entry.index


def _group_json(group: SurveyedGroup) -> dict[str, object]:
    row = {each.name: getattr(group, each.name) for each in fields(group)}
    members = asdict(group.configuration) if group.configuration is not None else None
    return row | {"kind": group.kind.value, "last_hash": f"{group.last_hash:016x}", "configuration": members}


def _group_of(row: Any) -> SurveyedGroup:
    members = row["configuration"]
    parts = ("voters", "learners", "outgoing", "witnesses")
    configuration = None if members is None else Configuration(*(tuple(map(int, members[part])) for part in parts))
    return SurveyedGroup(
        int(row["group"]), ReplicaKind(row["kind"]), int(row["term"]), int(row["vote"]), int(row["commit"]),
        int(row["first_index"]), int(row["last_index"]), int(row["last_term"]), int(row["last_hash"], 16),
        configuration, bool(row["changes_members"]), str(row["problem"]), int(row["damaged_entries"]),
        bool(row["has_say"]),
    )  # fmt: skip
