"""A client forgets topics that it does not use, however many there have been."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hand_driven_cluster import HandDrivenCluster, turn

from quorumlog.sdk.cluster.cluster import IDLE_S, TopicTtl
from quorumlog.sdk.errors import UnknownTopicOrPartitionError
from quorumlog.v1 import data_plane_pb2


def described(*names: str, index: int = 0) -> data_plane_pb2.MetadataResponse:
    """An answer that shows topics."""
    response = data_plane_pb2.MetadataResponse(cluster_id="hand-driven", applied_index=index)
    response.brokers.add(node_id=1, host="node-1", port=1)
    for name in names:
        topic = response.topics.add(name=name, topic_id=name.encode().rjust(16, b"-"))
        topic.partitions.add(partition=0, leader=1, leader_epoch=1, replicas=[1], group_id=5)
    return response


async def hear(cluster: HandDrivenCluster, topics: Sequence[str], answer: data_plane_pb2.MetadataResponse) -> None:
    """The cluster asks for topics and gets an answer."""
    asking = asyncio.ensure_future(cluster.ask_metadata(topics))
    await turn()
    (question,) = [one for node in cluster.nodes.values() for one in node.data_plane.asked("Metadata")]
    question.answer.set_result(answer)
    await asking


async def test_topics_that_nobody_uses_are_forgotten_and_those_in_use_are_not() -> None:
    cluster = HandDrivenCluster()
    cluster.show(1)
    names = ["kept", "touched", "idle"]
    cluster.keep_topics(lambda: ["kept"])
    await hear(cluster, names, described(*names))
    cluster.watch_topics(names)
    cluster.clock.now_s += IDLE_S - 1
    await hear(cluster, [], described())
    assert {*names, "t"} == cluster.metadata.topics.keys(), "not yet"
    cluster.watch_topics(["touched"])
    cluster.clock.now_s += IDLE_S - 1
    await hear(cluster, [], described())
    assert cluster._wanted == {"kept", "touched"}
    assert cluster.metadata.topics.keys() == {"kept", "touched", "t"}
    cluster.clock.now_s += IDLE_S
    await hear(cluster, [], described())
    assert cluster.metadata.topics.keys() == {"kept"}, "and topics that were reported but never used are also forgotten"


async def test_a_client_of_many_topics_that_come_and_go_does_not_grow() -> None:
    cluster = HandDrivenCluster()
    cluster.show(1)
    for number in range(200):
        name = f"run-{number}"
        await hear(cluster, [name], described(name))
        await cluster.ensure_topics([name], 1.0)
        await cluster.require_leader(name, 0)
        cluster.clock.now_s += IDLE_S / 10
    assert len(cluster._wanted) <= 15 and len(cluster.metadata.topics) <= 15
    assert len(cluster._use._used_at_s) <= 15


async def test_a_topic_that_was_forgotten_is_asked_for_again_and_older_news_is_not_believed() -> None:
    cluster = HandDrivenCluster()
    cluster.show(1)
    await hear(cluster, ["idle"], described("idle", index=50))
    await cluster.ensure_topics(["idle"], 1.0)
    for _ in range(2):
        cluster.clock.now_s += IDLE_S
        await hear(cluster, [], described())
    assert "idle" not in cluster.metadata.topics
    errors = cluster.metadata.merge(described("idle", index=40))
    assert isinstance(errors["idle"], UnknownTopicOrPartitionError)
    asking = asyncio.ensure_future(cluster.ensure_topics(["idle"], 1.0))
    await turn()
    (question,) = [one for node in cluster.nodes.values() for one in node.data_plane.asked("Metadata")]
    assert list(question.request.topics) == ["idle"]
    question.answer.set_result(described("idle", index=51))
    assert (await asking)["idle"].described_at == 51


async def test_a_topic_that_is_waited_for_stays_known() -> None:
    """A topic that is looked up again and again for longer than that is in use."""
    cluster = HandDrivenCluster()
    cluster.show(-1)
    await hear(cluster, ["t"], described("t", index=1))
    for _ in range(5):
        cluster.clock.now_s += IDLE_S / 2
        await cluster.require_leader("t", 0)
        await hear(cluster, [], described())
    assert "t" in cluster.metadata.topics


def test_topics_are_idle_from_five_minutes_on() -> None:
    """A topic that is seen for the first time counts as used then."""
    now_s = 0.0
    use = TopicTtl(lambda: now_s)
    use.note(["used"])
    now_s = IDLE_S / 10
    assert use.take_idle(["used", "seen"]) == []
    now_s = IDLE_S
    assert use.take_idle(["used", "seen"]) == ["used"]
    now_s = IDLE_S * 1.1
    assert use.take_idle(["seen"]) == ["seen"]
    now_s = IDLE_S * 1.1 + 1
    assert use.take_idle(["never looked at so soon"]) == []
