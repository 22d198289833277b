"""Requests of a restoration to its cluster: every field of the manifest once, and nothing that exists already."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from quorumlog.sdk.backup import restoration
from quorumlog.sdk.backup.manifest import (
    CommittedBackup,
    GroupBackup,
    Manifest,
    PartitionBackup,
    ProducerNameBackup,
    TopicBackup,
)
from quorumlog.sdk.backup.restoration import ID_MARGIN, BackupRestoration, RestoreOptions
from quorumlog.sdk.backup.store import DirectoryStore
from quorumlog.sdk.errors import (
    GroupIdNotFoundError,
    IllegalStateError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from quorumlog.sdk.types import OffsetAndMetadata, TopicPartition
from quorumlog.v1 import admin_pb2, data_plane_pb2

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
MANIFEST = Manifest(
    sequence=3,
    cluster_id="c",
    feature_level=2,
    taken_ms=5,
    topics=tuple(
        TopicBackup(name, topic_id, factor, {"retention.ms": "7"}, (PartitionBackup(0, 0, 9, 0, (), None, 0),))
        for name, topic_id, factor in (("a", "aa" * 16, 3), ("b", "bb" * 16, 1))
    ),
    groups=(GroupBackup("g", (CommittedBackup("a", 0, 5, 4, "why"), CommittedBackup("b", 0, 6, 4, ""))),),
    producer_names=(ProducerNameBackup("late", 90, 4, 12, "00ff"), ProducerNameBackup("early", 80, 3, 11, "")),
    next_producer_id=1_000,
    next_named_producer_id=2_000,
)


class Fresh:
    """A cluster, as far as a restoration asks it before it creates anything."""

    def __init__(self, nodes: int = 3, fenced: int = 0) -> None:
        self.response = data_plane_pb2.MetadataResponse(cluster_id="new")
        for number in range(nodes):
            self.response.brokers.add(node_id=number + 1, fenced=number < fenced)
        self.names: list[admin_pb2.RestoreProducerNamesRequest] = []
        self.asked: dict[str, Any] = {}

    async def ask_metadata(self, topics: list[str], **how: Any) -> data_plane_pb2.MetadataResponse:
        self.asked = how
        return self.response

    async def retrying(self, attempt: Callable[[], Awaitable[Any]], limit_s: float, what: str) -> Any:
        return await attempt()

    async def ask_any(self, ask: Callable[[Any, float], Awaitable[Any]]) -> Any:
        cluster = self

        class Node:
            admin: Any

            async def RestoreProducerNames(
                self, request: admin_pb2.RestoreProducerNamesRequest, timeout: float
            ) -> None:
                cluster.names.append(request)

        node = Node()
        node.admin = node
        return await ask(node, 1.0)


def restoring(
    place: Path, cluster: Fresh, topics: tuple[str, ...] | None = None, factor: int | None = None
) -> BackupRestoration:
    options = RestoreOptions(topics, factor, {}, 30.0)
    return BackupRestoration(cluster, DirectoryStore(place), MANIFEST, options, lambda size: None)  # type: ignore[arg-type]


async def test_names_come_with_every_field_in_the_order_of_ids(tmp_path: Path) -> None:
    """The next ids come last: names whose ids lie below them count as deleted."""
    cluster = Fresh()
    await restoring(tmp_path, cluster)._restore_names()
    names, last = cluster.names
    assert [
        (each.name, each.producer_id, each.producer_epoch, each.claimed_ms, each.note) for each in names.producers
    ] == [("early", 80, 3, 11, b""), ("late", 90, 4, 12, b"\x00\xff")]
    assert (names.next_producer_id, names.next_named_producer_id) == (0, 0)
    assert list(last.producers) == []
    assert (last.next_producer_id, last.next_named_producer_id) == (1_000 + ID_MARGIN, 2_000 + ID_MARGIN)
    assert {request.timeout_ms for request in cluster.names} == {30_000}


@pytest.mark.parametrize(("nodes", "fenced", "enough"), [(3, 0, True), (3, 2, True), (2, 0, False)])
async def test_registered_nodes_take_replicas(tmp_path: Path, nodes: int, fenced: int, enough: bool) -> None:
    """Nodes that are down create theirs when they return."""
    work = restoring(tmp_path, Fresh(nodes, fenced))
    if enough:
        assert [topic.name for topic in await work._missing(work._wanted())] == ["a", "b"]
        return
    with pytest.raises(IllegalStateError, match="topics with 3 replicas, the cluster has 2 nodes"):
        await work._missing(work._wanted())
    smaller = restoring(tmp_path, Fresh(nodes, fenced), factor=2)
    assert len(await smaller._missing(smaller._wanted())) == 2


async def test_topics_of_an_earlier_attempt_are_kept(tmp_path: Path) -> None:
    """By their ids and partitions; any other topic of such a name is in the way."""
    cluster = Fresh()
    there = cluster.response.topics.add(name="a", topic_id=b"\xaa" * 16)
    there.partitions.add(partition=0)
    work = restoring(tmp_path, cluster)
    assert [topic.name for topic in await work._missing(work._wanted())] == ["b"]
    assert cluster.asked == {"all_topics": True, "linearizable": True}
    there.partitions.add(partition=1)
    with pytest.raises(TopicAlreadyExistsError, match="topic a exists already"):
        await work._missing(work._wanted())


async def test_topics_are_chosen_by_name(tmp_path: Path) -> None:
    assert [topic.name for topic in restoring(tmp_path, Fresh(), topics=("b", "b"))._wanted()] == ["b"]
    with pytest.raises(UnknownTopicOrPartitionError, match="'x' is not in the backup"):
        restoring(tmp_path, Fresh(), topics=("b", "x"))._wanted()


@pytest.mark.parametrize(
    ("there", "topics", "restored"),
    [
        (None, {"a", "b"}, {A: OffsetAndMetadata(5, "why"), B: OffsetAndMetadata(6, "")}),
        (None, {"a"}, {A: OffsetAndMetadata(5, "why")}),
        ({A}, {"a", "b"}, {B: OffsetAndMetadata(6, "")}),
        ({A, B}, {"a", "b"}, None),
    ],
)
async def test_groups_get_what_they_have_not_committed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    there: set[TopicPartition] | None,
    topics: set[str],
    restored: Mapping[TopicPartition, OffsetAndMetadata] | None,
) -> None:
    """Leader epochs are the old cluster's; what was committed here since an earlier attempt counts."""
    given: list[tuple[str, Mapping[TopicPartition, OffsetAndMetadata]]] = []

    class Groups:
        def __init__(self, cluster: object, limit_s: float) -> None:
            assert limit_s == 30.0

        async def offsets(self, group_id: str, partitions: None) -> dict[TopicPartition, OffsetAndMetadata]:
            if there is None:
                raise GroupIdNotFoundError("no such group")
            return dict.fromkeys(there, OffsetAndMetadata(1))

        async def restore_offsets(self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
            given.append((group_id, offsets))

    monkeypatch.setattr(restoration, "GroupAdmin", Groups)
    count = await restoring(tmp_path, Fresh())._restore_groups(topics)
    assert given == ([] if restored is None else [("g", restored)])
    assert count == len(given)
