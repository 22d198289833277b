"""The operator who changes settings of nodes in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.metadata.image import MetadataImage
from quorumlog.simulator.world.clients import Port, Unanswered
from quorumlog.simulator.world.operators import WISH_TIMEOUT_MS, Wisher
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.v1.node_settings_pb2 import (
    AlterNodeSettingsRequest,
    AlterNodeSettingsResponse,
    NodeSettingOp,
    NodeSettingsAlteration,
)

#: By key: values that no other check of the simulation notices.
_VALUES: dict[str, tuple[str, ...]] = {
    "max_request_bytes": ("20000000", "60000000"),
    "replica_copy_bytes_per_second": ("0", "2000000", "100000000"),
    "compaction_bytes_per_second": ("200000", "50000000"),
    "leader_imbalance_check_interval_seconds": ("1", "60"),
    "scrub_bytes_per_second": ("0", "100000", "4194304"),
    "kafka_max_connections_per_ip": ("1", "500"),
    "offsets_retention_ms": ("604800000", "1209600000"),
    "log_level": ("debug", "info", "error"),
    "log_level.server.partition": ("debug", "warning"),
}
#: Settings that the operator leaves to each node and to all nodes at the end.
_LAST_OF_ALL = {"max_request_bytes": "60000000", "offsets_retention_ms": "1209600000"}
_LAST_OF_ONE = {"max_request_bytes": "20000000", "log_level.server.partition": "warning"}


class SettingsChanger(Wisher):
    """Sets and removes settings of single nodes and of all, at any node and time.

    At the end it removes them, and leaves others on one node and on all nodes.

    Attributes:
        last: the records that every node must have in the end, once the last change is acknowledged; None before.
    """

    def __init__(
        self, port: Port, scheduler: Scheduler, stopped: Callable[[], bool], interval_us: tuple[int, int]
    ) -> None:
        self.last: dict[int | None, dict[str, str]] | None = None
        super().__init__("settings changer", port, scheduler, stopped, interval_us)

    def wish(self) -> ProtoMessage:
        """Returns a request that changes or removes one setting."""
        rng = self.rng
        key = rng.choice(tuple(_VALUES))
        value = None if rng.random() < 0.3 else rng.choice(_VALUES[key])
        node = None if rng.random() < 0.3 else rng.choice(self.port.node_ids)
        return _request(_alteration(node, {key: value}))

    def end(self) -> None:
        """Removes all records but those that are to stay."""
        chosen = self.rng.choice(self.port.node_ids)
        last: dict[int | None, dict[str, str]] = {None: _LAST_OF_ALL, chosen: _LAST_OF_ONE}
        nothing = dict.fromkeys(_VALUES)
        changes = [_alteration(node, {**nothing, **last.get(node, {})}) for node in (None, *self.port.node_ids)]

        def acknowledged(answer: ProtoMessage | Unanswered) -> bool:
            if not isinstance(answer, AlterNodeSettingsResponse) or answer.HasField("error"):
                return False
            self.last = last
            return True

        self.insist(_request(*changes), acknowledged)

    def missing(self, images: Mapping[int, MetadataImage | None]) -> str:
        """Returns what nodes lack of the last change, in one line; empty if nothing."""
        if self.last is None:
            return "the last change of settings is not acknowledged"
        for node, image in images.items():
            if image is None or image.node_settings.records != self.last:
                found = None if image is None else image.node_settings.records
                return f"node {node} has the settings {found}, acknowledged are {self.last}"
        return ""


def _request(*alterations: NodeSettingsAlteration) -> AlterNodeSettingsRequest:
    return AlterNodeSettingsRequest(alterations=alterations, timeout_ms=WISH_TIMEOUT_MS)


def _alteration(node_id: int | None, values: Mapping[str, str | None]) -> NodeSettingsAlteration:
    ops = [NodeSettingOp(key=key, value=value) for key, value in values.items()]
    return NodeSettingsAlteration(node_id=node_id, ops=ops)
