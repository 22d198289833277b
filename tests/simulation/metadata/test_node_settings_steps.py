"""Settings of nodes in the steps of simulated nodes: they take effect, survive restarts, and are refused to others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from quiet_cluster import Quiet

from quorumlog.server.config.options import AuthorizationOptions, ScrubOptions
from quorumlog.server.step.dynamic_values import DynamicValues
from quorumlog.server.step.request_context import ANONYMOUS
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.node_settings_pb2 import (
    AlterNodeSettingsRequest,
    AlterNodeSettingsResponse,
    DescribeNodeSettingsRequest,
    DescribeNodeSettingsResponse,
    NodeSettingOp,
)


class Configured(Quiet):
    """A quiet cluster whose settings an administrator changes."""

    def __init__(self, seed: int, **more: Any) -> None:
        super().__init__(seed, **more)
        self.until(
            lambda: all(each.image and each.image.feature_level >= 3 for each in self.cluster.processes.values()), 20
        )

    def send(self, client: str, request: object, node: int = 1) -> Any:
        answers: list[Any] = []
        self.cluster.request(client, node, request, answers.append)  # type: ignore[arg-type]  # a request of a client
        self.until(lambda: bool(answers), 20)
        return answers[0]

    def alter(
        self, node_id: int | None, client: str = "admin", at: int = 1, **values: str | None
    ) -> AlterNodeSettingsResponse:
        request = AlterNodeSettingsRequest(timeout_ms=5_000)
        ops = [NodeSettingOp(key=key, value=value) for key, value in values.items()]
        request.alterations.add(node_id=node_id, ops=ops)
        answer = self.send(client, request, at)
        assert isinstance(answer, AlterNodeSettingsResponse), answer
        self.run(0.5)
        return answer

    def settings(self, node_id: int) -> DynamicValues:
        node: Any = self.cluster.processes[node_id].node
        values: DynamicValues = node._member.settings.values
        return values

    def restart(self, node_id: int) -> None:
        self.cluster.processes[node_id].die(silent=False)
        self.run(0.2)
        self.cluster.start(node_id)
        self.run(2)


def test_settings_take_effect_at_once() -> None:
    cluster = Configured(1)
    assert not cluster.alter(2, at=3, scrub_bytes_per_second="1000", max_request_bytes="2048").HasField("error")
    assert (cluster.settings(2).scrub_bytes_per_second, cluster.settings(2).request_bytes) == (1_000, 2_048)
    assert cluster.settings(1).request_bytes == 32 << 20
    cluster.alter(None, max_request_bytes="4096")
    assert [cluster.settings(node).request_bytes for node in (1, 2, 3)] == [4_096, 2_048, 4_096]
    cluster.alter(2, max_request_bytes=None)
    assert cluster.settings(2).request_bytes == 4_096
    cluster.alter(None, max_request_bytes=None)
    assert {cluster.settings(node).request_bytes for node in (1, 2, 3)} == {32 << 20}


@pytest.mark.parametrize("checkpoint_entries", [2_000, 1], ids=["log", "snapshot"])
def test_settings_survive_a_restart(checkpoint_entries: int) -> None:
    """From the log, and from a snapshot of the metadata; every other node has the record too."""
    cluster = Configured(2, checkpoint_entries=checkpoint_entries)
    cluster.alter(2, offsets_retention_ms="5000")
    for node in (2, 1, 3):
        cluster.restart(node)
    assert cluster.settings(2).offsets_retention_ms == 5_000
    assert cluster.settings(1).offsets_retention_ms == 604_800_000
    for process in cluster.cluster.processes.values():
        assert process.image is not None
        assert process.image.node_settings.records == {2: {"offsets_retention_ms": "5000"}}


def test_parts_of_the_node_get_the_values() -> None:
    cluster = Configured(3, authorization=AuthorizationOptions(enabled=True, super_users=frozenset((ANONYMOUS,))))
    cluster.alter(
        1,
        replica_copy_bytes_per_second="2000000",
        compaction_bytes_per_second="300000",
        leader_imbalance_check_interval_seconds="7",
        scrub_bytes_per_second="0",
        offsets_retention_ms="5000",
        audit_log="on",
        **{"log_level.server.groups": "debug"},
    )
    node: Any = cluster.cluster.processes[1].node
    services = node._member.services
    assert node._pace._node_rate == 2_000_000
    assert node._scrub._options.bytes_per_second == 0
    assert node._log.levels.level_of("server.groups") == "debug"
    assert services.logs.compactions._limits.compaction_bytes_per_second == 300_000
    assert services.logs.produce._limits.request_bytes == 32 << 20
    assert services.replicas.elections._balance._options.check_interval_us == 7_000_000
    assert services.groups._shards._leadership_options.offsets_retention_ms == 5_000
    assert services.access.audit._enabled


def test_a_node_describes_its_records() -> None:
    cluster = Configured(4)
    cluster.alter(None, scrub_bytes_per_second="0")
    cluster.alter(3, log_level="error")
    answer = cluster.send("admin", DescribeNodeSettingsRequest(timeout_ms=5_000, linearizable=True), node=3)
    assert isinstance(answer, DescribeNodeSettingsResponse)
    assert answer.node_id == 3
    assert {each.name: each.values[0].value for each in answer.settings} == {
        "log_level": "error", "scrub_bytes_per_second": "0"
    }  # fmt: skip
    assert [(each.HasField("node_id"), each.node_id, dict(each.values)) for each in answer.records] == [
        (False, 0, {"scrub_bytes_per_second": "0"}), (True, 3, {"log_level": "error"})
    ]  # fmt: skip


def test_clients_without_permission_change_nothing() -> None:
    authorization = AuthorizationOptions(enabled=True, super_users=frozenset((ANONYMOUS,)))
    cluster = Configured(5, authorization=authorization, clients={"mallory": "User:mallory"})
    answer = cluster.alter(1, client="mallory", audit_log="off")
    assert answer.error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert cluster.settings(1).audited is False
    image = cluster.cluster.processes[1].image
    assert image is not None and not image.node_settings.records
    described = cluster.send("mallory", DescribeNodeSettingsRequest())
    assert described.error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED and not described.settings


def test_a_scrub_can_be_switched_on_again() -> None:
    cluster = Configured(6, scrub=ScrubOptions(bytes_per_second=0, interval_ms=1_000))
    node: Any = cluster.cluster.processes[1].node
    assert node._scrub.next_deadline is None
    cluster.alter(1, scrub_bytes_per_second="1000000")
    cluster.until(lambda: node._scrub.last_finished_ms > 0, 30)
    read = node._scrub.read_bytes
    cluster.until(lambda: node._scrub.read_bytes > read, 30)
    cluster.alter(1, scrub_bytes_per_second="0")
    read = node._scrub.read_bytes
    cluster.run(30)
    assert node._scrub.read_bytes == read and node._scrub.next_deadline is None


def test_a_restart_repeats_no_changes() -> None:
    """Changes that were undone before must not return for a moment, nor fill the audit log again."""
    cluster = Configured(7)
    for value in ("on", "off", "on", "off"):
        cluster.alter(1, audit_log=value)
    cluster.alter(1, max_request_bytes="2048")
    changes: list[DynamicValues] = []
    lines: list[str] = []

    def look(process: Any, events: object, effects: Any) -> None:
        if process.node_id == 1:
            changes.extend([effects.settings] if effects.settings is not None else [])
            lines.extend(each.event for each in effects.audit)

    cluster.cluster.narrator = SimpleNamespace(stepped=look)  # type: ignore[assignment]  # all that is called
    cluster.restart(1)
    assert [each.request_bytes for each in changes] == [2_048]
    assert "auditing" not in lines
