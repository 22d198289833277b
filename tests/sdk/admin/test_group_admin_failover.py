"""Committed offsets of groups outlive the node that coordinates them."""

from __future__ import annotations

import pytest

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, GroupState, NewTopic, OffsetAndMetadata, TopicPartition

pytestmark = pytest.mark.cluster


def test_a_killed_coordinator_loses_nothing_and_nobody_sees_an_error(quorumlog_cluster: LocalCluster) -> None:
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    groups = [f"g{number}" for number in range(8)]
    with Admin(bootstrap_servers=quorumlog_cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("orders", num_partitions=2)])
        for group in groups:
            admin.alter_group_offsets(group, {first: OffsetAndMetadata(0, f"of {group}")})
        [described] = admin.describe_groups([groups[0]])
        quorumlog_cluster.kill(described.coordinator)
        assert [group.coordinator == described.coordinator for group in admin.describe_groups(groups)] == [False] * 8
        for group in groups:
            assert admin.list_group_offsets(group) == {first: OffsetAndMetadata(0, f"of {group}")}
            admin.alter_group_offsets(group, {second: 0})
        assert [group.group_id for group in admin.list_groups([GroupState.EMPTY])] == groups
        admin.delete_group_offsets(groups[0], [first])
        assert admin.list_group_offsets(groups[0]) == {second: OffsetAndMetadata(0)}
        quorumlog_cluster.start(described.coordinator)
        admin.delete_groups(groups)
        assert admin.list_groups() == []
