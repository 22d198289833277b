"""Settings of topics that older nodes would stop at wait for the feature level."""

from __future__ import annotations

import pytest
from test_controller import new_topic
from test_feature_levels import Upgrading

from quorumlog.server.metadata.records import SECOND_FEATURE_LEVEL
from quorumlog.v1 import admin_pb2
from quorumlog.v1.errors_pb2 import ErrorCode


@pytest.mark.parametrize(
    ("name", "value"),
    [("cleanup.policy", "compact,delete"), ("min.compaction.lag.ms", "0"), ("max.compaction.lag.ms", "60000")],
)
def test_newer_settings_wait_for_the_level(name: str, value: str) -> None:
    """Both creation and change are refused while a node of version 0.2 would stop at the setting."""
    cluster = Upgrading(2, 3, 4)
    cluster.upgrade(1, level=SECOND_FEATURE_LEVEL)
    created = new_topic("windows")
    created.configs[name] = value
    creation = admin_pb2.CreateTopicsRequest(topics=[created])
    changed = admin_pb2.AlterTopicConfig(name=new_topic().name, set={name: value})
    change = admin_pb2.AlterConfigsRequest(topics=[changed])
    for upgraded in (False, True):
        if upgraded:
            cluster.upgrade(1)
        for results in (
            cluster.ask(create_topics=creation).create_topics.results,
            cluster.ask(alter_configs=change).alter_configs.results,
        ):
            if upgraded:
                assert results[0].error.code == ErrorCode.NONE, results
            else:
                assert results[0].error.code == ErrorCode.UNSUPPORTED_VERSION
                assert f"{name}={value} is possible at feature level 3" in results[0].error.message
                assert "(older: 1)" in results[0].error.message
