"""Settings of nodes: changes at run time, and descriptions with the source of each value."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from quorumlog.sdk.arguments import checked_node, is_text
from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.errors import IllegalArgumentError, InvalidRequestError, error_from_proto
from quorumlog.sdk.types import NodeSetting, NodeSettings
from quorumlog.v1 import data_plane_pb2, node_settings_pb2
from quorumlog.wire.request_limits import MAX_NODE_SETTINGS_CHANGED

_SOURCE_PREFIX = "NODE_SETTING_SOURCE_"


class SettingsAdmin(ABC):
    """The part of :class:`AsyncAdmin` for settings of nodes.

    Attributes:
        _limit_s: time limit of one call, in seconds.
    """

    _cluster: Cluster
    _limit_s: float

    @abstractmethod
    def _check_usable(self) -> None:
        """Raises unless the client is open."""

    async def alter_node_settings(
        self, settings: Mapping[str, str | None], *, node_id: int | None = None, validate_only: bool = False
    ) -> int:
        """Sets and removes settings of nodes at run time; see :meth:`quorumlog.sdk.Admin.alter_node_settings`."""
        self._check_usable()
        request = node_settings_pb2.AlterNodeSettingsRequest(
            timeout_ms=int(self._limit_s * 1000), validate_only=bool(validate_only)
        )
        request.alterations.add(node_id=None if node_id is None else checked_node(node_id), ops=_checked_ops(settings))

        async def attempt() -> node_settings_pb2.AlterNodeSettingsResponse:
            return await self._cluster.ask_any(lambda node, limit: node.admin.AlterNodeSettings(request, timeout=limit))

        answer = await self._cluster.retrying(attempt, self._limit_s, "alter_node_settings")
        return answer.altered

    async def describe_node_settings(self, node_id: int) -> NodeSettings:
        """Describes the settings of a node; see :meth:`quorumlog.sdk.Admin.describe_node_settings`."""
        self._check_usable()
        checked_node(node_id)
        request = node_settings_pb2.DescribeNodeSettingsRequest(timeout_ms=int(self._limit_s * 1000), linearizable=True)

        async def look() -> data_plane_pb2.MetadataResponse:
            return await self._cluster.ask_metadata([], all_topics=False, linearizable=False)

        async def attempt() -> node_settings_pb2.DescribeNodeSettingsResponse:
            node = self._cluster.node(node_id)
            if node is None:
                known = ", ".join(map(str, sorted(self._cluster.metadata.addresses)))
                raise InvalidRequestError(f"node {node_id} is not registered: the nodes are {known}")
            reply = await node.call(node.admin.DescribeNodeSettings(request, timeout=self._limit_s))
            if reply.HasField("error"):
                raise error_from_proto(reply.error)
            return reply

        await self._cluster.retrying(look, self._limit_s, "the metadata request")
        answer = await self._cluster.retrying(attempt, self._limit_s, "describe_node_settings")
        return NodeSettings(
            answer.node_id,
            tuple(_setting(each) for each in answer.settings),
            {
                each.node_id if each.HasField("node_id") else None: dict(sorted(each.values.items()))
                for each in answer.records
            },
        )


def _setting(shown: node_settings_pb2.NodeSetting) -> NodeSetting:
    values = tuple((each.value, _source(each.source)) for each in shown.values)
    return NodeSetting(shown.name, values, shown.is_dynamic, shown.documentation)


def _source(source: node_settings_pb2.NodeSettingSource.ValueType) -> str:
    known = node_settings_pb2.NodeSettingSource.DESCRIPTOR.values_by_number.get(source)
    return "unknown" if known is None else known.name.removeprefix(_SOURCE_PREFIX).lower().replace("_", " ")


# -- arguments --------------------------------------------------------------------------------------------------------


def _checked_ops(settings: Mapping[str, str | None]) -> list[node_settings_pb2.NodeSettingOp]:
    if not isinstance(settings, Mapping):
        raise IllegalArgumentError(f"settings is {settings!r:.80}: map names to values")
    if not 1 <= len(settings) <= MAX_NODE_SETTINGS_CHANGED:
        raise IllegalArgumentError(f"settings has {len(settings)} names: give 1 to {MAX_NODE_SETTINGS_CHANGED}")
    for key, value in settings.items():
        if not isinstance(key, str) or not is_text(key):
            raise IllegalArgumentError(f"setting {key!r:.80} is not text, such as log_level")
        if value is not None and (not isinstance(value, str) or not is_text(value)):
            raise IllegalArgumentError(f"the value of {key:.80} is {value!r:.80}: give text, or None to remove it")
    return [node_settings_pb2.NodeSettingOp(key=key, value=value) for key, value in settings.items()]
