"""Cluster events: each is logged once, by the node that it concerns, and counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from image_log import GROUP, ImageLog

from quorumlog.server.hosting.partition_replica import PartitionReplica
from quorumlog.server.metadata.records import ApplyResult
from quorumlog.server.node.cluster_events import LINES_PER_SECOND, ClusterEvents
from quorumlog.server.step.node_service import StepTime
from quorumlog.v1 import metadata_log_pb2 as log


class Told:
    """A journal of cluster events over an image, and the lines that it has written."""

    def __init__(self, *, is_controller: bool = True) -> None:
        self.image = ImageLog()
        self.lines: list[dict[str, Any]] = []
        self.time = StepTime(0, 0)
        self._is_controller = is_controller
        self.journal = ClusterEvents(self.image.image, self._write, self.time)

    def _write(self, level: str, event: str, **fields: object) -> None:
        self.lines.append({"level": level, "event": event, **fields})

    def __call__(self, result: ApplyResult) -> list[dict[str, Any]]:
        """Returns the lines that are logged for a command that was applied."""
        before = len(self.lines)
        self.journal.applied(self.image.image, result, is_controller=self._is_controller)
        return self.lines[before:]

    def follow(self, group: int, *, leads: bool) -> None:
        replica = SimpleNamespace(group=group, name=f"orders-{group - GROUP}", raft=SimpleNamespace(term=7))
        self.journal.follow(cast("PartitionReplica", replica), leads=leads)

    def three(self) -> Told:
        """Adds three brokers, and a topic that node 1 leads."""
        for node in (1, 2, 3):
            self(self.image.register(node))
        self(self.image.unfence(1, 2, 3))
        self(self.image.create("orders", (1, 2, 3)))
        self(self.image.report(1, 1))
        self.lines.clear()
        return self


def change_config(topic: str, **fields: Any) -> log.MetadataCommand:
    body = log.ChangeTopicConfig(topic_id=topic.encode().ljust(16, b"\0"), **fields)
    return log.MetadataCommand(change_topic_config=body)


def test_brokers_come_are_let_in_and_are_fenced() -> None:
    reported = Told()
    assert reported(reported.image.register(1)) == [{"level": "info", "event": "broker_registered", "broker": 1}]
    assert reported(reported.image.unfence(1)) == [{"level": "info", "event": "broker_unfenced", "broker": 1}]
    assert reported(reported.image.fence(1)) == [{"level": "warning", "event": "broker_fenced", "broker": 1}]
    assert reported.journal.counts.brokers_fenced == 1


def test_topics_are_created_changed_and_deleted() -> None:
    reported = Told().three()
    (created, *configs) = reported(reported.image.create("clicks", (1, 2, 3), (2, 3, 1)))
    assert created == {
        "level": "info",
        "event": "topic_created",
        "topic": "clicks",
        "partitions": 2,
        "replication_factor": 3,
    }
    assert [line["config"] for line in configs] == ["cleanup.policy", "retention.ms"]
    changed = reported(
        reported.image.apply(change_config("clicks", set={"retention.ms": "9"}, clear=["cleanup.policy"]))
    )
    assert [(line["event"], line["config"], line["before"], line["value"]) for line in changed] == [
        ("topic_config_changed", "cleanup.policy", "delete", None),
        ("topic_config_changed", "retention.ms", "1", "9"),
    ]
    deletion = log.MetadataCommand(delete_topic=log.DeleteTopic(topic_id=b"clicks".ljust(16, b"\0")))
    assert reported(reported.image.apply(deletion)) == [
        {"level": "info", "event": "topic_deleted", "topic": "clicks", "partitions": 2}
    ]


def test_who_leads_a_partition_tells_of_its_elections_and_of_who_is_in_sync() -> None:
    reported = Told(is_controller=False).three()
    reported.follow(GROUP, leads=True)
    reported.follow(GROUP, leads=True)
    shrunk = reported(reported.image.alter(1, reported.image.change(1, 2)))
    expanded = reported(reported.image.alter(1, reported.image.change(1, 2, 3)))
    assert reported.lines[0] == {
        "level": "info",
        "event": "leader_elected",
        "partition": "orders-0",
        "leader_epoch": 7,
    }
    assert [(line["level"], line["event"], line["isr"]) for line in shrunk + expanded] == [
        ("warning", "isr_shrunk", (1, 2)),
        ("info", "isr_expanded", (1, 2, 3)),
    ]
    assert (shrunk[0]["out_of_sync"], expanded[0]["in_sync"]) == ((3,), (3,))
    counts = reported.journal.counts
    assert (counts.leader_elections, counts.isr_shrinks, counts.isr_expansions) == (1, 1, 1)


def test_who_does_not_lead_a_partition_and_is_no_controller_says_nothing() -> None:
    reported = Told(is_controller=False).three()
    reported(reported.image.alter(1, reported.image.change(1, 2)))
    reported(reported.image.create("clicks", (1, 2, 3)))
    reported(reported.image.fence(3))
    reported.follow(GROUP, leads=True)
    # Another node leads by now, or this node no longer has a replica.
    reported.follow(GROUP, leads=False)
    reported.lines.clear()
    reported(reported.image.unfence(3))
    reported(reported.image.alter(1, reported.image.change(1, 2, 3)))
    assert reported.lines == []
    assert reported.journal.counts.isr_shrinks == 0


def test_what_a_node_finds_in_its_image_at_its_start_is_not_news() -> None:
    found = Told().three().image
    reported = Told()
    reported.image = found
    reported.journal.start_from(found.image)
    assert reported(found.report(1, 2)) == []
    assert reported(found.create("clicks", (1, 2, 3)))[0]["event"] == "topic_created"


@pytest.mark.parametrize("lines", [LINES_PER_SECOND, LINES_PER_SECOND + 1, 1_000])
def test_a_thousand_elections_at_once_are_counted_and_not_written_one_by_one(lines: int) -> None:
    reported = Told(is_controller=False)
    for group in range(lines):
        reported.follow(GROUP + group, leads=True)
    assert len(reported.lines) == LINES_PER_SECOND
    assert reported.journal.counts.leader_elections == lines
    reported.journal.begin_step()
    assert len(reported.lines) == LINES_PER_SECOND
    reported.time.now += 1_000_000
    reported.journal.begin_step()
    reported.follow(GROUP + lines, leads=True)
    left_out = [line["left_out"] for line in reported.lines if "left_out" in line]
    assert left_out == ([lines - LINES_PER_SECOND] if lines > LINES_PER_SECOND else [])
    assert reported.lines[-1]["partition"] == f"orders-{lines}"
