"""The controller's decisions on the future of a node: drained, kept, removed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from quorumlog.raft.types import NO_NODE
from quorumlog.server.config.dynamic_settings import problem_with_value
from quorumlog.server.controller.decision import ControllerDecision, answer_now, refusal
from quorumlog.server.controller.disk_replacement import DiskReplacement, LossPlan
from quorumlog.server.controller.feature_levels import refuse_below, refuse_below_second, refuse_throttle
from quorumlog.server.controller.node_drain import Move, NodeDrain
from quorumlog.server.metadata.departures import still_named
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.node_settings import check_node_settings_size
from quorumlog.server.metadata.records import THIRD_FEATURE_LEVEL, ApplyResult, BrokerRecord
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import admin_pb2, errors_pb2, metadata_log_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.node_settings_pb2 import AlterNodeSettingsRequest, AlterNodeSettingsResponse

#: Maximum number of moves in an answer. A plan of all partitions of a large cluster would not fit into a message
#: between nodes.
MAX_NAMED_MOVES = 1_000


class NodeDecisions:
    """Decides on requests about nodes.

    Arguments:
        image: the controller's image, read only here.
        voters: returns the current voters of the metadata group, of both halves while they are being replaced.
        evacuation: plans the drain of a node.
        is_changing: returns True if the log may have a change of the voters that is not effective yet.
        sizes: sizes of the logs of partitions in bytes, by group, as far as they are known.
        disks: plans the replacement of a lost disk.
    """

    def __init__(
        self,
        image: MetadataImage,
        voters: Callable[[], tuple[int, ...]],
        evacuation: NodeDrain,
        is_changing: Callable[[], bool],
        sizes: Mapping[int, int],
        disks: DiskReplacement,
    ) -> None:
        self._image = image
        self._voters = voters
        self._evacuation = evacuation
        self._is_changing = is_changing
        self._sizes = sizes
        self._disks = disks

    def decide(self, wall_ms: int, number: int, request: admin_pb2.AlterNodeRequest) -> ControllerDecision:
        """Decides on one request; a request with `validate_only`, or one without effect, changes nothing."""
        problem = refuse_below_second(self._image, "nodes are drained and removed")
        if problem is not None:
            return refusal(number, problem)
        broker = self._image.brokers.get(request.node_id)
        if broker is None:
            return refusal(number, self._unknown(request.node_id))
        match request.action:
            case admin_pb2.NODE_ACTION_DRAIN:
                return self._drain(wall_ms, number, broker, request)
            case admin_pb2.NODE_ACTION_UNDRAIN:
                return self._undrain(wall_ms, number, broker, request)
            case admin_pb2.NODE_ACTION_REMOVE:
                return self._remove(wall_ms, number, broker, request)
            case admin_pb2.NODE_ACTION_REPLACE_DISK:
                return self._replace_disk(wall_ms, number, broker, request)
            case _:
                return refusal(
                    number,
                    error(ErrorCode.INVALID_REQUEST, f"unknown node action {request.action}: use one of NodeAction"),
                )

    def _unknown(self, node_id: int) -> errors_pb2.Error:
        nodes = ", ".join(map(str, sorted(self._image.brokers)))
        return error(ErrorCode.INVALID_REQUEST, f"node {node_id} is not registered; the nodes are {nodes}")

    # -- drain --------------------------------------------------------------------------------------------------------

    def _drain(
        self, wall_ms: int, number: int, broker: BrokerRecord, request: admin_pb2.AlterNodeRequest
    ) -> ControllerDecision:
        if request.HasField("successor") and request.successor < 0:
            return refusal(number, self._unknown(request.successor))
        successor = request.successor if request.HasField("successor") else NO_NODE
        refused = self._check_together(broker, request)
        if refused is not None:
            return refusal(number, refused)
        leaving = [broker, *(self._image.brokers[each] for each in sorted({*request.together} - {broker.node_id}))]
        nodes = frozenset(each.node_id for each in leaving)
        # A partition with replicas on several of them is moved once.
        by_group = {
            move.partition.group: move
            for each in leaving
            for move in self._evacuation.plan(each.node_id, successor, nodes)
        }
        moves = list(by_group.values())
        voters = self._evacuation.quorum_after(broker.node_id, successor)
        problem = self._check_successor(broker, successor) or _check_moves(sorted(nodes), moves)
        problem = problem or (self._evacuation.refuse_quorum(voters) if voters else None)
        problem = problem or refuse_throttle(self._image, request.bytes_per_second)
        if problem is not None:
            return refusal(number, problem)
        response = admin_pb2.AlterNodeResponse(
            all_moves=len(moves),
            voters=voters,
            all_bytes=sum(self._sizes.get(move.partition.group, 0) for move in moves),
        )
        for move in moves[:MAX_NAMED_MOVES]:
            partition = move.partition
            response.moves.add(
                topic=partition.topic.name,
                partition=partition.number,
                replicas=partition.wanted_voters,
                wanted=move.wanted if move.witness == NO_NODE else (*move.wanted, move.witness),
                size_bytes=self._sizes.get(partition.group, 0),
            )
        wish = (True, successor, request.bytes_per_second)
        new = [each for each in leaving if (each.leaving, each.successor, each.throttle) != wish]
        if request.validate_only or not new:
            return answer_now(number, peer_pb2.ControllerResponse(alter_node=response))
        commands = [_want(wall_ms, each, leaving=True) for each in new]
        for command in commands:
            command.want_node.bytes_per_second = request.bytes_per_second
            if successor != NO_NODE:
                command.want_node.successor = successor
        return ControllerDecision(number, commands=tuple(commands), merge=lambda results: _merged(results, response))

    def _check_together(self, broker: BrokerRecord, request: admin_pb2.AlterNodeRequest) -> errors_pb2.Error | None:
        """Returns why nodes cannot be drained, or not together; None if they can."""
        others = set(request.together) - {broker.node_id}
        unknown = sorted(others - self._image.brokers.keys())
        if unknown:
            return self._unknown(unknown[0])
        if others and request.HasField("successor"):
            return error(
                ErrorCode.INVALID_REQUEST,
                "nodes that are drained together cannot have one successor: drain them without, or one by one",
            )
        for node in sorted({*others, broker.node_id}):
            record = self._image.brokers[node]
            if record.is_lost and not record.is_vacant:
                return error(ErrorCode.INVALID_REQUEST, still_named(node))
        return None

    def _check_successor(self, broker: BrokerRecord, successor: int) -> errors_pb2.Error | None:
        heir = self._image.brokers.get(successor)
        if successor == NO_NODE:
            return None
        if heir is None:
            return self._unknown(successor)
        if heir.node_id == broker.node_id:
            problem = f"node {successor} cannot take over from itself: for a lost disk, request REPLACE_DISK"
        elif heir.fenced:
            problem = f"node {successor} is down and could take over nothing: start it first"
        elif heir.leaving:
            problem = f"node {successor} is being drained itself: choose another, or undrain it first"
        else:
            return None
        return error(ErrorCode.INVALID_REQUEST, problem)

    # -- undrain ------------------------------------------------------------------------------------------------------

    def _undrain(
        self, wall_ms: int, number: int, broker: BrokerRecord, request: admin_pb2.AlterNodeRequest
    ) -> ControllerDecision:
        response = admin_pb2.AlterNodeResponse()
        if request.validate_only:
            return answer_now(number, peer_pb2.ControllerResponse(alter_node=response))
        if broker.is_lost and not broker.leaving:
            # The disk was found after all.
            command = _disk(wall_ms, broker, metadata_log_pb2.DISK_STATE_UNSPECIFIED)
            return ControllerDecision(number, commands=(command,), merge=lambda results: _merged(results, response))
        partitions = self._image.partitions
        away = [
            group
            for group in self._image.moves.groups()
            if broker.node_id in partitions[group].voters and broker.node_id not in partitions[group].wanted_voters
        ]
        commands = []
        for group in away:
            body = metadata_log_pb2.ReassignReplicas(group=group)
            commands.append(metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, reassign_replicas=body))
        voters = self._evacuation.quorum_restored(broker)
        if voters:
            wanted = metadata_log_pb2.WantQuorum(voters=voters, wishes=self._image.quorum.wishes)
            commands.append(metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, want_quorum=wanted))
        # It comes last, so that a repetition finds what is left to cancel. And always: the log may have a drain that is
        # not applied yet.
        commands.append(_want(wall_ms, broker, leaving=False))
        return ControllerDecision(number, commands=tuple(commands), merge=lambda results: _merged(results, response))

    # -- removal ------------------------------------------------------------------------------------------------------

    def _remove(
        self, wall_ms: int, number: int, broker: BrokerRecord, request: admin_pb2.AlterNodeRequest
    ) -> ControllerDecision:
        problem = self._image.departures.refuse_removal(broker)
        if problem is None and broker.node_id in {*self._voters(), *self._image.quorum.voters}:
            node = broker.node_id
            message = (
                f"node {node} votes in the metadata quorum: replace its vote first (quorumlog quorum replace {node}"
                " --with NODE)"
            )
            problem = error(ErrorCode.INVALID_REQUEST, message)
        if problem is None and self._is_changing():
            # The node may be about to get a vote, or to get it back.
            message = "the metadata quorum is being changed: wait until that is done, then repeat the removal"
            problem = error(ErrorCode.SERVER_BUSY, message)
        if problem is not None:
            return refusal(number, problem)
        response = admin_pb2.AlterNodeResponse()
        if request.validate_only:
            return answer_now(number, peer_pb2.ControllerResponse(alter_node=response))
        body = metadata_log_pb2.RemoveNode(node_id=broker.node_id, directory_id=broker.registration.directory_id)
        command = metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, remove_node=body)
        return ControllerDecision(number, commands=(command,), merge=lambda results: _merged(results, response))

    # -- disk replacement ---------------------------------------------------------------------------------------------

    def _replace_disk(
        self, wall_ms: int, number: int, broker: BrokerRecord, request: admin_pb2.AlterNodeRequest
    ) -> ControllerDecision:
        plan = self._disks.plan(wall_ms, broker.node_id)
        # A repetition, because an answer was lost, must not give up the next disk.
        is_done = self._image.lost_disks.is_given_up(broker.node_id, request.directory_id)
        problem = None if is_done else self._refuse_loss(broker, plan, request.directory_id)
        problem = problem or refuse_throttle(self._image, request.bytes_per_second)
        if problem is not None:
            return refusal(number, problem)
        response = admin_pb2.AlterNodeResponse(all_moves=len(plan.replicas), voters=plan.voters)
        for partition in plan.replicas[:MAX_NAMED_MOVES]:
            response.moves.add(
                topic=partition.topic.name,
                partition=partition.number,
                replicas=[node for node in partition.intended if node != broker.node_id],
                wanted=partition.intended,
            )
        if request.validate_only or (is_done and not self._throttled_anew(broker, request)):
            return answer_now(number, peer_pb2.ControllerResponse(alter_node=response))
        command = _disk(wall_ms, broker, metadata_log_pb2.DISK_STATE_LOST, voted=broker.node_id in plan.voters)
        command.replace_disk.bytes_per_second = request.bytes_per_second
        self._disks.grant(wall_ms, broker.node_id)
        return ControllerDecision(number, commands=(command,), merge=lambda results: _merged(results, response))

    def _throttled_anew(self, broker: BrokerRecord, request: admin_pb2.AlterNodeRequest) -> bool:
        """True if the same disk is given up again, with another limit. A node that reports its own loss repeatedly
        sends none: it must not remove the limit that an operator has set."""
        if not broker.is_lost or not request.HasField("bytes_per_second"):
            return False
        return self._image.lost_disks.by_node[broker.node_id].throttle != request.bytes_per_second

    def _refuse_loss(self, broker: BrokerRecord, plan: LossPlan, directory_id: str) -> errors_pb2.Error | None:
        node, known = broker.node_id, broker.registration.directory_id
        if directory_id != known:
            problem = (
                f"node {node} has data directory {known}, not {directory_id or '(none named)'}: check the directory id"
            )
            return error(ErrorCode.INVALID_REQUEST, problem)
        return self._image.lost_disks.refuse_loss(broker) or _check_loss(broker, plan)


def _check_loss(broker: BrokerRecord, plan: LossPlan) -> errors_pb2.Error | None:
    node = broker.node_id
    if not plan.has_voters:
        problem = (
            f"without the disk of node {node} no majority of the metadata quorum would be left: restart another"
            " voter with its data first"
        )
    elif plan.with_witness:
        topics = sorted({each.topic.name for each in plan.with_witness})
        shown = ", ".join(topics[:5]) + (", …" if len(topics) > 5 else "")
        problem = (
            f"{len(plan.with_witness)} partitions on node {node} have a witness, and cannot continue with the rest of"
            f" them alone ({shown}): start a node with another id, and run nodes replace {node} --with that one"
        )
    elif plan.without_majority:
        topics = sorted({each.topic.name for each in plan.without_majority})
        shown = ", ".join(topics[:5]) + (", …" if len(topics) > 5 else "")
        problem = (
            f"{len(plan.without_majority)} partitions would be left without a majority of their replicas, and their"
            f" records are lost with the disk of node {node}: delete their topics first ({shown}), or restart"
            " another node that has them"
        )
    else:
        return None
    return error(ErrorCode.INVALID_REQUEST, problem)


def _disk(
    wall_ms: int, broker: BrokerRecord, state: metadata_log_pb2.DiskState.ValueType, *, voted: bool = False
) -> metadata_log_pb2.MetadataCommand:
    body = metadata_log_pb2.ReplaceDisk(
        node_id=broker.node_id, directory_id=broker.registration.directory_id, state=state, voted=voted
    )
    return metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, replace_disk=body)


def _check_moves(nodes: Sequence[int], moves: Sequence[Move]) -> errors_pb2.Error | None:
    stuck = [move.partition for move in moves if not move.wanted]
    if not stuck:
        return None
    first = stuck[0]
    where = f"node {nodes[0]}" if len(nodes) == 1 else f"nodes {', '.join(map(str, nodes))}"
    problem = (
        f"{len(stuck)} of {len(moves)} replicas on {where} have nowhere to go, for example that of"
        f" {first.name} on nodes {','.join(map(str, first.wanted))}: add a node on another machine, or start one"
        " that is down"
    )
    return error(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def _want(wall_ms: int, broker: BrokerRecord, *, leaving: bool) -> metadata_log_pb2.MetadataCommand:
    body = metadata_log_pb2.WantNode(
        node_id=broker.node_id, directory_id=broker.registration.directory_id, leaving=leaving
    )
    return metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, want_node=body)


def _merged(results: Sequence[ApplyResult], response: admin_pb2.AlterNodeResponse) -> peer_pb2.ControllerResponse:
    """Returns the answer as planned, unless a command about a node was refused when it was applied."""
    refused = (each.response for each in results if each.response.alter_node.HasField("error"))
    return next(refused, peer_pb2.ControllerResponse(alter_node=response))


def decide_on_node_settings(
    image: MetadataImage, wall_ms: int, number: int, request: AlterNodeSettingsRequest
) -> ControllerDecision:
    """Decides on a request to change settings of nodes.

    Arguments:
        image: the controller's image.
        wall_ms: milliseconds since the epoch.
        number: id of the request.
    """
    refused = (
        refuse_below(image, THIRD_FEATURE_LEVEL, "settings of nodes are stored")
        or check_node_settings_size(request)
        or check_dynamic(request)
        or image.node_settings.check(request.alterations, image.brokers)
    )
    if refused is not None or request.validate_only:
        response = AlterNodeSettingsResponse(error=refused)
        return answer_now(number, peer_pb2.ControllerResponse(alter_node_settings=response))
    body = metadata_log_pb2.NodeSettingsAltered(alterations=request.alterations)
    command = metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, node_settings_altered=body)
    return ControllerDecision(number, commands=(command,))


def check_dynamic(request: AlterNodeSettingsRequest) -> errors_pb2.Error | None:
    """Returns the error for a setting that cannot be changed at run time, or for a value that is not valid, or None.

    Records with any key may be removed: a later version may have written them.
    """
    for alteration in request.alterations:
        for op in alteration.ops:
            problem = problem_with_value(op.key, op.value) if op.HasField("value") else None
            if problem is not None:
                return error(ErrorCode.INVALID_CONFIG, problem)
    return None
