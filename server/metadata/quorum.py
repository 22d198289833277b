"""Who is to vote in the metadata quorum: a part of the metadata image, pure and the same on every node.

The wish stands here, so that every node that comes to lead the quorum goes on with it (`node/metadata_quorum.py`). Who
votes at the moment is said by the configuration of the Raft group and by nothing else.
"""

from __future__ import annotations

from collections.abc import Container

from quorumlog.server.metadata.records import ApplyResult
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import admin_pb2, errors_pb2, metadata_log_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode


class WantedQuorum:
    """The voters that the metadata quorum is to have.

    Attributes:
        voters: node ids; empty until somebody wishes for others than those that formed the cluster.
        wishes: how often others were wished for.
    """

    def __init__(self, voters: tuple[int, ...] = (), wishes: int = 0) -> None:
        self.voters = voters
        self.wishes = wishes

    def want(self, command: metadata_log_pb2.WantQuorum, registered: Container[int]) -> ApplyResult:
        """Other nodes are to vote: a compare-and-set on the wishes before. The latest wish counts.

        Arguments:
            registered: the nodes that there are.
        """
        if command.wishes != self.wishes:
            problem = "the metadata quorum is being changed by somebody else: look at it again, then repeat the change"
            return _refused(error(ErrorCode.INVALID_UPDATE_VERSION, problem))
        strangers = [node for node in command.voters if node not in registered]
        if strangers:
            problem = f"node {strangers[0]} is not registered: start it first"
            return _refused(error(ErrorCode.INVALID_REQUEST, problem))
        self.voters = tuple(sorted(command.voters))
        self.wishes += 1
        return ApplyResult(peer_pb2.ControllerResponse(alter_quorum=admin_pb2.AlterQuorumResponse(voters=self.voters)))


def _refused(problem: errors_pb2.Error) -> ApplyResult:
    return ApplyResult(peer_pb2.ControllerResponse(alter_quorum=admin_pb2.AlterQuorumResponse(error=problem)))
