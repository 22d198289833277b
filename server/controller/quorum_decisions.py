"""The controller's decisions on changes of the voters of the metadata quorum."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from quorumlog.server.controller.decision import ControllerDecision, answer_now, refusal
from quorumlog.server.controller.feature_levels import refuse_below_second
from quorumlog.server.controller.machines import crowded_voter
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import admin_pb2, errors_pb2, metadata_log_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: Maximum number of voters: beyond this every voter makes a quorum slower, and it tolerates more failures than ever
#: occur.
MAX_VOTERS = 9


class QuorumDecisions:
    """Decides on requests that change the metadata quorum.

    Arguments:
        image: the controller's image, read only here.
        voters: returns the current voters of the metadata group.
    """

    def __init__(self, image: MetadataImage, voters: Callable[[], tuple[int, ...]]) -> None:
        self._image = image
        self._voters = voters

    def decide(self, wall_ms: int, number: int, request: admin_pb2.AlterQuorumRequest) -> ControllerDecision:
        """Decides on one request; a request with `validate_only`, or one without effect, changes nothing."""
        quorum = self._image.quorum
        before = quorum.voters or self._voters()
        added, removed = tuple(dict.fromkeys(request.add)), set(request.remove)
        problem = refuse_below_second(self._image, "the metadata quorum is changed")
        problem = problem or self._problem_with(added, removed, before)
        if problem is not None:
            return refusal(number, problem)
        wanted = sorted({*before, *added} - removed)
        problem = refuse_voters(self._image, wanted, before)
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
        """Returns the error if one of the named nodes is invalid; None if all are valid."""
        brokers = self._image.brokers
        both = removed.intersection(added)
        unknown = [node for node in added if node not in brokers]
        down = [node for node in added if node not in before and self._image.is_fenced(node)]
        others = sorted(removed.difference(before))
        if not added and not removed:
            problem = "no node is named: name the nodes to add, and those to remove"
        elif both:
            problem = f"node {min(both)} cannot be added and removed at once"
        elif unknown:
            problem = f"node {unknown[0]} is not registered; the nodes are {', '.join(map(str, sorted(brokers)))}"
        elif down:
            problem = f"node {down[0]} is down and could not copy the metadata: start it first"
        elif others:
            problem = f"node {others[0]} is not a voter of the metadata quorum; the voters are {_listed(before)}"
        else:
            return None
        return error(ErrorCode.INVALID_REQUEST, problem)


def refuse_voters(image: MetadataImage, wanted: Sequence[int], before: Collection[int]) -> errors_pb2.Error | None:
    """Returns the error if these nodes cannot form a metadata quorum; None if they can.

    Arguments:
        before: the voters that were wanted until now.
    """
    if not wanted:
        return error(ErrorCode.INVALID_REQUEST, "no voter would be left in the metadata quorum: keep at least one")
    if len(wanted) > MAX_VOTERS:
        problem = f"{len(wanted)} voters in the metadata quorum: at most {MAX_VOTERS} are allowed"
        return error(ErrorCode.INVALID_REQUEST, problem)
    up = [node for node in wanted if not image.is_fenced(node)]
    if 2 * len(up) <= len(wanted):
        problem = (
            f"of the voters {_listed(wanted)} only {len(up)} would be up, which is not a majority: the cluster"
            " could no longer change its metadata"
        )
        return error(ErrorCode.INVALID_REQUEST, problem)
    crowded = crowded_voter(image, [node for node in wanted if node not in before], wanted)
    return error(ErrorCode.INVALID_REQUEST, crowded) if crowded else None


def _listed(nodes: Sequence[int]) -> str:
    return ", ".join(map(str, sorted(nodes)))
