"""Settings of nodes on any node: changes are forwarded to the controller; a node describes its own settings."""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.config.dynamic_settings import report
from quorumlog.server.config.options import NodeOptions
from quorumlog.server.controller.node_decisions import check_dynamic
from quorumlog.server.metadata.controller_client import ControllerClient
from quorumlog.server.metadata.image import CurrentImage
from quorumlog.server.metadata.node_settings import check_node_settings_size
from quorumlog.server.requests.linearizable_reads import MetadataReads
from quorumlog.server.requests.metadata_changes import MetadataChangeRequests
from quorumlog.server.step.deadlines import wait_us
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import ServiceHooks, StepTime
from quorumlog.server.step.replies import Replies
from quorumlog.v1 import errors_pb2
from quorumlog.v1.node_settings_pb2 import (
    AlterNodeSettingsRequest,
    AlterNodeSettingsResponse,
    DescribeNodeSettingsRequest,
    DescribeNodeSettingsResponse,
    NodeSetting,
    NodeSettingSource,
    NodeSettingValue,
)

NodeSettingsRequest: TypeAlias = AlterNodeSettingsRequest | DescribeNodeSettingsRequest


class NodeSettingsRequests(MetadataChangeRequests):
    """Serves requests about settings of nodes.

    Arguments:
        options: the configured settings of this node.
    """

    def __init__(
        self,
        options: NodeOptions,
        current: CurrentImage,
        controller: ControllerClient,
        reads: MetadataReads,
        replies: Replies,
    ) -> None:
        super().__init__(current, controller, reads, options.limits.controller_requests, replies)
        self._options = options

    def register(self, hooks: ServiceHooks) -> None:
        super().register(hooks)
        hooks.serve(AlterNodeSettingsRequest, self.alter)
        hooks.serve(DescribeNodeSettingsRequest, self.describe)

    def alter(self, time: StepTime, asked: ClientRequest, request: AlterNodeSettingsRequest) -> None:
        """Validates changes of settings and forwards them to the controller."""
        refused = check_node_settings_size(request) or check_dynamic(request)
        if refused is not None:
            self._replies.reply(asked.request_id, failed_node_settings(request, refused))
            return
        deadline = time.now + wait_us(request.timeout_ms)
        self._forward(asked, deadline, request, partial(failed_node_settings, request))

    def describe(self, time: StepTime, asked: ClientRequest, request: DescribeNodeSettingsRequest) -> None:
        """Describes the settings of this node; on request by a linearizable read of the records."""

        def answer(problem: errors_pb2.Error | None) -> None:
            response = DescribeNodeSettingsResponse(error=problem)
            if problem is None:
                self._fill(response)
            self._replies.reply(asked.request_id, response)

        if request.linearizable:
            self._reads.read(time.now, request.timeout_ms, answer)
        else:
            answer(None)

    def _fill(self, response: DescribeNodeSettingsResponse) -> None:
        records, node_id = self._current.image.node_settings, self._options.node_id
        response.node_id = node_id
        response.records.extend(records.shown())
        for each in report(self._options, records.of(None), records.of(node_id)):
            values = [
                NodeSettingValue(value=value, source=NodeSettingSource.Value(f"NODE_SETTING_SOURCE_{source.name}"))
                for value, source in each.values
            ]
            shown = NodeSetting(
                name=each.name, values=values, is_dynamic=each.is_dynamic, documentation=each.documentation
            )
            response.settings.append(shown)


def failed_node_settings(request: NodeSettingsRequest, problem: errors_pb2.Error) -> ProtoMessage:
    """Returns the response to a request that failed."""
    if isinstance(request, AlterNodeSettingsRequest):
        return AlterNodeSettingsResponse(error=problem)
    return DescribeNodeSettingsResponse(error=problem)
