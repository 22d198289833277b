"""The controller's decisions on wishes that other nodes vote in the metadata quorum."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from quorumlog.server.controller.decision import ControllerDecision, answer_now, refusal
from quorumlog.server.controller.feature_levels import refuse_below_second
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import admin_pb2, errors_pb2, metadata_log_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: Beyond this a quorum is slower with every voter, and survives more at once than ever happens.
MAX_VOTERS = 9


class QuorumDecisions:
    """Decides on requests that change the metadata quorum.

    Arguments:
        image: the controller's, read only here.
        voters: the voters of the metadata group at the moment.
    """

    def __init__(self, image: MetadataImage, voters: Callable[[], tuple[int, ...]]) -> None:
        self._image = image
        self._voters = voters

    def decide(self, wall_ms: int, number: int, request: admin_pb2.AlterQuorumRequest) -> ControllerDecision:
        """Decides on one request; nothing is changed by one that is to be validated only, or that changes nothing."""
        quorum = self._image.quorum
        before = quorum.voters or self._voters()
        added, removed = tuple(dict.fromkeys(request.add)), set(request.remove)
        problem = refuse_below_second(self._image, "the metadata quorum is changed")
        problem = problem or self._problem_with(added, removed, before)
        if problem is not None:
            return refusal(number, problem)
        wanted = sorted({*before, *added} - removed)
        problem = refuse_voters(self._image, wanted)
        if problem is not None:
            return refusal(number, problem)
        if request.validate_only or wanted == sorted(before):
            response = admin_pb2.AlterQuorumResponse(voters=wanted)
            return answer_now(number, peer_pb2.ControllerResponse(alter_quorum=response))
        body = metadata_log_pb2.WantQuorum(voters=wanted, wishes=quorum.wishes)
        command = metadata_log_pb2.MetadataCommand(timestamp_ms=wall_ms, want_quorum=body)
        return ControllerDecision(number, commands=(command,))

    def _problem_with(
        self, added: tuple[int, ...], removed: set[int], before: tuple[int, ...]
    ) -> errors_pb2.Error | None:
        """What is wrong with one of the nodes that are named, or None."""
        brokers = self._image.brokers
        both = removed.intersection(added)
        unknown = [node for node in added if node not in brokers]
        down = [node for node in added if node not in before and self._image.is_fenced(node)]
        others = sorted(removed.difference(before))
        if not added and not removed:
            problem = "no node is named: say which to add, and which to remove"
        elif both:
            problem = f"node {min(both)} cannot be added and removed at once"
        elif unknown:
            problem = f"node {unknown[0]} is not registered; the nodes are {', '.join(map(str, sorted(brokers)))}"
        elif down:
            problem = f"node {down[0]} is down and could not copy the metadata: start it first"
        elif others:
            problem = f"node {others[0]} is no voter of the metadata quorum; the voters are {_listed(before)}"
        else:
            return None
        return error(ErrorCode.INVALID_REQUEST, problem)


def refuse_voters(image: MetadataImage, wanted: Sequence[int]) -> errors_pb2.Error | None:
    """What is wrong with a metadata quorum of these nodes, or None."""
    if not wanted:
        return error(ErrorCode.INVALID_REQUEST, "no voter would be left in the metadata quorum: keep one at least")
    if len(wanted) > MAX_VOTERS:
        problem = f"{len(wanted)} voters in the metadata quorum: at most {MAX_VOTERS} are allowed"
        return error(ErrorCode.INVALID_REQUEST, problem)
    up = [node for node in wanted if not image.is_fenced(node)]
    if 2 * len(up) <= len(wanted):
        problem = (
            f"of the voters {_listed(wanted)} only {len(up)} would be up, which is no majority: the cluster could"
            " change nothing any more"
        )
        return error(ErrorCode.INVALID_REQUEST, problem)
    return None


def _listed(nodes: Sequence[int]) -> str:
    return ", ".join(map(str, sorted(nodes)))
