"""The moment as of which a backup has transactions: attempts, and what is noted if commits could not be held."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from quorumlog.sdk.backup import creation
from quorumlog.sdk.backup.creation import BackupCreation
from quorumlog.sdk.backup.partition_copy import CopyOptions
from quorumlog.sdk.backup.sizes import BackupSizes
from quorumlog.sdk.backup.store import open_store
from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.errors import ClusterAuthorizationFailedError, QuorumlogError, ServerBusyError
from quorumlog.sdk.runtime.backoff import Backoff
from quorumlog.v1.data_plane_pb2 import MetadataResponse
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.topic_names import TRANSACTIONS_TOPIC

#: How a hold starts, and whether it lasts.
Hold = QuorumlogError | bool


class Rig:
    """A backup whose holds have these outcomes. Each look at the partitions finds other cuts."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *holds: Hold) -> None:
        self.holds = list(holds)
        self.metadata = MetadataResponse(feature_level=3)
        self.metadata.topics.add(name=TRANSACTIONS_TOPIC)
        self.looks = 0
        cluster = Cluster(
            ["nowhere:1"], request_timeout_s=1, bootstrap_timeout_s=1, backoff=Backoff(0.001, 0.001), client_id="test"
        )
        store = open_store(str(folder))
        self.backup = BackupCreation(cluster, store, None, 1.0, lambda size: None)
        self.options = CopyOptions(store, 1, 1.0, lambda size: None, BackupSizes())
        rig = self

        class FakeHold:
            def __init__(self, cluster: Cluster) -> None:
                self.outcome = rig.holds.pop(0)

            async def begin(self) -> None:
                if isinstance(self.outcome, QuorumlogError):
                    raise self.outcome

            async def end(self) -> bool:
                return self.outcome is True

        async def metadata(topics: Sequence[str]) -> MetadataResponse:
            return self.metadata

        async def topics_and_groups(response: MetadataResponse) -> tuple[list[Any], list[Any]]:
            return [], []

        async def cuts(sources: object, options: object) -> dict[str, int]:
            self.looks += 1
            return {"cut": self.looks}

        monkeypatch.setattr(creation, "BackupHold", FakeHold)
        monkeypatch.setattr(creation, "CUT_PAUSE_S", 0.0)
        monkeypatch.setattr(self.backup, "_metadata", metadata)
        monkeypatch.setattr(self.backup, "_topics_and_groups", topics_and_groups)
        monkeypatch.setattr(self.backup, "_cuts", cuts)

    async def ends(self) -> tuple[object, bool, str]:
        """Returns the cuts, whether transactions may be cut, and why."""
        *_, cuts = await self.backup._ends(self.metadata, self.options)
        return cuts, self.backup._cut_transactions, "; ".join(self.backup._notes)


async def test_looks_without_a_hold_are_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path, monkeypatch, False, ServerBusyError("busy"), True)
    assert await rig.ends() == ({"cut": 2}, False, "")


async def test_attempts_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The note has the reason of the last one. Each partition is copied as of a moment of its own then."""
    rig = Rig(tmp_path, monkeypatch, ServerBusyError("busy"), ServerBusyError("busy"), False, True)
    cuts, is_cut, note = await rig.ends()
    assert (cuts, is_cut, len(rig.holds)) == ({}, True, 1)
    assert note.endswith("reading all groups and partitions took too long, or a coordinator was elected")


async def test_users_without_the_right_get_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(tmp_path, monkeypatch, ClusterAuthorizationFailedError("not allowed"), True)
    cuts, is_cut, note = await rig.ends()
    assert (cuts, is_cut, len(rig.holds)) == ({}, True, 1)
    assert note == "transactions may be in it in part, because commits could not be held: not allowed"


@pytest.mark.parametrize(
    ("level", "code", "is_cut"),
    [
        (3, ErrorCode.TOPIC_AUTHORIZATION_FAILED, True),
        (3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
        (2, ErrorCode.TOPIC_AUTHORIZATION_FAILED, False),
    ],
)
async def test_hidden_transactions_are_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: int, code: ErrorCode.ValueType, is_cut: bool
) -> None:
    """The list of all topics has only those that the user may see."""
    rig = Rig(tmp_path, monkeypatch)
    rig.metadata = MetadataResponse(feature_level=level)
    described = MetadataResponse(feature_level=level)
    described.topics.add(name=TRANSACTIONS_TOPIC).error.code = code

    async def metadata(topics: Sequence[str]) -> MetadataResponse:
        return described if topics else rig.metadata

    monkeypatch.setattr(rig.backup, "_metadata", metadata)
    cuts, was_cut, note = await rig.ends()
    assert (cuts, was_cut) == ({}, is_cut)
    assert ("no Describe on the topic __transactions" in note) == is_cut
