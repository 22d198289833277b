"""Settings of nodes in the metadata: validation, limits, records and snapshots."""

from __future__ import annotations

import pytest

from quorumlog.server.controller.node_decisions import decide_on_node_settings
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.node_settings import MAX_ENTRIES, MAX_KEY_LENGTH, MAX_VALUE_LENGTH
from quorumlog.server.metadata.records import SECOND_FEATURE_LEVEL, THIRD_FEATURE_LEVEL
from quorumlog.v1 import metadata_log_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.node_settings_pb2 import (
    AlterNodeSettingsRequest,
    AlterNodeSettingsResponse,
    NodeSettingOp,
    NodeSettingsAlteration,
)

RETENTION, SCRUB = "offsets_retention_ms", "scrub_bytes_per_second"


def settings(node_id: int | None = None, **values: str | None) -> NodeSettingsAlteration:
    ops = [NodeSettingOp(key=key, value=value) for key, value in values.items()]
    return NodeSettingsAlteration(node_id=node_id, ops=ops)


class Controller:
    """A controller's decisions, applied at once to a cluster of the nodes 1 and 2."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        for node in (1, 2):
            registration = peer_pb2.RegisterBroker(
                node_id=node, directory_id=f"d{node}", host="h", port=1, feature_level=THIRD_FEATURE_LEVEL
            )
            self.apply(metadata_log_pb2.MetadataCommand(register_broker=registration))
        self.image.feature_level = THIRD_FEATURE_LEVEL

    def apply(self, command: metadata_log_pb2.MetadataCommand) -> peer_pb2.ControllerResponse:
        return self.image.apply(self.image.applied_index + 1, command).response

    def alter(self, *alterations: NodeSettingsAlteration, validate_only: bool = False) -> AlterNodeSettingsResponse:
        request = AlterNodeSettingsRequest(alterations=alterations, validate_only=validate_only)
        decision = decide_on_node_settings(self.image, 1_000, 7, request)
        if decision.response is not None:
            return decision.response.alter_node_settings
        return self.apply(decision.commands[0]).alter_node_settings

    @property
    def records(self) -> dict[int | None, dict[str, str]]:
        return self.image.node_settings.records


@pytest.fixture
def controller() -> Controller:
    return Controller()


@pytest.mark.parametrize(
    ("asked", "code", "said"),
    [
        ((), ErrorCode.INVALID_REQUEST, "0 settings in the request: give 1 to 200"),
        ((settings(1),), ErrorCode.INVALID_REQUEST, "0 settings in the request"),
        ((settings(1), settings(2, **{SCRUB: "0"})), ErrorCode.INVALID_REQUEST, "no change is requested for node 1"),
        (
            (NodeSettingsAlteration(ops=[NodeSettingOp(key=f"k{i}") for i in range(201)]),),
            ErrorCode.INVALID_REQUEST,
            "201 settings in the request",
        ),
        (
            (settings(1, **{SCRUB: "0"}), settings(1, **{SCRUB: "1"})),
            ErrorCode.INVALID_REQUEST,
            "a node is in the request twice",
        ),
        (
            (NodeSettingsAlteration(ops=2 * [NodeSettingOp(key=SCRUB)]),),
            ErrorCode.INVALID_REQUEST,
            "a setting of all nodes is given twice",
        ),
        ((settings(1, **{"x" * 129: "1"}),), ErrorCode.INVALID_REQUEST, f"1 to {MAX_KEY_LENGTH} characters"),
        ((settings(1, **{"": "1"}),), ErrorCode.INVALID_REQUEST, f"1 to {MAX_KEY_LENGTH} characters"),
        ((settings(1, **{SCRUB: "1" * 257}),), ErrorCode.INVALID_REQUEST, f"give at most {MAX_VALUE_LENGTH}"),
        ((settings(3, **{SCRUB: "1"}),), ErrorCode.INVALID_REQUEST, "node 3 is not registered"),
        ((settings(-1, **{SCRUB: "1"}),), ErrorCode.INVALID_REQUEST, "node -1 is not registered"),
        ((settings(1, scrub_bytes="1"),), ErrorCode.INVALID_CONFIG, "did you mean 'scrub_bytes_per_second'"),
        ((settings(1, max_connections="5"),), ErrorCode.INVALID_CONFIG, "set it in the node's file and restart it"),
        (
            (settings(1, **{RETENTION: "soon"}),),
            ErrorCode.INVALID_CONFIG,
            "wrong value 'soon' for offsets_retention_ms",
        ),
    ],
)
def test_wrong_changes_are_refused(
    controller: Controller, asked: tuple[NodeSettingsAlteration, ...], code: int, said: str
) -> None:
    answer = controller.alter(*asked)
    assert answer.error.code == code and said in answer.error.message, answer
    assert "\n" not in answer.error.message and not controller.records


def test_values_are_set_and_removed(controller: Controller) -> None:
    """Records of a node and of all nodes are apart; keys that are not named keep their values."""
    assert controller.alter(settings(**{SCRUB: "0"}), settings(2, **{SCRUB: "1", RETENTION: "5000"})).altered == 2
    assert controller.records == {None: {SCRUB: "0"}, 2: {SCRUB: "1", RETENTION: "5000"}}
    first = controller.image.node_settings.index
    assert controller.alter(settings(2, **{SCRUB: "1"})).altered == 0
    assert controller.image.node_settings.index == first == 3
    assert controller.alter(settings(2, **{SCRUB: None})).altered == 1
    assert controller.records == {None: {SCRUB: "0"}, 2: {RETENTION: "5000"}}
    controller.alter(settings(2, **{RETENTION: None}), settings(**{SCRUB: None}))
    assert controller.records == {}


def test_validation_changes_nothing(controller: Controller) -> None:
    assert not controller.alter(settings(1, **{SCRUB: "0"}), validate_only=True).HasField("error")
    assert controller.records == {}


def test_a_record_has_a_limit(controller: Controller) -> None:
    """The limit holds when a command is applied: only the log shows which of two changes came first."""
    full = NodeSettingsAlteration(ops=[NodeSettingOp(key=f"k{i}", value="1") for i in range(MAX_ENTRIES)])
    body = metadata_log_pb2.NodeSettingsAltered(alterations=[full])
    controller.apply(metadata_log_pb2.MetadataCommand(node_settings_altered=body))
    assert len(controller.records[None]) == MAX_ENTRIES
    answer = controller.alter(settings(**{SCRUB: "0"}))
    assert answer.error.code == ErrorCode.POLICY_VIOLATION and "delete unused ones" in answer.error.message
    more = metadata_log_pb2.NodeSettingsAltered(alterations=[settings(1, k="1"), settings(**{SCRUB: "0"})])
    answer = controller.apply(metadata_log_pb2.MetadataCommand(node_settings_altered=more)).alter_node_settings
    assert answer.error.code == ErrorCode.POLICY_VIOLATION
    assert len(controller.records) == 1 and SCRUB not in controller.records[None], "all or none"
    assert not controller.alter(settings(k1=None)).HasField("error")
    assert not controller.alter(settings(**{SCRUB: "0"})).HasField("error")


def test_unknown_keys_can_be_deleted(controller: Controller) -> None:
    """A later version may have written them."""
    body = metadata_log_pb2.NodeSettingsAltered(alterations=[settings(1, of_a_later_version="1")])
    controller.apply(metadata_log_pb2.MetadataCommand(node_settings_altered=body))
    assert controller.alter(settings(1, of_a_later_version=None)).altered == 1


def test_settings_wait_for_their_level(controller: Controller) -> None:
    """A node of the former level would stop at the command."""
    controller.image.feature_level = SECOND_FEATURE_LEVEL
    answer = controller.alter(settings(1, **{SCRUB: "0"}))
    assert answer.error.code in (ErrorCode.SERVER_BUSY, ErrorCode.UNSUPPORTED_VERSION), answer
    assert not controller.records


def test_a_removed_node_loses_its_record(controller: Controller) -> None:
    """Its id is never used again, so no other change would delete the record."""
    controller.alter(settings(2, **{SCRUB: "1"}), settings(**{SCRUB: "0"}))
    controller.apply(
        metadata_log_pb2.MetadataCommand(remove_node=metadata_log_pb2.RemoveNode(node_id=2, directory_id="d2"))
    )
    assert 2 not in controller.image.brokers
    assert controller.records == {None: {SCRUB: "0"}}
    assert controller.image.node_settings.index == controller.image.applied_index


def test_snapshots_keep_records(controller: Controller) -> None:
    controller.alter(settings(2, **{SCRUB: "1"}), settings(**{SCRUB: "0", "log_level.server.groups": "debug"}))
    data = controller.image.to_snapshot()
    restored = MetadataImage.from_snapshot(data)
    assert restored.node_settings.records == controller.records
    assert restored.node_settings.index == controller.image.node_settings.index
    assert restored.to_snapshot() == data
