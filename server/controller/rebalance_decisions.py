"""The controller's decisions on requests for balance: a plan, and its moves."""

from __future__ import annotations

from collections.abc import Mapping

from quorumlog.server.controller.decision import ControllerDecision, answer_now, refusal
from quorumlog.server.controller.feature_levels import refuse_below_second, refuse_throttle
from quorumlog.server.controller.rebalancing import MOST_CHANGES, Rebalancing
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import PartitionRecord
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import admin_pb2, errors_pb2, metadata_log_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode


class RebalanceDecisions:
    """Decides on requests for balance.

    Arguments:
        image: the controller's image, read only here.
        sizes: sizes of the logs of partitions in bytes, by group, as leaders report them.
    """

    def __init__(self, image: MetadataImage, sizes: Mapping[int, int]) -> None:
        self._image = image
        self._sizes = sizes

    def decide(self, wall_ms: int, number: int, request: admin_pb2.RebalancePartitionsRequest) -> ControllerDecision:
        """Decides on one request; a request with `validate_only`, or one without effect, changes nothing."""
        problem = refuse_below_second(self._image, "partitions are rebalanced")
        problem = problem or refuse_throttle(self._image, request.bytes_per_second) or self._refuse()
        if problem is not None:
            return refusal(number, problem)
        plan = Rebalancing(self._image, self._sizes, min(request.most_moves or MOST_CHANGES, MOST_CHANGES))
        moves = list(plan.moves())
        response = admin_pb2.RebalancePartitionsResponse(all_bytes=plan.copied_bytes())
        for partition, wanted in moves:
            response.moves.add(
                topic=partition.topic.name,
                partition=partition.number,
                replicas=partition.wanted,
                wanted=wanted,
                size_bytes=self._sizes.get(partition.group, 0),
            )
        for node, before in plan.before.items():
            after = plan.after[node]
            response.loads.add(
                node_id=node,
                replicas=before.replicas,
                leaders=before.leaders,
                size_bytes=before.size_bytes,
                replicas_after=after.replicas,
                leaders_after=after.leaders,
                size_bytes_after=max(0, after.size_bytes),
            )
        answer = peer_pb2.ControllerResponse(rebalance_partitions=response)
        if request.validate_only or not moves:
            return answer_now(number, answer)
        commands = tuple(_command(wall_ms, partition, wanted, request.bytes_per_second) for partition, wanted in moves)
        # A partition for which another move was decided in the meantime follows that one.
        return ControllerDecision(number, commands=commands, merge=lambda _: answer)

    def _refuse(self) -> errors_pb2.Error | None:
        moving, departures, index = self._image.moves.groups(), self._image.departures, self._image.replica_index
        emptied = [broker.node_id for broker in departures.leaving() if index.on(broker.node_id)]
        if emptied:
            problem = f"node {emptied[0]} is being drained: wait until it is empty, or undrain it"
        elif moving:
            problem = (
                f"{len(moving)} partitions are being moved, for example {self._image.partitions[moving[0]].name}: wait"
                " until the moves are complete (quorumlog partitions list-reassignments), or cancel them"
            )
        else:
            return None
        return error(ErrorCode.REASSIGNMENT_IN_PROGRESS, problem)


def _command(
    wall_ms: int, partition: PartitionRecord, wanted: tuple[int, ...], bytes_per_second: int
) -> metadata_log_pb2.MetadataCommand:
    body = metadata_log_pb2.ReassignReplicas(
        group=partition.group, replicas=wanted, wishes=partition.wishes, bytes_per_second=bytes_per_second
    )
    return metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, reassign_replicas=body)
