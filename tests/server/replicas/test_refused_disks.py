"""Data directories that were given up are refused, whatever the node forgets."""

from __future__ import annotations

import pytest
from test_former_replicas import host_and_rows, synced

from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.lost_disks import LostDisk
from quorumlog.server.replicas.retired_directories import RefusedDisks


def image_with(applied: int, **lost: LostDisk) -> MetadataImage:
    image = MetadataImage()
    image.applied_index = applied
    image.lost_disks.by_node = {int(name.removeprefix("node")): disk for name, disk in lost.items()}
    image.lost_disks.lost_index = max((disk.lost_index for disk in lost.values()), default=0)
    return image


@pytest.mark.scenario("19c")
def test_a_disk_is_refused_also_when_the_metadata_are_as_they_were_before() -> None:
    host, rows = host_and_rows()
    kept: list[int] = []
    RefusedDisks(host, rows).follow(image_with(12, node3=LostDisk(("old",), 10)), kept.append)
    assert kept == [], "it is not on disk yet"
    synced(host, rows)
    assert kept == [10]
    again = RefusedDisks(host, rows)
    again.follow(image_with(5), kept.append)
    assert (3, "old") in again
    assert (3, "new") not in again


def test_a_disk_that_counts_again_is_heard_again() -> None:
    host, rows = host_and_rows()
    refused = RefusedDisks(host, rows)
    refused.follow(image_with(12, node3=LostDisk(("old",), 10)), lambda index: None)
    synced(host, rows)
    refused.follow(image_with(20), lambda index: None)
    assert (3, "old") not in refused
    synced(host, rows)
    assert (3, "old") not in RefusedDisks(host, rows)
